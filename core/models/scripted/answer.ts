/** Turns the reply of a scripted model into stream parts. Words are counted as tokens. */
import type {
  BatchedStreamResult,
  LanguageModelV3CallOptions,
  LanguageModelV3FinishReason,
  LanguageModelV3StreamPart,
  LanguageModelV3Usage,
  PartBatch,
  PartSource,
} from "../../plugin/plugin.ts";

// Answers with delays between their parts, to try out streaming, aborts and slow models offline.

interface Pace {
  /** Milliseconds between two deltas. */
  delay: number;
  /** Milliseconds before the first delta. */
  firstDelay: number;
}

/**
 * Returns one group after the other: the first is due `firstDelay` after the call, each next one `delay` later. All times are
 * measured from the call, so that late timers do not add up; groups that became due while the reader was busy come as one
 * batch. `failure` is thrown after the last group.
 */
class PacedParts implements PartSource {
  readonly #groups: readonly LanguageModelV3StreamPart[][];
  readonly #failure: Error | undefined;
  readonly #pace: Pace;
  readonly #signal: AbortSignal | undefined;
  readonly #start = performance.now();
  #index = 0;
  #cancelled = false;
  #listening = false;
  /** Ends the pause of a pending `next`. */
  #wake: (() => void) | undefined;

