/** What is learned of a model from its answers, for as long as the process lives. */
import { causesText } from "./causes-text.ts";
import type { Refused } from "./refusals.ts";

export interface LearnedModel {
  /** Actual tokens per estimated token. */
  ratio: number;
  /** The limit that the provider named when it refused a prompt. */
  window: number | undefined;
  /** What its provider has refused in requests. */
  readonly refused: Refused;
}

export const learnedNothing = (): LearnedModel => ({ ratio: 1, window: undefined, refused: new Map() });

/** The weight of the last call in the average. */
const WEIGHT = 0.3;
/** For shorter prompts the count reflects what providers add to every call more than the text. */
const LEAST_TOKENS = 100;
const [LEAST_RATIO, MOST_RATIO] = [0.5, 8];

/** Adjusts the scale after a call. @param estimated tokens of the prompt before any correction @param counted by the provider */
export function learnTokens(scale: LearnedModel, estimated: number, counted: number): void {
  if (counted <= 0 || estimated < LEAST_TOKENS) return;
  const ratio = scale.ratio + WEIGHT * (counted / estimated - scale.ratio);
  scale.ratio = Math.min(MOST_RATIO, Math.max(LEAST_RATIO, ratio));
}

const MAXIMUM = /maximum[^.\d]{0,60}(\d[\d,]{0,15})|(\d[\d,]{0,15})\s{0,2}maximum/i;
const NUMBERS = /\d[\d,]{2,}/g;
const MAX_CHARACTERS = 16 * 1024;
const toNumber = (digits: string) => Number(digits.replaceAll(",", ""));

/**
 * The limit and the length of the prompt, in tokens, that a provider's error names; null when it does not.
 *
 * @param isQuoted whether a text of the error is not the provider's own
 */
export function statedLimit(
  error: unknown,
  isQuoted: (words: string) => boolean = () => false,
): { limit: number; used: number } | null {
  const text = causesText(error).slice(0, MAX_CHARACTERS);
  const match = MAXIMUM.exec(text);
  if (match === null || isQuoted(match[0])) return null;
  const limit = toNumber(match[1] ?? match[2]!);
  const used = Math.max(...[...text.matchAll(NUMBERS)].map(([digits]) => toNumber(digits)));
  return limit > 0 && used > limit && Number.isSafeInteger(used) ? { limit, used } : null;
}
