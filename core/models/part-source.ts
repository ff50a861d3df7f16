/** Reads the answer of a model in batches: a burst of parts costs one call, and no promise if it is available at once. */
import type {
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3StreamPart,
  LanguageModelV3StreamResult,
  SharedV3Warning,
} from "@ai-sdk/provider";
import type { AbortListener } from "../lib/aborts.ts";
import type { BatchedStreamResult, PartBatch, PartSource } from "../plugin/plugin.ts";
import type { CallLimits } from "./call-limits.ts";

/** The part of a model that the core uses. Models for other versions of the AI SDK's interface are converted to it. */
export interface StreamingModel extends Pick<LanguageModelV3, "supportedUrls"> {
  doStream(options: LanguageModelV3CallOptions): PromiseLike<StreamingResult>;
}

/** A stream of parts, a stream of foreign parts, or batches. */
export type StreamingResult = Pick<LanguageModelV3StreamResult, "stream"> | ConvertedStreamResult | BatchedStreamResult;

/** A stream of foreign parts. Converting them one by one costs less than another stage of a stream. */
interface ConvertedStreamResult {
  readonly stream: ReadableStream<unknown>;
  /** Returns null to leave a part out. */
  readonly convert: (part: never) => LanguageModelV3StreamPart | null;
}

export const isBatched = (result: StreamingResult): result is BatchedStreamResult =>
  (result as Partial<BatchedStreamResult>).batches !== undefined;

/** How far to read ahead of a slow reader: enough for a burst, then the upstream has to wait (back-pressure). */
const MAX_BUFFERED_PARTS = 256;
const MAX_BUFFERED_CHARACTERS = 64 * 1024;

/** The answer ended without a `finish` part, or without a reason in it. */
class EndedEarly extends Error {
  override readonly name = "EndedEarly";
  constructor() {
    super("the model's answer ended without a finish reason");
  }
}

/**
 * The parts of a ReadableStream. Reads ahead a little, so that all parts of one network packet become one batch. Ends at once
 * when its limits abort the call, even if the provider ignores the signal.
 */
export class StreamSource implements PartSource, AbortListener {
  readonly #reader: ReadableStreamDefaultReader<unknown>;
  readonly #convert: ConvertedStreamResult["convert"] | undefined;
  readonly #limits: CallLimits;
  /** For each read; without names, which cost more than the functions when the sources run. */
  readonly #onResult: (result: { done: boolean; value?: unknown }) => void;
  readonly #onFailure: (thrown: unknown) => void;
  #parts: LanguageModelV3StreamPart[] = [];
  /** Characters in `#parts`. */
  #characters = 0;
  #reading = false;
  #complete = false;
  /** Whether the answer is complete, failed or cancelled. */
  #ended = false;
  #failure: { thrown: unknown } | null = null;
  #waiting: { resolve(batch: PartBatch | null): void; reject(thrown: unknown): void } | null = null;