  constructor(groups: LanguageModelV3StreamPart[][], failure: Error | undefined, pace: Pace, signal?: AbortSignal) {
    this.#groups = groups;
    this.#failure = failure;
    this.#pace = pace;
    this.#signal = signal;
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    if (this.#cancelled) return null;
    if (this.#signal?.aborted) throw this.#signal.reason;
    if (this.#index >= this.#groups.length) {
      this.#unlisten();
      if (this.#failure !== undefined) throw this.#failure;
      return null;
    }
    const pause = this.#dueIn(this.#index);
    return pause <= 0 ? this.#takeDue() : this.#waitFor(pause);
  }

  cancel(): void {
    this.#cancelled = true;
    this.#unlisten();
    this.#wake?.();
  }

  #dueIn(index: number): number {
    return this.#start + this.#pace.firstDelay + index * this.#pace.delay - performance.now();
  }

  #takeDue(): PartBatch {
    const batch: LanguageModelV3StreamPart[] = [];
    do {
      batch.push(...(this.#groups[this.#index++] ?? []));
      // A timer may be early by less than a millisecond.
    } while (this.#index < this.#groups.length && this.#dueIn(this.#index) < 1);
    return batch;
  }

  #waitFor(pause: number): Promise<PartBatch | null> {
    if (!this.#listening) {
      this.#listening = true;
      this.#signal?.addEventListener("abort", this.#aborted, { once: true });
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#wake?.(), pause);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = undefined;
        if (this.#cancelled) resolve(null);
        else if (this.#signal?.aborted) reject(this.#signal.reason);
        else resolve(this.#takeDue());
      };
    });
  }

  readonly #aborted = () => {
    this.#listening = false;
    this.#wake?.();
  };

  #unlisten(): void {
    if (!this.#listening) return;
    this.#listening = false;
    this.#signal?.removeEventListener("abort", this.#aborted);
  }
}

/** A text, tool calls, or a failure. A failure beside a text comes after the text. */
export interface ScriptedReply {
  text?: string;
  calls?: readonly { tool: string; input: unknown }[];
  failure?: Error;
}

const START: LanguageModelV3StreamPart = { type: "stream-start", warnings: [] };
const TEXT_ID = "text";
const TEXT_START: LanguageModelV3StreamPart = { type: "text-start", id: TEXT_ID };
const TEXT_END: LanguageModelV3StreamPart = { type: "text-end", id: TEXT_ID };
const STOP: LanguageModelV3FinishReason = { unified: "stop", raw: "stop" };
const LENGTH: LanguageModelV3FinishReason = { unified: "length", raw: "length" };
const TOOL_CALLS: LanguageModelV3FinishReason = { unified: "tool-calls", raw: "tool-calls" };

/** Counts the words, which are separated by white space. */
function countWords(text: string): number {
  let words = 0;
  let inside = false;
  for (let index = 0; index < text.length; index++) {
    const space = text.charCodeAt(index) <= 32;
    if (!space && !inside) words++;
    inside = !space;
  }
  return words;
}

function countPrompt(prompt: LanguageModelV3CallOptions["prompt"]): number {
  let words = 0;
  for (const message of prompt) {
    if (typeof message.content === "string") {
      words += countWords(message.content);
      continue;
    }
    for (const part of message.content) {
      if (part.type === "text" || part.type === "reasoning") words += countWords(part.text);
      else if (part.type === "tool-call") words += countWords(JSON.stringify(part.input));
      else if (part.type === "tool-result") words += countWords(JSON.stringify(part.output));
    }
  }
  return words;
}

function createUsage(input: number, output: number): LanguageModelV3Usage {
  return {
    inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: output, text: output, reasoning: 0 },
  };
}

/** The first `count` words with the white space between them. */
function firstWords(text: string, count: number): string {
  let index = 0;
  for (let remaining = count; remaining > 0; remaining--) {
    while (index < text.length && text.charCodeAt(index) <= 32) index++;
    while (index < text.length && text.charCodeAt(index) > 32) index++;
  }
  return text.slice(0, index);
}

/** Cuts `text` into at most `chunks` deltas of about the same length, never inside a surrogate pair. */
function addText(parts: LanguageModelV3StreamPart[], text: string, chunks: number): void {
  const length = text.length;
  const count = Math.min(chunks, length);
  let from = 0;
  for (let chunk = 1; chunk <= count; chunk++) {
    let to = Math.floor((length * chunk) / count);
    if (to < length && (text.charCodeAt(to) & 0xfc00) === 0xdc00) to++;
    if (to > from) parts.push({ type: "text-delta", id: TEXT_ID, delta: text.slice(from, to) });
    from = to;
  }
}

function createParts(
  reply: ScriptedReply,
  options: LanguageModelV3CallOptions,
  chunks: number,
): LanguageModelV3StreamPart[] {
  const parts: LanguageModelV3StreamPart[] = [START];
  const { text, calls, failure } = reply;
  let reason = STOP;
  let words = 0;
  if (text !== undefined) {
    words = countWords(text);
    let spoken = text;
    if (options.maxOutputTokens !== undefined && words > options.maxOutputTokens) {
      words = options.maxOutputTokens;
      spoken = firstWords(text, words);
      reason = LENGTH;
    }
    parts.push(TEXT_START);
    addText(parts, spoken, chunks);
    parts.push(TEXT_END);
  }
  if (calls !== undefined) {
    reason = TOOL_CALLS;
    for (const { tool, input } of calls) {
      const id = `call_${crypto.randomUUID()}`;
      const json = JSON.stringify(input);
      words += countWords(json);
      parts.push(
        { type: "tool-input-start", id, toolName: tool },
        { type: "tool-input-delta", id, delta: json },
        { type: "tool-input-end", id },
        { type: "tool-call", toolCallId: id, toolName: tool, input: json },
      );
    }
  }
  if (failure === undefined) {
    parts.push({ type: "finish", finishReason: reason, usage: createUsage(countPrompt(options.prompt), words) });
  }
  return parts;
}

/** An answer without delays: all parts in one batch. */
class Burst implements PartSource {
  #parts: PartBatch | null;
  readonly #failure: Error | undefined;

  constructor(parts: PartBatch, failure: Error | undefined) {
    this.#parts = parts;
    this.#failure = failure;
  }

  next(): PartBatch | null {
    const parts = this.#parts;
    this.#parts = null;
    if (parts === null && this.#failure !== undefined) throw this.#failure;
    return parts;
  }

  cancel(): void {
    this.#parts = null;
  }
}

/** Groups the parts to send them one by one: each group has one text delta, and the last one everything that follows it. */
function groupParts(parts: LanguageModelV3StreamPart[]): LanguageModelV3StreamPart[][] {
  const groups: LanguageModelV3StreamPart[][] = [[]];
  let spoken = false;
  for (const part of parts) {
    if (part.type === "text-delta") {
      if (spoken) groups.push([]);
      spoken = true;
    }
    groups.at(-1)?.push(part);
  }
  return groups;
}

class Answer implements BatchedStreamResult {
  readonly batches: PartSource;

  constructor(batches: PartSource) {
    this.batches = batches;
  }

  /** For readers that do not use `batches`. */
  get stream(): ReadableStream<LanguageModelV3StreamPart> {
    const batches = this.batches;
    return new ReadableStream<LanguageModelV3StreamPart>({
      async pull(controller) {
        const batch = await batches.next();
        if (batch === null) controller.close();
        else for (const part of batch) controller.enqueue(part);
      },
      cancel: () => batches.cancel(),
    });
  }
}

/** Creates the answer to a call. Without delays it is one batch that is available at once. */
export function createAnswer(
  reply: ScriptedReply,
  options: LanguageModelV3CallOptions,
  chunks: number,
  pace: Pace,
): BatchedStreamResult {
  const parts = createParts(reply, options, chunks);
  if (pace.delay === 0 && pace.firstDelay === 0) return new Answer(new Burst(parts, reply.failure));
  return new Answer(new PacedParts(groupParts(parts), reply.failure, pace, options.abortSignal));
}
