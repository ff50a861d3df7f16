/** Keeps the prompts of a run within what its model takes and its memory allows. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { GenerateOptions } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import type { AgentManifest } from "../../manifest/manifest.ts";
import { isContextLengthError } from "../../models/failure.ts";
import { type LearnedModel, learnTokens, statedLimit } from "../../models/refusals.ts";
import { BYTES_PER_TOKEN, clipResults, messageBytes, toolBytes } from "../prompt/size.ts";
import { type AllowedOptions, allowedOptions, checkInputOptions, checkProviderOptions } from "./allowed-options.ts";
import type { RunSettings } from "./options.ts";
import type { RunPlan } from "./run.ts";
import { ownToolName } from "./tool-set.ts";

// Makes a prompt fit: drops the oldest turns, then the oldest steps of the current turn, and finally cuts tool results.

type Message = LanguageModelV3Message;

/** Sizes to which results are cut, one after the other, until the prompt fits. */
const RESULT_BYTES = [16, 8, 4, 2, 1, 0.5].map((kib) => kib * 1024);

/** The index of the last message of the user; -1 when there is none. */
export const lastUserIndex = (prompt: readonly Message[]): number =>
  prompt.findLastIndex(({ role }) => role === "user");

/**
 * The prompt with at most `limit` bytes, or as few as possible: system messages, those of the user from `kept` on, and the last step of
 * the run always stay. A call and its result are dropped together. Returns the same list when nothing has to be dropped.
 *
 * @param kept index of the user's message of this turn
 */
export function fitPrompt(prompt: readonly Message[], limit: number, kept: number): readonly Message[] {
  const bytes = prompt.map(messageBytes);
  let total = bytes.reduce((sum, size) => sum + size, 0);
  if (total <= limit) return prompt;
  const dropped = new Set<number>();
  for (const block of droppable(prompt, kept)) {
    for (const index of block) {
      dropped.add(index);
      total -= bytes[index]!;
    }
    if (total <= limit) break;
  }
  const left = dropped.size === 0 ? prompt : prompt.filter((_, index) => !dropped.has(index));
  return total <= limit ? left : cutResults(left, total - limit);
}

/** Groups of indexes that are dropped together, in the order in which they are dropped. */
function droppable(prompt: readonly Message[], kept: number): number[][] {
  const turns: number[][] = [];
  const steps: number[][] = [];
  let previous: Message["role"] | undefined;
  for (const [index, { role }] of prompt.entries()) {
    if (role === "system" || (index >= kept && role === "user")) continue;
    const blocks = index < kept ? turns : steps;
    const begins = index < kept ? role === "user" && previous !== "user" : role === "assistant";
    if (begins || blocks.length === 0) blocks.push([]);
    blocks.at(-1)!.push(index);
    previous = role;
  }
  // The last step stays: the model must see what it did last, or it does it again.
  return [...turns, ...steps.slice(0, -1)];
}

function cutResults(prompt: readonly Message[], excess: number): readonly Message[] {
  let current = prompt;
  let left = excess;
  for (const limit of RESULT_BYTES) {
    if (left <= 0) break;
    current = current.map((message) => {
      if (message.role !== "tool") return message;
      const cut = clipResults(message, () => limit);
      if (cut !== message) left -= messageBytes(message) - messageBytes(cut);
      return cut;
    });
  }
  return left === excess ? prompt : current;
}

type Prompt = LanguageModelV3Message[];

/** Kept free for the answer where the run does not bound it. */
const ANSWER_TOKENS = 4_096;
/** Of a model's window, at most this part is kept free for the answer. */
const MOST_FOR_ANSWER = 0.5;
/** How much of the limit is used after a provider has refused a prompt: estimates may be wrong in both directions. */
const MARGIN = 0.8;
/** A refused prompt is cut to this part when the provider does not say how long it may be. */
const HALF = 0.5;

