/** The histories of all agents of a service, in memory or in the store. */
import type { Logger } from "pino";
import { isIsolated } from "../../identity/principal.ts";
import { storedTime, systemTime } from "../../lib/clock.ts";
import { invalid, messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import type { Serialized } from "../../lib/serialized.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { encodeNumber, MAX_SKIPPED_ROWS } from "../../storage/keys.ts";
import type { Membership } from "../../storage/membership.ts";
import { Orphans } from "../../storage/orphans.ts";
import { groupsBelow, longestOfMany, measuredRows, pagesInBackground, rowsInReply } from "../../storage/ranges.ts";
import { isVolatile, type Row, type Store, unlessConflict } from "../../storage/store.ts";
import type { RunResult } from "../run/run.ts";
import {
  type AgentHistories,
  beginHistoryRun,
  endHistoryRun,
  type FinalStatus,
  HISTORIES,
  type History,
  type HistoryRun,
  historyEntry,
  OPEN_RUNS,
  openRunKey,
  ringHistories,
  runEntry,
  runRows,
  runTotal,
} from "./history.ts";

/*
 * The history of all agents in the store. Runs do not wait for it: those that end are written together a moment later, and a
 * run that takes long gets a row while it runs. Such a row has a lease that heartbeats renew, so that another process can
 * tell that the run has died with its process.
 */

// Background work on the stored history: closes runs of dead processes, and deletes runs that are too old.

const INTERVAL_MS = 60_000;
const FIRST_ROUND_DELAY_MS = 5_000;
const ROWS_PER_COMMIT = 100;

interface HistoryMaintenanceOptions {
  /** Milliseconds for which runs are kept. */
  retention: number;
  logger: Logger;
  /** The processes that share the store; null when no other process uses it. */
  membership?: Membership | null;
}

/** The lease of a running run: the key of its row, the time of the last heartbeat, and the process that runs it. */
interface RunLease {
  readonly key: string;
  readonly seen: number;
  readonly process?: string | undefined;
}

const runLeaseText = (key: string, seen: number, process?: string): string =>
  JSON.stringify({ key, seen, process } satisfies RunLease);
const parseRunLease = (row: Row): RunLease => JSON.parse(row.value) as RunLease;

export class HistoryMaintenance {
  readonly #store: Store;
  /** The runs that processes have left. */
  readonly orphans: Orphans;
  readonly #rounds: Interval;

  constructor(store: Store, options: HistoryMaintenanceOptions) {
    this.#store = store;
    const failed = (error: unknown) =>
      options.logger.warn({ err: error }, `the maintenance of the history failed: ${messageOf(error)}`);
    this.orphans = new Orphans({
      store,
      membership: options.membership ?? null,
      prefix: OPEN_RUNS,
      processOf: (lease) => parseRunLease(lease).process ?? "",
      end: (lease) => this.#closeRun(lease),
      failed,
    });
    this.#rounds = new Interval(
      INTERVAL_MS,
      async () => {
        await this.orphans.look();
        await this.deleteRunsBefore(Math.max(0, systemTime() - options.retention));
      },
      failed,
    );
  }

  async start(): Promise<void> {
    await this.orphans.start();
    this.#rounds.start(FIRST_ROUND_DELAY_MS);
  }

  async close(): Promise<void> {
    const closed = this.orphans.close();
    await this.#rounds.stop();
    await closed;
  }

  /** Marks an open run as interrupted. */
  async #closeRun(lease: Row): Promise<void> {
    const { key, seen } = parseRunLease(lease);
    const row = await this.#store.get(key);
    const put: [string, string][] = [];
    if (row !== undefined) {
      const entry = JSON.parse(row.value) as Record<string, unknown>;
      if (entry.status === "running") {
        const closed = { ...entry, status: "error", endTime: new Date(seen).toISOString(), error: "interrupted" };
        put.push([key, JSON.stringify(closed)]);
      }
    }
    await unlessConflict(this.#store.commit({ put, delete: [lease.key], expect: [[lease.key, lease.revision]] }));
  }

  /** Deletes runs that started before `time` (milliseconds since 1970), a page at a time, including those of undeclared agents. */
  async deleteRunsBefore(time: number): Promise<void> {
    const { signal } = this.#rounds;
    for await (const prefix of groupsBelow(this.#store, HISTORIES)) {
      const range = { prefix, before: prefix + encodeNumber(time) };
      for await (const rows of pagesInBackground(this.#store, range, ROWS_PER_COMMIT, signal)) {
        const own = await this.#ownRows(prefix, rows);
        const totals = new Map([[runTotal(prefix), -rows.length]]);
        for (const total of own.values()) totals.set(total, (totals.get(total) ?? 0) - 1);
        // Two processes may delete the same runs at once: only one of them may correct the totals.
        const expect = rows.map((row): [string, number] => [row.key, row.revision]);
        const keys = [...rows.map((row) => row.key), ...own.keys()];
        await unlessConflict(this.#store.commit({ delete: keys, add: [...totals], expect }));
      }
      if (signal.aborted) return;
    }
  }

  /** The keys of these runs in the index by user, and the counter of each. Most stores have none. */
  async #ownRows(prefix: string, rows: readonly Row[]): Promise<Map<string, string>> {
    const agent = prefix.split("/")[1]!;
    const totals = new Map<string, string>();
    for (const { key, value } of rows) {
      const own = runRows(agent, (JSON.parse(value) as { userId?: string }).userId ?? "");
      totals.set(own + key.slice(prefix.length), runTotal(own));
    }
    const found = await this.#store.getMany([...totals.keys()]);
    return new Map(found.flatMap((row) => (row === undefined ? [] : [[row.key, totals.get(row.key)!]])));
  }
}

/** Delay after which ended runs are written together. */
const WRITE_DELAY_MS = 50;
/** A run that takes longer than this gets a row while it runs, at the latest after twice the time. */
const LONG_RUN_MS = 500;
const RETRY_DELAY_MS = 1_000;
const HEARTBEAT_INTERVAL_MS = 10_000;
/** Most rows and characters of one commit, so that no commit delays the others for long. */
const COMMIT_LIMIT = { rows: 500, content: 4 * 1024 * 1024 };
/** Rows and characters waiting to be written: above this, runs wait until they are written (back-pressure). */
const WAIT_LIMIT = { rows: 5_000, content: 32 * 1024 * 1024 };
/** Rows and characters kept while the store fails; above this the oldest runs are dropped. */
const QUEUE_LIMIT = { rows: 20_000, content: 96 * 1024 * 1024 };

/** Value of `HistoryRun.position` for a run that has a row. */
const HAS_ROW = 1;

type Put = [key: string, value: string];

interface Recorded {
  readonly agentId: string;
  readonly run: HistoryRun;
}

interface StoredHistoriesOptions {
  /** Milliseconds for which runs are kept. */
  retention: number;
  logger: Logger;
  /** Whether users see only their own runs, which needs an index by user. */
  isolated?: boolean;
  /** The processes that share the store; null when no other process uses it. */
  membership?: Membership | null;
}

export class StoredHistories implements AgentHistories {
  readonly #store: Store;
  readonly #logger: Logger;
  readonly #isolated: boolean;
  readonly #membership: Membership | null;
  readonly #maintenance: HistoryMaintenance;
  /** When the leases of runs with a row were renewed, by `performance.now()`. */
  #renewed = Number.NEGATIVE_INFINITY;
  /** Agent ids of unfinished runs, oldest first: this map has those without a row, the next one those with a row. */
  readonly #withoutRow = new Map<HistoryRun, string>();
  readonly #withRow = new Map<HistoryRun, string>();
  /** Runs that have ended and are not written yet. */
  #ended: Recorded[] = [];
  #content = 0;
  #timer: NodeJS.Timeout | null = null;
  /** When the timer fires, on the clock of `performance.now()`. */
  #due = 0;
  #flushing: Promise<void> | null = null;
  #failing = false;
  #dropped = 0;
  #closed = false;

  constructor(store: Store, options: StoredHistoriesOptions) {
    this.#store = store;
    this.#logger = options.logger;
    this.#isolated = options.isolated ?? false;
    this.#membership = options.membership ?? null;
    this.#maintenance = new HistoryMaintenance(store, options);
  }

  start(): Promise<void> {
    return this.#maintenance.start();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#maintenance.close();
    await this.#flush(false);
    if (this.#ended.length > 0) {
      this.#logger.error({ runs: this.#ended.length }, "the history could not be written: its last runs are lost");
    }
  }

  forAgent(agentId: string): History {
    return {
      begin: (id, input, memory, traceId, startTime) =>
        this.#begin(agentId, beginHistoryRun(id, input, memory, traceId, startTime)),
      end: (run, status, outcome, error) => this.#end(agentId, run, status, outcome, error),
      page: (page, limit, owner) => this.#page(agentId, page, limit, owner),
    };
  }

  #begin(agentId: string, run: HistoryRun): HistoryRun {
    this.#withoutRow.set(run, agentId);
    if (this.#withoutRow.size === 1) this.#schedule(LONG_RUN_MS);
    return run;
  }

  #end(
    agentId: string,
    run: HistoryRun,
    status: FinalStatus,
    outcome: RunResult,
    error: unknown,
  ): Promise<void> | undefined {
    endHistoryRun(run, status, outcome, error);
    if (!this.#withoutRow.delete(run)) this.#withRow.delete(run);
    if (this.#ended.length === 0 && this.#flushing === null) this.#schedule(WRITE_DELAY_MS);
    this.#ended.push({ agentId, run });
    this.#content += run.size;
    if (this.#ended.length < WAIT_LIMIT.rows && this.#content < WAIT_LIMIT.content) return undefined;
    if (!this.#failing) return this.#flush(false);
    this.#dropOldest();
    return undefined;
  }

  /** Reads a page from the store, after everything recorded in this process has been written. */
  async #page(agentId: string, page: number, limit: number, owner?: string): Promise<Serialized> {
    await this.#flush(true);
    const skip = page * limit;
    if (skip > MAX_SKIPPED_ROWS) throw invalid(`page: more than ${MAX_SKIPPED_ROWS} runs cannot be skipped`);
    const prefix = runRows(agentId, owner);
    const total = Number((await this.#store.get(runTotal(prefix)))?.value ?? 0);
    const longest = longestOfMany(limit);
    const rows = skip >= total ? [] : await this.#store.scan({ prefix, reverse: true, limit, skip, longest });
    const keys = rows.map(({ key }) => runRows(agentId) + key.slice(prefix.length));
    const found = owner === undefined ? rows : await measuredRows(this.#store, keys);
    return rowsInReply(this.#store, found, '{"entries":[', `],"total":${total},"page":${page},"limit":${limit}}`);
  }

  /** Schedules a flush, unless an earlier one is due. */
  #schedule(delay: number): void {
    const due = performance.now() + delay;
    if (this.#closed || (this.#timer !== null && this.#due <= due)) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#flush(false);
    }, delay);
    this.#timer.unref();
  }

  /**
   * Writes all runs that have ended, and those that take long. Never rejects.
   *
   * @param everything whether runs that have just started are written too
   */
  async #flush(everything: boolean): Promise<void> {
    while (this.#flushing !== null) await this.#flushing;
    this.#flushing = this.#write(everything);
    await this.#flushing;
    this.#flushing = null;
    if (this.#ended.length > 0) this.#schedule(this.#failing ? RETRY_DELAY_MS : WRITE_DELAY_MS);
    else if (this.#withoutRow.size > 0) this.#schedule(LONG_RUN_MS);
    else if (this.#withRow.size > 0) this.#schedule(HEARTBEAT_INTERVAL_MS);
  }

  async #write(everything: boolean): Promise<void> {
    try {
      while (this.#ended.length > 0) await this.#writeEnded();
      await this.#writeRunning(everything ? Number.POSITIVE_INFINITY : storedTime() - LONG_RUN_MS);
      if (this.#failing) this.#logger.info({ lost: this.#dropped }, "the history can be written again");
      this.#failing = false;
      this.#dropped = 0;
    } catch (error) {
      if (!this.#failing) this.#logger.error({ err: error }, `the history cannot be written: ${messageOf(error)}`);
      this.#failing = true;
    }
  }

  async #writeEnded(): Promise<void> {
    let content = 0;
    let count = 0;
    while (count < this.#ended.length && count < COMMIT_LIMIT.rows && content < COMMIT_LIMIT.content)
      content += this.#ended[count++]!.run.size;
    const batch = this.#ended.slice(0, count);
    const put: Put[] = [];
    const closedLeases: string[] = [];
    const totals = new Map<string, number>();
    for (const { agentId, run } of batch) {
      put.push([runRows(agentId) + runEntry(run.startTime, run.id), JSON.stringify(historyEntry(agentId, run))]);
      if (run.position === HAS_ROW) closedLeases.push(openRunKey(run.id));
      else this.#addFirstRow(agentId, run, put, totals);
    }
    await this.#store.commit({ put, delete: closedLeases, add: [...totals] });
    // Meanwhile more runs may have ended, and while the store fails the oldest may have been dropped.
    const written = new Set(batch);
    this.#ended = this.#ended.filter((recorded) => !written.has(recorded));
    for (const { run } of batch) this.#content -= run.size;
  }

  /** Writes rows of runs that started before `before`, and renews the leases of runs that have a row. */
  async #writeRunning(before: number): Promise<void> {
    const now = Date.now();
    const put: Put[] = [];
    const totals = new Map<string, number>();
    const begun: [HistoryRun, string][] = [];
    for (const [run, agentId] of this.#withoutRow) {
      if (run.startTime > before || begun.length === COMMIT_LIMIT.rows) break;
      const key = runRows(agentId) + runEntry(run.startTime, run.id);
      put.push(
        [key, JSON.stringify(historyEntry(agentId, run))],
        [openRunKey(run.id), runLeaseText(key, now, this.#membership?.name)],
      );
      this.#addFirstRow(agentId, run, put, totals);
      begun.push([run, agentId]);
    }
    if (performance.now() - this.#renewed >= HEARTBEAT_INTERVAL_MS) {
      this.#renewed = performance.now();
      for (const [run, agentId] of this.#withRow) {
        put.push([
          openRunKey(run.id),
          runLeaseText(runRows(agentId) + runEntry(run.startTime, run.id), now, this.#membership?.name),
        ]);
      }
    }
    if (put.length === 0) return;
    for (const [run] of begun) run.position = HAS_ROW;
    try {
      await this.#store.commit({ put, add: [...totals] });
    } catch (error) {
      for (const [run] of begun) run.position = 0;
      throw error;
    }
    for (const [run, agentId] of begun) if (this.#withoutRow.delete(run)) this.#withRow.set(run, agentId);
  }

  /** Adds the rows that accompany the first row of a run: totals, and the index by user. */
  #addFirstRow(
    agentId: string,
    { userId = "", startTime, id }: HistoryRun,
    put: Put[],
    totals: Map<string, number>,
  ): void {
    const all = runTotal(runRows(agentId));
    totals.set(all, (totals.get(all) ?? 0) + 1);
    if (!this.#isolated) return;
    const rows = runRows(agentId, userId);
    totals.set(runTotal(rows), (totals.get(runTotal(rows)) ?? 0) + 1);
    put.push([rows + runEntry(startTime, id), "1"]);
  }

  /** Called while the store fails: the newest runs are worth more than the oldest. */
  #dropOldest(): void {
    while (this.#ended.length > QUEUE_LIMIT.rows || (this.#content > QUEUE_LIMIT.content && this.#ended.length > 1)) {
      this.#content -= this.#ended.shift()!.run.size;
      this.#dropped++;
    }
  }
}

interface HistoryParts {
  readonly store: Store;
  readonly logger: Logger;
  /** The processes that share the store. */
  readonly membership?: Membership | null;
}

/** A volatile store would lose the history with the process anyway, so a ring buffer in memory is enough. */
export function openHistories(manifest: Manifest, { store, logger, membership = null }: HistoryParts): AgentHistories {
  if (isVolatile(store)) return ringHistories();
  return new StoredHistories(store, {
    // A getter, because a reload may change it: it is read in every round.
    get retention() {
      return manifest.history.retention;
    },
    logger,
    isolated: isIsolated(manifest),
    membership,
  });
}
