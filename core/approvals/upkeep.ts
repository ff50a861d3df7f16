/** Background work on approvals: marks those without an answer as expired, removes old ones, and notifies steps and runs of answers. */
import type { Logger } from "pino";
import { type Clock, systemTime } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { RECORDS_PER_PAGE } from "../storage/collection.ts";
import { unlessConflict } from "../storage/conflict.ts";
import type { ApprovalRecord } from "./record.ts";
import { APPROVAL_ANSWERS, type ApprovalRows } from "./rows.ts";

const ROUND_INTERVAL_MS = 5_000;
/** Delay after the first round with an undelivered answer, for example because the step is about to suspend; it doubles each time. */
const RETRY_DELAY_MS = 50;

/** `later`: the answer is not delivered yet, whether the step was resumed or cannot be resumed so far. `gone`: nothing waits for it. */
export type Delivery = "later" | "gone";
/** Resumes the step, or the run, that waits for an approval. */
export type Deliver = (record: ApprovalRecord) => Promise<Delivery>;

/** Expires what is due, and removes approvals whose retention is over: at most one page. @returns their number */
export async function settleDue(rows: ApprovalRows, clock: Clock = systemTime): Promise<number> {
  const due = await rows.due(clock());
  for (const found of due) {
    if (found.record.status === "open") await rows.expire(found);
    else await unlessConflict(rows.remove(found));
  }
  return due.length;
}

export class Upkeep {
  readonly #rows: ApprovalRows;
  readonly #logger: Logger;
  readonly #rounds: Interval;
  #deliver: Deliver | null = null;
  #retry: NodeJS.Timeout | undefined;
  #retryDelay = RETRY_DELAY_MS;
  #endWatch: (() => void) | undefined;

  constructor(rows: ApprovalRows, logger: Logger) {
    this.#rows = rows;
    this.#logger = logger;
    this.#rounds = new Interval(
      ROUND_INTERVAL_MS,
      () => this.#round(),
      (error) => logger.warn({ err: error }, `approvals could not be looked through: ${messageOf(error)}`),
    );
  }

  /** @param deliver notifies a step of its answer */
  start(deliver: Deliver): void {
    this.#deliver = deliver;
    this.#endWatch = this.#rows.store.watch?.(APPROVAL_ANSWERS, () => this.hurry());
    this.#rounds.start(0);
  }

  /** Tells what waits for an answer of it at once. What cannot be told yet is told in a round. Never rejects. */
  async deliver(record: ApprovalRecord): Promise<void> {
    if (this.#deliver === null || this.#rounds.signal.aborted) return;
    if ((await this.#tell(record)) === "later") this.hurry();
  }

  /** Starts a round now, because a step's question has been answered. */
  hurry(): void {
    this.#retryDelay = RETRY_DELAY_MS;
    if (this.#deliver !== null) this.#rounds.hurry();
  }

  async stop(): Promise<void> {
    this.#endWatch?.();
    await this.#rounds.stop();
    clearTimeout(this.#retry);
  }

  async #round(): Promise<void> {
    while ((await settleDue(this.#rows)) === RECORDS_PER_PAGE) if (this.#rounds.signal.aborted) return;
    let isLate = false;
    for await (const page of this.#rows.pagesOf(APPROVAL_ANSWERS))
      for (const { record } of page) {
        if (this.#rounds.signal.aborted) return;
        if ((await this.#tell(record)) === "later") isLate = true;
      }
    clearTimeout(this.#retry);
    if (isLate) this.#retry = setTimeout(() => this.#rounds.hurry(), this.#retryDelay).unref();
    this.#retryDelay = isLate ? Math.min(this.#retryDelay * 2, ROUND_INTERVAL_MS) : RETRY_DELAY_MS;
  }

  async #tell(record: ApprovalRecord): Promise<Delivery> {
    if (record.status === "open") return "gone";
    try {
      const delivery = await this.#deliver!(record);
      if (delivery === "gone") await this.#rows.forgetAnswer(record.id);
      return delivery;
    } catch (error) {
      const about = { approvalId: record.id, executionId: record.executionId, taskId: record.taskId, err: error };
      this.#logger.warn(about, `what waits for an approval could not be told of it: ${messageOf(error)}`);
      return "gone";
    }
  }
}
