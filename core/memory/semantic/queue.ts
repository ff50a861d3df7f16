/**
 * What waits to be embedded, worked off in the background. The rows are in the store since the commit that saved the
 * message: whatever happens to the process, the next one finds them there.
 */
import type { Logger } from "pino";
import { messageOf } from "../../lib/errors.ts";
import type { Row, Store } from "../../storage/store.ts";
import { EmbeddingRefused, type NamedEmbedding } from "../embedding/embedding.ts";
import type { Layout } from "./layout.ts";
import { normalize } from "./nearest.ts";
import { readWaiting, type Waiting } from "./rows.ts";
import type { IndexState } from "./state.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

/** Rows of one round. */
const BATCH = 64;
/** Milliseconds before another try while embedding fails, doubled each time up to the second. */
const RETRY = [1_000, 60_000] as const;
/** Milliseconds of work without a pause after which nobody waits for its end: it may be long. */
const BUSY = 5_000;
/** Texts that the model refuses, remembered so that they are not sent again and again. */
const REFUSED = 10_000;

interface QueueParts {
  store: Store;
  layout: Layout;
  state: IndexState;
  index: VectorIndex;
  embedding: NamedEmbedding;
  logger: Logger;
  signal: AbortSignal;
}

interface Item extends Row {
  waiting: Waiting;
}

export class EmbeddingQueue {
  readonly #parts: QueueParts;
  /** Revisions of refused rows by key. */
  readonly #refused = new Map<string, number>();
  /** The work at hand; null while there is none. */
  #running: Promise<void> | null = null;
  /** When its first round was done: until then an encoder may have to load. */
  #since = Number.POSITIVE_INFINITY;
  #again = false;
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Called after each round, once. */
  #waiters: (() => void)[] = [];

  constructor(parts: QueueParts) {
    this.#parts = parts;
    parts.signal.addEventListener("abort", () => clearTimeout(this.#timer), { once: true });
  }

  /** Something may wait. Returns at once. */
  wake(): void {
    this.#again = true;
    // While embedding fails the timer says when to try again, not the traffic.
    if (this.#running === null && this.#timer === undefined && !this.#parts.signal.aborted) {
      this.#since = Number.POSITIVE_INFINITY;
      this.#running = this.#run();
    }
  }

  /** Works until nothing waits, for commands. @throws what made it impossible */
  async drain(): Promise<void> {
    for (;;) {
      this.#again = false;
      const problem = await this.#pass();
      if (problem !== null) throw problem;
      if (!this.#again) return;
    }
  }

  /** Resolves when the work at hand is done or has been put off. */
  async idle(): Promise<void> {
    await this.#running;
  }

  /** Waits while texts below `prefix` are being embedded, at most so many milliseconds. */
  async waitFor(prefix: string, patience: number): Promise<void> {
    if (this.#running === null) return;
    const deadline = Math.min(performance.now() + patience, this.#since + BUSY);
    while (this.#running !== null) {
      const round = new Promise<void>((resolve) => this.#waiters.push(resolve));
      const [waiting] = await this.#parts.store.scan({ prefix, limit: 1 });
      const left = deadline - performance.now();
      if (waiting === undefined || left <= 0 || !(await doneWithin(round, left))) return;
    }
  }

  async #run(): Promise<void> {
    // What is saved in one turn is one batch.
    await null;
    let problem: unknown = null;
    while (this.#again && problem === null && !this.#parts.signal.aborted) {
      this.#again = false;
      problem = await this.#pass().catch((error) => error ?? new Error("unknown error"));
    }
    this.#running = null;
    this.#nextRound();
    if (problem !== null) this.#putOff(problem);
  }

  #putOff(problem: unknown): void {
    const { logger, signal } = this.#parts;
    if (signal.aborted) return;
    const delay = Math.min(RETRY[0] * 2 ** this.#failures++, RETRY[1]);
    const text = `semantic memory: messages wait to be embedded: ${messageOf(problem)}; trying again in ${delay / 1000} s`;
    logger.warn({ err: problem }, text);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.wake();
    }, delay);
    this.#timer.unref();
  }

  #nextRound(): void {
    this.#since = Math.min(this.#since, performance.now());
    for (const waiter of this.#waiters.splice(0)) waiter();
  }

  /** Once over everything that waits. Gives what stopped it, or null. */
  async #pass(): Promise<unknown> {
    const { store, layout, signal } = this.#parts;
    const prefix = layout.waiting();
    let after: string | undefined;
    while (!signal.aborted) {
      const rows = await store.scan({ prefix, after, limit: BATCH });
      const items = rows
        .filter(({ key, revision }) => this.#refused.get(key) !== revision)
        .map((row) => ({ ...row, waiting: readWaiting(row.value) }));
      if (items.length > 0) {
        try {
          await this.#work(items);
          this.#failures = 0;
        } catch (error) {
          // The index may have been made anew by another process, which is the better message.
          await this.#parts.state.refresh();
          return error;
        }
        this.#nextRound();
      }
      if (rows.length < BATCH) return null;
      after = rows[rows.length - 1]!.key;
    }
    return null;
  }

  async #work(items: readonly Item[]): Promise<void> {
    const { index } = this.#parts;
    const deletions = items.filter(({ waiting }) => waiting.kind !== "embed");
    if (deletions.length > 0) {
      await index.delete(
        deletions.map(({ waiting }) => ({
          owner: waiting.owner,
          conversation: waiting.conversation,
          ...(waiting.kind === "delete" ? { message: waiting.message } : {}),
        })),
      );
      await index.finish(deletions.map(({ key, revision }) => ({ key, revision })));
    }
    const texts = items.filter(({ waiting }) => waiting.kind === "embed");
    if (texts.length > 0) await this.#embed(texts);
  }

  async #embed(items: readonly Item[]): Promise<void> {
    const { embedding, state, index, signal } = this.#parts;
    let vectors: Float32Array[];
    try {
      vectors = await embedding.embed(
        items.map(({ waiting }) => (waiting.kind === "embed" ? waiting.text : "")),
        signal,
      );
    } catch (error) {
      if (!(error instanceof EmbeddingRefused)) throw error;
      return this.#divide(items, error);
    }
    await state.setDimensions(vectors[0]!.length);
    const finished = items.map(({ key, revision, waiting }, position): FinishedRow => {
      if (waiting.kind !== "embed") throw new Error("only texts are embedded");
      const { owner, conversation, message } = waiting;
      return { key, revision, row: { owner, conversation, message, vector: normalize(vectors[position]!) } };
    });
    await index.finish(finished);
  }

  /** One text may be to blame for the refusal of all: it is looked for by halves, and left out until the next start. */
  async #divide(items: readonly Item[], error: EmbeddingRefused): Promise<void> {
    if (items.length > 1) {
      const middle = items.length >> 1;
      await this.#embed(items.slice(0, middle));
      await this.#embed(items.slice(middle));
      return;
    }
    const { key, revision } = items[0]!;
    if (this.#refused.size >= REFUSED) this.#refused.clear();
    this.#refused.set(key, revision);
    this.#parts.logger.error({ err: error, key }, `semantic memory: a message cannot be found: ${messageOf(error)}`);
  }
}

async function doneWithin(promise: Promise<void>, milliseconds: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), milliseconds);
  });
  const done = await Promise.race([promise.then(() => true), late]);
  clearTimeout(timer);
  return done;
}