export class PromptBounds {
  readonly #plan: RunPlan;
  /** The user's message of this turn. */
  readonly #kept: LanguageModelV3Message | undefined;
  /** Estimated tokens of the last prompt without correction; 0 when none was needed. */
  #estimated = 0;
  /** What was last shortened, and for which model. */
  #shortened: { readonly prompt: Prompt; readonly learned: LearnedModel } | null = null;
  /** What the provider said when it refused a prompt: remembered for all runs once it has taken the shorter one. */
  #stated: { readonly learned: LearnedModel; readonly limit: number } | null = null;

  constructor(plan: RunPlan, prompt: Prompt) {
    this.#plan = plan;
    this.#kept = prompt[lastUserIndex(prompt)];
    for (let index = 0; index < prompt.length; index++) {
      const message = prompt[index]!;
      if (message.role === "tool")
        prompt[index] = clipResults(message, (name) => resultLimit(plan, ownToolName(plan.tools, name)));
    }
  }

  /** What is sent of a prompt. */
  fit(prompt: Prompt): Prompt {
    const limit = this.#limit();
    const fitted = limit === undefined ? prompt : this.#fit(prompt, limit / this.#plan.chain.learned.ratio);
    // What a file counts is not known from its size: it says nothing of texts.
    if (limit !== undefined) this.#estimated = hasFiles(fitted) ? 0 : this.#estimate(fitted);
    this.#plan.turn?.told(fitted);
    return fitted;
  }

