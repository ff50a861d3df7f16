/**
 * The history of all agents in the store. A record, not an acknowledgement: what ends is written a moment later together
 * with what else ended by then, so that a run waits for no commit; a run that takes long is written while it runs.
 */

import type { Logger } from "pino";
import { storedTime } from "../../lib/clock.ts";
import { invalid, messageOf } from "../../lib/errors.ts";
import { Serialized } from "../../lib/serialized.ts";
import { MAX_SKIPPED_ROWS } from "../../storage/check.ts";
import {
  historyKey,
  historyKeyOfOwn,
  historyRows,
  historyTotal,
  openRunKey,
  ownHistoryKey,
  ownHistoryRows,
  ownHistoryTotal,
} from "../../storage/keys.ts";
import type { Store } from "../../storage/store.ts";
import type { RunResult } from "../run/run.ts";
import {
  beginHistoryRun,
  type Ended,
  endHistoryRun,
  type History,
  type HistoryOfAgents,
  type HistoryRun,
  historyEntry,
} from "./history.ts";
import { HistoryKeeper } from "./keeper.ts";

/** Milliseconds until what has ended is written; until a run is written that still goes on; between two signs of life. */
const DELAY = 50;
const LONG = 1_000;
const SIGN = 10_000;
/** Rows and characters of one commit, so that none of them holds the others up. */
const ROWS = 500;
const CONTENT = 4 * 1024 * 1024;
/** Rows and characters that wait for the store: from the first on runs wait too, from the second on the oldest are lost. */
const WAITING = { rows: 5_000, content: 32 * 1024 * 1024 };
const MOST = { rows: 20_000, content: 96 * 1024 * 1024 };

/** `HistoryRun.place`: the run has a row that says it is running. */
const MARKED = 1;

type Put = [key: string, value: string];

interface Recorded {
  readonly agentId: string;
  readonly run: HistoryRun;
}

export interface StoredHistoriesOptions {
  agents: readonly string[];
  /** Milliseconds. */
  retention: number;
  logger: Logger;
  /** Whether runs belong to users, so that those of one are to be found. */
  isolated?: boolean;
}

export class StoredHistories implements HistoryOfAgents {
  readonly #store: Store;
  readonly #logger: Logger;
  readonly #isolated: boolean;
  readonly #keeper: HistoryKeeper;
  /** Runs that go on, by the time of their beginning: without a row, and with one. */
  readonly #young = new Map<HistoryRun, string>();
  readonly #marked = new Map<HistoryRun, string>();
  /** Runs that have ended, to be written. */
  #ended: Recorded[] = [];
  #content = 0;
  #timer: NodeJS.Timeout | null = null;
  #flushing: Promise<void> | null = null;
  #failing = false;
  #lost = 0;
  #sign = 0;
  #closed = false;

  constructor(store: Store, options: StoredHistoriesOptions) {
    this.#store = store;
    this.#logger = options.logger;
    this.#isolated = options.isolated ?? false;
    this.#keeper = new HistoryKeeper(store, options);
  }

  start(): Promise<void> {
    return this.#keeper.start();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#keeper.close();
    await this.#flush(false);
    if (this.#ended.length > 0) {
      this.#logger.error({ runs: this.#ended.length }, "the store does not take the history: its last runs are lost");
    }
  }

  of(agentId: string): History {
    return {
      begin: (id, input, memory, traceId) => this.#begin(agentId, beginHistoryRun(id, input, memory, traceId)),
      end: (run, status, outcome, error) => this.#end(agentId, run, status, outcome, error),
      page: (page, limit, owner) => this.#page(agentId, page, limit, owner),
    };
  }

  #begin(agentId: string, run: HistoryRun): HistoryRun {
    this.#young.set(run, agentId);
    if (this.#timer === null) this.#arm(LONG);
    return run;
  }

