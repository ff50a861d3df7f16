/** Reading what a model answers, in batches: a burst of parts costs one call, and no promise when it is at hand. */
import type { LanguageModelV3StreamPart, LanguageModelV3StreamResult } from "@ai-sdk/provider";

/** Parts in order, never empty, never to be changed. */
export type PartBatch = readonly LanguageModelV3StreamPart[];

/**
 * Where the parts of one answer come from. One reader, one `next` at a time.
 *
 * `next` gives the batch at once when parts are at hand, else a promise of it, and `null` at the end. A failure is
 * thrown (or the promise is rejected), never a part of type `error`; an answer that breaks off is a failure, not an
 * end. `cancel` may be called at any time and more than once: it stops the upstream, and `next` gives null from then on.
 */
export interface PartSource {
  next(): PartBatch | null | Promise<PartBatch | null>;
  cancel(): void;
}

/**
 * What `doStream` may resolve to beside the standard: a provider that has its parts in batches offers them as such and
 * spares the ReadableStream. The core then reads `batches` and never touches `stream`, so `stream` is best a getter.
 * Such a provider honours `abortSignal` itself, also while its `doStream` is pending.
 */
export interface BatchedStreamResult extends LanguageModelV3StreamResult {
  readonly batches: PartSource;
}

/** What an upstream may be ahead of its reader, in parts and characters: enough for a burst, and a slow reader slows the upstream. */
const MOST_AHEAD = 256;
const MOST_CHARACTERS_AHEAD = 64 * 1024;

/** The answer stopped without saying that it was complete. */
class EndedEarly extends Error {
  override readonly name = "EndedEarly";
  constructor() {
    super("the model's stream ended without a finish part");
  }
}

/**
 * The parts of a ReadableStream. It reads ahead a little, so that all parts of one network packet come as one batch.
 * Aborting `signal` ends it at once, also when the provider does not look at the signal itself.
 */
export class StreamSource implements PartSource {
  readonly #reader: ReadableStreamDefaultReader<LanguageModelV3StreamPart>;
  readonly #signal: AbortSignal | undefined;
  #parts: LanguageModelV3StreamPart[] = [];
  /** Characters of `#parts`. */
  #ahead = 0;
  #reading = false;
  #complete = false;
  /** No more will come: the answer is complete, failed or cancelled. */
  #over = false;
  #failure: { thrown: unknown } | null = null;
  #waiting: { resolve(batch: PartBatch | null): void; reject(thrown: unknown): void } | null = null;

  constructor(stream: ReadableStream<LanguageModelV3StreamPart>, signal: AbortSignal | undefined) {
    this.#reader = stream.getReader();
    this.#signal = signal;
    if (signal?.aborted) this.#aborted();
    else {
      signal?.addEventListener("abort", this.#aborted, { once: true });
      this.#read();
    }
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    if (this.#parts.length > 0) return this.#take();
    if (this.#failure !== null) throw this.#failure.thrown;
    if (this.#over) return null;
    this.#read();
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  cancel(): void {
    if (this.#over && this.#parts.length === 0 && this.#failure === null) return;
    this.#parts = [];
    this.#end(null);
    this.#failure = null;
    this.#drop(undefined);
  }

  #take(): PartBatch {
    const parts = this.#parts;
    this.#parts = [];
    this.#ahead = 0;
    if (!this.#over) this.#read();
    return parts;
  }

  /** One read at a time, each started by the one before it while there is room. */
  #read(): void {
    if (this.#reading || this.#over) return;
    this.#reading = true;
    this.#reader.read().then(this.#received, this.#failed);
  }

  readonly #received = (result: { done: boolean; value?: LanguageModelV3StreamPart | undefined }): void => {
    this.#reading = false;
    if (this.#over) return;
    const part = result.value;
    if (result.done || part === undefined) {
      this.#end(this.#complete ? null : { thrown: new EndedEarly() });
      return;
    }
    if (part.type === "error") {
      this.#end({ thrown: part.error });
      this.#drop(part.error);
      return;
    }
    if (part.type === "finish") this.#complete = true;
    this.#parts.push(part);
    this.#ahead += lengthOf(part);
    // The first part of a burst wakes the reader, but not before the rest of the burst is here: a tick comes after all
    // microtasks that are waiting.
    if (this.#parts.length === 1) process.nextTick(this.#deliver);
    if (this.#parts.length < MOST_AHEAD && this.#ahead < MOST_CHARACTERS_AHEAD) this.#read();
  };

  readonly #failed = (thrown: unknown): void => {
    this.#reading = false;
    if (!this.#over) this.#end({ thrown });
  };

  readonly #aborted = (): void => {
    this.#parts = [];
    this.#end({ thrown: this.#signal?.reason });
    this.#drop(this.#signal?.reason);
  };

  #end(failure: { thrown: unknown } | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#failure = failure;
    this.#signal?.removeEventListener("abort", this.#aborted);
    this.#deliver();
  }

  /** Gives what is there to a reader that waits. */
  readonly #deliver = (): void => {
    const waiting = this.#waiting;
    if (waiting === null || (this.#parts.length === 0 && !this.#over)) return;
    this.#waiting = null;
    if (this.#parts.length > 0) waiting.resolve(this.#take());
    else if (this.#failure !== null) waiting.reject(this.#failure.thrown);
    else waiting.resolve(null);
  };

  /** Tells the upstream to stop. A stream that has failed refuses that: nothing is left to stop then. */
  #drop(reason: unknown): void {
    this.#reader.cancel(reason).catch(() => undefined);
  }
}

/** Of what may be long; all else is short. */
function lengthOf(part: LanguageModelV3StreamPart): number {
  if ("delta" in part) return part.delta.length;
  return part.type === "file" ? part.data.length : 0;
}