  constructor(result: Exclude<StreamingResult, BatchedStreamResult>, limits: CallLimits) {
    this.#reader = (result.stream as ReadableStream<unknown>).getReader();
    this.#convert = "convert" in result ? result.convert : undefined;
    this.#limits = limits;
    this.#onResult = (result) => this.#received(result);
    this.#onFailure = (thrown) => {
      this.#reading = false;
      if (!this.#ended) this.#end({ thrown });
    };
    limits.add(this);
    this.#readNext();
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    if (this.#parts.length > 0) return this.#takeBatch();
    if (this.#failure !== null) throw this.#failure.thrown;
    if (this.#ended) return null;
    this.#readNext();
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  cancel(): void {
    if (this.#ended && this.#parts.length === 0 && this.#failure === null) return;
    this.#parts = [];
    this.#end(null);
    this.#failure = null;
    this.#cancelStream(undefined);
  }

  #takeBatch(): PartBatch {
    const parts = this.#parts;
    this.#parts = [];
    this.#characters = 0;
    if (!this.#ended && !this.#reading) {
      // The provider had to wait for the reader, and is not responsible for the silence.
      this.#limits.restart();
      this.#readNext();
    }
    return parts;
  }

  /** One read at a time, each started by the one before it while there is room. */
  #readNext(): void {
    if (this.#reading || this.#ended) return;
    this.#reading = true;
    this.#reader.read().then(this.#onResult, this.#onFailure);
  }

  #received(result: { done: boolean; value?: unknown }): void {
    this.#reading = false;
    if (this.#ended) return;
    if (result.done || result.value === undefined) {
      this.#end(this.#complete ? null : { thrown: new EndedEarly() });
      return;
    }
    const part = this.#convert === undefined ? result.value : this.#convert(result.value as never);
    if (part === null) this.#limits.restart();
    else if (!this.#add(part as LanguageModelV3StreamPart)) return;
    if (this.#parts.length < MAX_BUFFERED_PARTS && this.#characters < MAX_BUFFERED_CHARACTERS) this.#readNext();
    else this.#limits.pause();
  }

  /** @returns false at the end of the answer */
  #add(part: LanguageModelV3StreamPart): boolean {
    const failure = failureOf(part);
    if (failure !== null) {
      this.#end(failure);
      this.#cancelStream(failure.thrown);
      return false;
    }
    if (part.type === "finish") this.#complete = true;
    this.#parts.push(part);
    this.#characters += partLength(part);
    // While `next` waits, the rest of a burst comes in the same moment.
    this.#limits.received(part.type, this.#parts.length > 1 && this.#waiting !== null);
    // The first part of a burst wakes the reader, but only after the rest of the burst has come: a tick runs after all
    // pending microtasks.
    if (this.#parts.length === 1) process.nextTick(() => this.#deliver());
    return true;
  }

  aborted(reason: unknown): void {
    this.#parts = [];
    this.#end({ thrown: reason });
    this.#cancelStream(reason);
  }

  #end(failure: { thrown: unknown } | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    this.#limits.remove(this);
    this.#limits.end();
    this.#deliver();
  }

  /** Resolves the pending `next`, if there is one. */
  #deliver(): void {
    const waiting = this.#waiting;
    if (waiting === null || (this.#parts.length === 0 && !this.#ended)) return;
    this.#waiting = null;
    if (this.#parts.length > 0) waiting.resolve(this.#takeBatch());
    else if (this.#failure !== null) waiting.reject(this.#failure.thrown);
    else waiting.resolve(null);
  }

  /** Stops the upstream. Cancelling a stream that has failed rejects, which does not matter. */
  #cancelStream(reason: unknown): void {
    this.#reader.cancel(reason).catch(() => undefined);
  }
}

/**
 * Packages give the reason "other" without the provider's word to an answer that told them none: it broke off, or was not an answer at
 * all, like the page of a proxy.
 */
function failureOf(part: LanguageModelV3StreamPart): { thrown: unknown } | null {
  if (part.type === "error") return { thrown: part.error };
  const isUnfinished =
    part.type === "finish" && part.finishReason.unified === "other" && part.finishReason.raw === undefined;
  return isUnfinished ? { thrown: new EndedEarly() } : null;
}

/** The length of a part, for kinds that may be long. */
function partLength(part: LanguageModelV3StreamPart): number {
  if ("delta" in part) return part.delta.length;
  return part.type === "file" ? part.data.length : 0;
}

/** Parts that are not sent to clients: after them a retry is still possible. */
const INVISIBLE_PARTS: ReadonlySet<string> = new Set<LanguageModelV3StreamPart["type"]>([
  "stream-start",
  "response-metadata",
  "raw",
]);

/** Most parts that are held back. After more, a failure is final. */
const MAX_INVISIBLE_PARTS = 1024;

/** Whether a batch contains a part that clients see, and none for the log. */
export function isShownAtOnce(batch: PartBatch): boolean {
  for (const part of batch) {
    if (part.type === "stream-start" && part.warnings.length > 0) return false;
    if (!INVISIBLE_PARTS.has(part.type)) return true;
  }
  return false;
}

/** Holds back the parts of an answer that clients do not see, until the first visible one: a retry would send them twice. */
export class HeldParts {
  #parts: LanguageModelV3StreamPart[] | null = null;
  readonly #warned: (warnings: readonly SharedV3Warning[]) => void;

  constructor(warned: (warnings: readonly SharedV3Warning[]) => void) {
    this.#warned = warned;
  }

  /** The batch with all that was held back, if it contains a visible part. Else null, and the batch is held back as well. */
  release(batch: PartBatch): PartBatch | null {
    const held = this.#parts;
    const long = held !== null && held.length > MAX_INVISIBLE_PARTS;
    for (const part of batch) {
      if (part.type === "stream-start" && part.warnings.length > 0) this.#warned(part.warnings);
      if (INVISIBLE_PARTS.has(part.type) && !long) continue;
      this.#parts = null;
      return held === null ? batch : [...held, ...batch];
    }
    if (held === null) this.#parts = [...batch];
    else held.push(...batch);
    return null;
  }

  /** The parts that are still held back, at the end of the answer. */
  take(): PartBatch | null {
    const held = this.#parts;
    this.#parts = null;
    return held;
  }
}