  #end(agentId: string, run: HistoryRun, status: Ended, outcome: RunResult, error: unknown): Promise<void> | undefined {
    endHistoryRun(run, status, outcome, error);
    if (!this.#young.delete(run)) this.#marked.delete(run);
    if (this.#ended.length === 0 && this.#flushing === null) this.#arm(DELAY);
    this.#ended.push({ agentId, run });
    this.#content += run.size;
    if (this.#ended.length < WAITING.rows && this.#content < WAITING.content) return undefined;
    if (!this.#failing) return this.#flush(false);
    this.#drop();
    return undefined;
  }

  /** Reads what the store says, after it has been told all that is known here. */
  async #page(agentId: string, page: number, limit: number, owner?: string): Promise<Serialized> {
    await this.#flush(true);
    const skip = page * limit;
    if (skip > MAX_SKIPPED_ROWS) throw invalid(`page: more than ${MAX_SKIPPED_ROWS} runs cannot be passed over`);
    const everybody = owner === undefined;
    const counter = everybody ? historyTotal(agentId) : ownHistoryTotal(agentId, owner);
    const prefix = everybody ? historyRows(agentId) : ownHistoryRows(agentId, owner);
    const total = Number((await this.#store.get(counter))?.value ?? 0);
    const rows = skip >= total ? [] : await this.#store.scan({ prefix, reverse: true, limit, skip });
    const found = everybody ? rows : await this.#store.getMany(rows.map(({ key }) => historyKeyOfOwn(key)));
    const entries = found.flatMap((row) => (row === undefined ? [] : [row.value])).join(",");
    return new Serialized(`{"entries":[${entries}],"total":${total},"page":${page},"limit":${limit}}`);
  }

  #arm(delay: number): void {
    if (this.#closed) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#flush(false);
    }, delay);
    this.#timer.unref();
  }

  /**
   * Writes all that has ended, and the runs that take long. Never rejects.
   *
   * @param everything whether runs that have only just begun are written too
   */
  async #flush(everything: boolean): Promise<void> {
    while (this.#flushing !== null) await this.#flushing;
    this.#flushing = this.#write(everything);
    await this.#flushing;
    this.#flushing = null;
    if (this.#ended.length > 0) this.#arm(this.#failing ? LONG : DELAY);
    else if (this.#young.size > 0) this.#arm(LONG);
    else if (this.#marked.size > 0) this.#arm(SIGN);
  }

  async #write(everything: boolean): Promise<void> {
    try {
      while (this.#ended.length > 0) await this.#writeEnded();
      await this.#writeRunning(everything ? Number.POSITIVE_INFINITY : storedTime() - LONG);
      if (this.#failing) this.#logger.info({ lost: this.#lost }, "the history is written again");
      this.#failing = false;
      this.#lost = 0;
    } catch (error) {
      if (!this.#failing) this.#logger.error({ err: error }, `the history cannot be written: ${messageOf(error)}`);
      this.#failing = true;
    }
  }

  async #writeEnded(): Promise<void> {
    let content = 0;
    let count = 0;
    while (count < this.#ended.length && count < ROWS && content < CONTENT) content += this.#ended[count++]!.run.size;
    const group = this.#ended.slice(0, count);
    const put: Put[] = [];
    const over: string[] = [];
    const totals = new Map<string, number>();
    for (const { agentId, run } of group) {
      put.push([historyKey(agentId, run.startTime, run.id), JSON.stringify(historyEntry(agentId, run))]);
      if (run.place === MARKED) over.push(openRunKey(run.id));
      else this.#count(agentId, run, put, totals);
    }
    await this.#store.commit({ put, delete: over, add: [...totals] });
    // Only the front: more may have ended meanwhile, and when the store failed long enough the oldest have been dropped.
    const written = new Set(group);
    this.#ended = this.#ended.filter((recorded) => !written.has(recorded));
    for (const { run } of group) this.#content -= run.size;
  }

  /** @param before time of beginning from which on a run is too young to be worth a row */
  async #writeRunning(before: number): Promise<void> {
    const now = Date.now();
    const put: Put[] = [];
    const totals = new Map<string, number>();
    const marked: [HistoryRun, string][] = [];
    for (const [run, agentId] of this.#young) {
      if (run.startTime > before || marked.length === ROWS) break;
      const key = historyKey(agentId, run.startTime, run.id);
      put.push([key, JSON.stringify(historyEntry(agentId, run))], [openRunKey(run.id), openRow(key, now)]);
      this.#count(agentId, run, put, totals);
      marked.push([run, agentId]);
    }
    if (performance.now() - this.#sign >= SIGN) {
      this.#sign = performance.now();
      for (const [run, agentId] of this.#marked) {
        put.push([openRunKey(run.id), openRow(historyKey(agentId, run.startTime, run.id), now)]);
      }
    }
    if (put.length === 0) return;
    for (const [run] of marked) run.place = MARKED;
    try {
      await this.#store.commit({ put, add: [...totals] });
    } catch (error) {
      for (const [run] of marked) run.place = 0;
      throw error;
    }
    for (const [run, agentId] of marked) if (this.#young.delete(run)) this.#marked.set(run, agentId);
  }

  /** What is written beside the first row of a run. */
  #count(agentId: string, { userId = "", startTime, id }: HistoryRun, put: Put[], totals: Map<string, number>): void {
    const total = historyTotal(agentId);
    totals.set(total, (totals.get(total) ?? 0) + 1);
    if (!this.#isolated) return;
    const own = ownHistoryTotal(agentId, userId);
    totals.set(own, (totals.get(own) ?? 0) + 1);
    put.push([ownHistoryKey(agentId, userId, startTime, id), "1"]);
  }

  /** The store has been failing for long: the newest runs are worth more than the oldest. */
  #drop(): void {
    while (this.#ended.length > MOST.rows || (this.#content > MOST.content && this.#ended.length > 1)) {
      this.#content -= this.#ended.shift()!.run.size;
      this.#lost++;
    }
  }
}

const openRow = (key: string, seen: number) => JSON.stringify({ key, seen });
