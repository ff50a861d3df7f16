/**
 * Embeds waiting texts in the background. The commit that saved a message also stored its waiting row, so that after a crash the
 * next process finds it.
 */
import type { Logger } from "pino";
import { within } from "../../lib/abortable.ts";
import { messageOf } from "../../lib/errors.ts";
import { backOff } from "../../lib/retry.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import { EmbeddingRefused, type NamedEmbedding } from "../embedding/embedding.ts";
import type { FinishedRow, IndexLayout, VectorIndex } from "./exact.ts";
import { normalize } from "./matrix.ts";
import { readWaiting, type VectorRow, type Waiting } from "./rows.ts";
import type { SearchedMessage } from "./semantic.ts";
import type { IndexState } from "./state.ts";

/** Rows of one round. */
const BATCH_ROWS = 64;
/** While embedding fails, the delay doubles with every retry, from the minimum to the maximum. */
const MIN_RETRY_DELAY_MS = 1_000;
const MAX_RETRY_DELAY_MS = 60_000;
/** When the queue has been busy for this long, searches no longer wait for it: it may take much longer. */
const MAX_BUSY_WAIT_MS = 5_000;
/** Texts that the model refused are remembered, so that they are not sent again and again. */
const MAX_REMEMBERED_REFUSALS = 10_000;

interface QueueParts {
  store: Store;
  layout: IndexLayout;
  state: IndexState;
  index: VectorIndex;
  embedding: NamedEmbedding;
  logger: Logger;
  signal: AbortSignal;
}

interface Item extends Row {
  waiting: Waiting;
}

export type EmbeddingQueue = ReturnType<typeof createEmbeddingQueue>;