  /** Takes in what the provider of a model counted for the prompt that was fitted last. */
  learn(learned: LearnedModel, counted: number): void {
    if (this.#estimated > 0) learnTokens(learned, this.#estimated, counted);
    this.#estimated = 0;
    if (counted === 0 || this.#stated === null) return;
    this.#stated.learned.window = this.#stated.limit;
    this.#stated = null;
  }

  /** A shorter prompt in place of one that the provider refused for its length; null when it would refuse this one again. */
  shorten(prompt: Prompt, error: unknown, learned: LearnedModel): Prompt | null {
    this.#stated = null;
    // Once for each prompt and model: what the first try could not do, another cannot either.
    const again = this.#shortened?.prompt === prompt && this.#shortened.learned === learned;
    if (again || !isContextLengthError(error)) return null;
    // A provider may quote what the client has written.
    const stated = statedLimit(error, (words) => JSON.stringify(prompt).includes(JSON.stringify(words).slice(1, -1)));
    const estimated = this.#estimate(prompt);
    if (stated !== null && !hasFiles(prompt)) learnTokens(learned, estimated, stated.used);
    const part = stated === null ? HALF : MARGIN * (stated.limit / stated.used);
    const shorter = this.#fit(prompt, estimated * part);
    if (shorter === prompt) return null;
    this.#estimated = hasFiles(shorter) ? 0 : this.#estimate(shorter);
    this.#shortened = { prompt: shorter, learned };
    if (stated !== null) this.#stated = { learned, limit: stated.limit };
    this.#plan.call.logger.warn({ model: this.#plan.chain.id }, "the prompt is too long for the model: shortened");
    return shorter;
  }

  /** Tokens of a prompt with its tools; undefined: nothing bounds it. */
  #limit(): number | undefined {
    const { chain, settings, contextTokens } = this.#plan;
    const window = Math.min(
      chain.contextWindow ?? Number.POSITIVE_INFINITY,
      chain.learned.window ?? Number.POSITIVE_INFINITY,
    );
    const forAnswer = Math.min(settings.maxOutputTokens ?? ANSWER_TOKENS, window * MOST_FOR_ANSWER);
    const limit = Math.min(
      contextTokens ?? Number.POSITIVE_INFINITY,
      window === Number.POSITIVE_INFINITY ? window : window - forAnswer,
    );
    return Number.isFinite(limit) ? limit : undefined;
  }

  /** @param limit in estimated tokens, without correction */
  #fit(prompt: Prompt, limit: number): Prompt {
    const bytes = limit * BYTES_PER_TOKEN - toolBytes(this.#plan.tools.definitions);
    const kept = this.#kept === undefined ? -1 : prompt.indexOf(this.#kept);
    return fitPrompt(prompt, bytes, kept === -1 ? lastUserIndex(prompt) : kept) as Prompt;
  }

  #estimate(prompt: Prompt): number {
    let bytes = toolBytes(this.#plan.tools.definitions);
    for (const message of prompt) bytes += messageBytes(message);
    return bytes / BYTES_PER_TOKEN;
  }
}

/** Most bytes of a result that the model is shown. */
export const resultLimit = ({ tools, toolOutput }: RunPlan, toolName: string): number =>
  tools.byName.get(toolName)?.outputLimit ?? toolOutput;

const hasFiles = (prompt: Prompt): boolean =>
  prompt.some(({ role, content }) => role === "user" && content.some(({ type }) => type === "file"));

// What an agent lets a request ask for: the largest values of its options, and the provider options that it takes.

/** The options that may be `{default, max}` in the manifest. */
const BOUNDED_OPTIONS = [
  "maxSteps",
  "temperature",
  "maxOutputTokens",
  "topP",
  "frequencyPenalty",
  "presencePenalty",
  "seed",
] as const;
type BoundedOption = (typeof BOUNDED_OPTIONS)[number];

export interface RequestBounds {
  /** The options with a bound, and the largest value of each. */
  readonly largest: readonly (readonly [option: BoundedOption, max: number])[];
  readonly providerOptions: AllowedOptions;
}

/**
 * The agent's own options as values, and its bounds.
 *
 * @param base what stands in where an option has a bound and no default
 */
export function agentOptions(
  agent: Pick<AgentManifest, "options" | "maxSteps" | "allowProviderOptions">,
  base: RunSettings,
): { options: GenerateOptions; bounds: RequestBounds } {
  const declared = { ...agent.options, maxSteps: agent.maxSteps };
  const options: Record<string, unknown> = { ...declared };
  const largest: [BoundedOption, number][] = [];
  for (const option of BOUNDED_OPTIONS) {
    const value = declared[option];
    if (typeof value !== "object" || value === null) continue;
    const { max, default: own } = value;
    const usual = base[option];
    largest.push([option, max]);
    options[option] = own !== undefined || usual === undefined ? own : Math.min(usual, max);
  }
  return { options, bounds: { largest, providerOptions: allowedOptions(agent.allowProviderOptions) } };
}

/** @throws ServiceError `invalid_input` naming the option and its limit */
export function checkBounds(bounds: RequestBounds, options: GenerateOptions): void {
  for (const [option, max] of bounds.largest) {
    const value = options[option];
    if (value === undefined) continue;
    // What is not sent is up to the provider, which knows no such limit.
    if (value === null) throw invalid(`options.${option} must not be null: this agent limits it to ${max}`);
    if (value > max) throw invalid(`options.${option} must be <= ${max}, which is the limit of this agent`);
  }
  if (options.providerOptions !== undefined)
    checkProviderOptions(bounds.providerOptions, options.providerOptions, "options.providerOptions");
}

/** The same for options inside the input. @param input as `buildPrompt` has checked it */
export function checkInputBounds(bounds: RequestBounds, input: unknown, field = "input"): void {
  checkInputOptions(bounds.providerOptions, input, field);
}

const EFFORT = "reasoningEffort";

/**
 * How much a model shall think, for the providers whose option the agent lets requests set.
 *
 * @throws ServiceError `invalid_input` when there is none
 */
export function reasoningOptions(
  { providerOptions }: RequestBounds,
  effort: string,
  field: string,
): Record<string, Record<string, string>> {
  const providers = [...providerOptions].filter(([, level]) => level === null || level.get(EFFORT) === null);
  if (providers.length === 0) throw invalid(`${field} is not allowed: this agent takes no effort from requests`);
  return Object.fromEntries(providers.map(([provider]) => [provider, { [EFFORT]: effort }]));
}
