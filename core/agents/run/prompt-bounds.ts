/** Keeps the prompts of a run within what its model takes and its memory allows. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { isContextLengthError } from "../../models/failure.ts";
import { type LearnedModel, learnTokens, statedLimit } from "../../models/learned.ts";
import { clipResults } from "../prompt/clip.ts";
import { fitPrompt, lastUserIndex } from "../prompt/fit.ts";
import { BYTES_PER_TOKEN, messageBytes, toolBytes } from "../prompt/size.ts";
import type { RunPlan } from "./run.ts";
import { ownToolName } from "./tool-set.ts";

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
  /** Messages whose results are no longer than they may be. */
  #clipped: WeakSet<LanguageModelV3Message> | null = null;
  /** Estimated tokens of the last prompt without correction; 0 when none was needed. */
  #estimated = 0;
  /** What was last shortened, and for which model. */
  #shortened: { readonly prompt: Prompt; readonly learned: LearnedModel } | null = null;
  /** What the provider said when it refused a prompt: remembered for all runs once it has taken the shorter one. */
  #stated: { readonly learned: LearnedModel; readonly limit: number } | null = null;

  constructor(plan: RunPlan, prompt: Prompt) {
    this.#plan = plan;
    this.#kept = prompt[lastUserIndex(prompt)];
  }

  /** What is sent of a prompt. */
  fit(prompt: Prompt): Prompt {
    let fitted = this.#clip(prompt);
    const limit = this.#limit();
    if (limit !== undefined) {
      fitted = this.#fit(fitted, limit / this.#plan.chain.learned.ratio);
      // What a file counts is not known from its size: it says nothing of texts.
      this.#estimated = hasFiles(fitted) ? 0 : this.#estimate(fitted);
    }
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

  #clip(prompt: Prompt): Prompt {
    if (!prompt.some(({ role }) => role === "tool")) return prompt;
    const { tools, toolOutput } = this.#plan;
    this.#clipped ??= new WeakSet();
    const clipped = this.#clipped;
    return prompt.map((message) => {
      if (message.role !== "tool" || clipped.has(message)) return message;
      const shown = clipResults(
        message,
        (name) => tools.byName.get(ownToolName(tools, name))?.outputLimit ?? toolOutput,
      );
      clipped.add(shown);
      return shown;
    });
  }
}

const hasFiles = (prompt: Prompt): boolean =>
  prompt.some(({ role, content }) => role === "user" && content.some(({ type }) => type === "file"));