export function createEmbeddingQueue(parts: QueueParts) {
  /** Revisions of refused rows by key. */
  const refused = new Map<string, number>();
  /** The current work; null while there is none. */
  let running: Promise<void> | null = null;
  /** When the first round of the current work ended. Before that, a local encoder may still be loading. */
  let busySince = Number.POSITIVE_INFINITY;
  let again = false;
  let failures = 0;
  let timer: NodeJS.Timeout | undefined;
  /** Called once, at the end of the current round. */
  const waiters: (() => void)[] = [];
  parts.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });

  /** Starts embedding if texts may be waiting. Returns at once. */
  function wake(): void {
    again = true;
    // While embedding fails, the timer decides when to try again.
    if (running === null && timer === undefined && !parts.signal.aborted) {
      busySince = Number.POSITIVE_INFINITY;
      running = run();
    }
  }

  /** For commands: works until the queue is empty. @throws the error of the embedding or the store */
  async function drain(): Promise<void> {
    for (;;) {
      again = false;
      const problem = await embedWaiting();
      if (problem !== null) throw problem;
      if (!again) return;
    }
  }

  /** Resolves when the current work has ended or has been postponed. */
  async function idle(): Promise<void> {
    await running;
  }

  /** Waits at most `timeout` milliseconds while texts below `prefix` are being embedded. */
  async function waitFor(prefix: string, timeout: number): Promise<void> {
    if (running === null) return;
    const deadline = Math.min(performance.now() + timeout, busySince + MAX_BUSY_WAIT_MS);
    while (running !== null) {
      const round = new Promise<void>((resolve) => waiters.push(resolve));
      const [waiting] = await parts.store.scan({ prefix, limit: 1 });
      const left = deadline - performance.now();
      if (waiting === undefined || left <= 0) return;
      await within(left, round);
    }
  }

  async function run(): Promise<void> {
    // Texts that are saved in the same turn of the event loop become one batch.
    await null;
    let problem: unknown = null;
    while (again && problem === null && !parts.signal.aborted) {
      again = false;
      problem = await embedWaiting().catch((error) => error ?? new Error("unknown error"));
    }
    running = null;
    endRound();
    if (problem !== null) retryLater(problem);
  }

  function retryLater(problem: unknown): void {
    const { logger, signal } = parts;
    if (signal.aborted) return;
    const delay = backOff(failures++, MIN_RETRY_DELAY_MS, MAX_RETRY_DELAY_MS);
    const text = `semantic memory: messages wait to be embedded: ${messageOf(problem)}; trying again in ${delay / 1000} s`;
    logger.warn({ err: problem }, text);
    timer = setTimeout(() => {
      timer = undefined;
      wake();
    }, delay);
    timer.unref();
  }

  function endRound(): void {
    busySince = Math.min(busySince, performance.now());
    for (const waiter of waiters.splice(0)) waiter();
  }

  /** Goes once through all waiting rows. Returns the error that stopped it, or null. */
  async function embedWaiting(): Promise<unknown> {
    const { store, layout, signal } = parts;
    const prefix = layout.waiting();
    for await (const rows of allRows(store, { prefix }, BATCH_ROWS)) {
      const items = rows
        .filter(({ key, revision }) => refused.get(key) !== revision)
        .map((row) => ({ ...row, waiting: readWaiting(row.value) }));
      if (items.length > 0) {
        try {
          await handle(items);
          failures = 0;
        } catch (error) {
          // Throws a clearer error when another process has rebuilt the index meanwhile.
          await parts.state.refresh();
          return error;
        }
        endRound();
      }
      if (signal.aborted) break;
    }
    return null;
  }

  async function handle(items: readonly Item[]): Promise<void> {
    const { index } = parts;
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
    const texts = items.flatMap(({ key, revision, waiting }) =>
      waiting.kind === "embed" ? [{ key, revision, waiting }] : [],
    );
    if (texts.length > 0) await embed(texts);
  }

  /** A text that the model refuses is skipped until the next start. */
  async function embed(items: readonly (Omit<FinishedRow, "row"> & { waiting: SearchedMessage })[]): Promise<void> {
    const { embedding, state, index, signal, logger } = parts;
    const texts = items.map(({ waiting }) => waiting);
    let position = 0;
    for await (const rows of embedEach(embedding, texts, signal)) {
      const finished: Required<FinishedRow>[] = [];
      for (const row of rows) {
        const { key, revision } = items[position++]!;
        if (row instanceof EmbeddingRefused) {
          if (refused.size >= MAX_REMEMBERED_REFUSALS) refused.clear();
          refused.set(key, revision);
          logger.error({ err: row, key }, `semantic memory: a message cannot be found: ${messageOf(row)}`);
        } else finished.push({ key, revision, row });
      }
      if (finished.length === 0) continue;
      await state.setDimensions(finished[0]!.row!.vector.length);
      await index.finish(finished);
    }
  }

  return { wake, drain, idle, waitFor };
}

/** Only this much of a message, and of a query, is embedded. */
export const MAX_TEXT_CHARACTERS = 8_000;

/**
 * Their vectors, or why the model refuses a text. One may cause the refusal of the whole batch: bisection finds it. Each part comes
 * at once and in order, so that what the model answered is not lost when it fails later.
 */
export async function* embedEach(
  embedding: NamedEmbedding,
  batch: readonly SearchedMessage[],
  signal: AbortSignal,
): AsyncGenerator<(VectorRow | EmbeddingRefused)[]> {
  try {
    const vectors = await embedding.embed(
      batch.map(({ text }) => text.slice(0, MAX_TEXT_CHARACTERS)),
      signal,
    );
    yield batch.map(({ owner, conversation, message }, position) => {
      return { owner, conversation, message, vector: normalize(vectors[position]!) };
    });
  } catch (error) {
    if (!(error instanceof EmbeddingRefused)) throw error;
    if (batch.length === 1) return yield [error];
    const middle = batch.length >> 1;
    yield* embedEach(embedding, batch.slice(0, middle), signal);
    yield* embedEach(embedding, batch.slice(middle), signal);
  }
}
