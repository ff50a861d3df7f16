/**
 * The processes that share a store. Each has a row, its lease, and writes a heartbeat to it from time to time. A process whose heartbeats
 * stop is taken for gone: the row is removed first, and only then what it left is taken over. Every heartbeat expects the row as it was
 * written last, so that a process which was taken for gone and lives finds out with its next heartbeat. By its own clock it knows
 * sooner that it may have been: once its last heartbeat is so old that others could have removed the row, it begins nothing new before
 * it has written another.
 */

import { createHash, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { PROCESSES, processKey, processOfKey } from "./keys.ts";
import { allRows } from "./ranges.ts";
import { type Row, removeUnchanged, type Store } from "./store.ts";

/*
 * Names of processes in a shared store. A name says where its process runs, so that another process at the same place can tell for
 * certain whether it has ended: what a killed process left is then taken up at once, without waiting for a lease to run out.
 */

const PLACE = /^([0-9a-f]{16})\.(\d+)\.(\d+)\./;
/** States of a process that does nothing any more: its parent has not asked for its exit code yet. */
const ENDED_STATES = /^[ZX]$/;

interface ProcessState {
  readonly state: string;
  /** When it started, in ticks since the boot of the machine: a later process with the same number has another. */
  readonly started: string;
}

/** A new name for this process; no two are alike. */
export function nameProcess(): string {
  const place = placeOfThisProcess();
  const started = place === null ? undefined : readState(process.pid)?.started;
  const unique = randomBytes(9).toString("hex");
  return place === null || started === undefined ? unique : `${place}.${process.pid}.${started}.${unique}`;
}

/** Whether the process with this name has ended for certain. False for those at other places, about which nothing is known here. */
export function hasEnded(name: string): boolean {
  const [, place, pid, started] = PLACE.exec(name) ?? [];
  if (place === undefined || place !== placeOfThisProcess()) return false;
  if (!exists(Number(pid))) return true;
  const found = readState(Number(pid));
  return found !== null && (found.started !== started || ENDED_STATES.test(found.state));
}

/** Where process numbers mean the same: one run of one machine, one container. Null where that cannot be told. */
function placeOfThisProcess(): string | null {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8");
    const numbers = readlinkSync("/proc/self/ns/pid");
    return createHash("sha256").update(`${hostname()}\n${boot}\n${numbers}`).digest("hex").slice(0, 16);
  } catch {
    return null;
  }
}

/** Another user's process may be hidden in /proc, but not from this. */
function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

/** Null when it cannot be read. */
function readState(pid: number): ProcessState | null {
  try {
    // The name of the program comes before, in parentheses, and may hold anything.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return { state: fields[0]!, started: fields[19]! };
  } catch {
    return null;
  }
}

interface SeenRow {
  readonly revision: number;
  /** When it was first seen with that revision, in milliseconds of the reader's own clock. */
  readonly since: number;
}

/** Readings further apart than this share of the time that counts say nothing about what happened in between. */
const GAP_SHARE = 1 / 3;

/**
 * Rows that are silent: they were read again and again, and have not changed for `timeout` milliseconds of the reader's own clock. A gap
 * between two readings begins the count anew, for all rows: when the store could not be read, nobody could write to it either.
 */
export class Silence {
  readonly #timeout: number;
  #seen: ReadonlyMap<string, SeenRow> = new Map();
  #last = Number.NEGATIVE_INFINITY;

  constructor(timeout: number) {
    this.#timeout = timeout;
  }

  /**
   * @param rows as they were read just now
   * @param now of a clock that no one sets, in milliseconds
   * @returns those that are silent
   */
  after(rows: readonly Row[], now: number): Row[] {
    const before = now - this.#last > this.#timeout * GAP_SHARE ? new Map<string, SeenRow>() : this.#seen;
    const seen = new Map<string, SeenRow>();
    const silent: Row[] = [];
    for (const row of rows) {
      const known = before.get(row.key);
      const since = known?.revision === row.revision ? known.since : now;
      seen.set(row.key, { revision: row.revision, since });
      if (now - since >= this.#timeout) silent.push(row);
    }
    this.#seen = seen;
    this.#last = now;
    return silent;
  }
}

/** All in milliseconds. */
export interface MembershipTimes {
  /** Between two heartbeats, and between two looks at those of the others. */
  readonly heartbeatInterval: number;
  /** A process that wrote no heartbeat for so long is taken for gone. */
  readonly leaseTimeout: number;
  /** The same for one that has lost its session with the database as well. */
  readonly sessionTimeout?: number;
}

/** Others count from when they have seen a heartbeat, up to an interval after it: so it is 10 s in all. */
const DEFAULT_TIMES: MembershipTimes = { heartbeatInterval: 1_000, leaseTimeout: 9_000 };
/** Enough heartbeats to make a new session after the database was restarted. */
const HEARTBEATS_WITHOUT_SESSION = 6;

const ROWS_PER_READ = 1_000;
const RETRY_PAUSE_MS = 250;

interface MembershipOptions {
  readonly logger: Logger;
  readonly times?: MembershipTimes | undefined;
  /** Makes a name for this process; default: one by which others at the same place know it. */
  name?(): string;
}

/** The value of the row of a process. */
interface Heartbeat {
  /** When it was written, for people: its clock may be wrong. */
  readonly at: number;
  /** Whether the process shows itself by a session too. */
  readonly session?: true;
  /** What it is at work on, as it says itself. */
  readonly busy?: readonly string[];
}

export class Membership {
  /** Tells what this process is at work on, for `busyElsewhere`. */
  busy: () => readonly string[] = () => [];
  readonly times: MembershipTimes & { readonly sessionTimeout: number };
  readonly #store: Store;
  readonly #logger: Logger;
  readonly #newName: () => string;
  readonly #silent: Silence;
  readonly #silentWithoutSession: Silence;
  readonly #rounds: Interval;
  readonly #goneListeners: (() => void)[] = [];
  readonly #lostListeners: (() => void)[] = [];
  #name: string;
  /** That of its row: another one from when it hears that it was taken for gone. What names a process without a row is taken for left. */
  #next: string;
  /** Of its own row, as it was last written or read; null before there is one. */
  #revision: number | null = null;
  #confirmedAt: Moment | null = null;
  #others: ReadonlySet<string> = new Set();
  #starting: Promise<void> | null = null;
  #beating: Promise<void> | null = null;
  /** Whether it was shown by a session when it last looked after that, which is under way unless it is null. */
  #isShown = false;
  #showing: Promise<void> | null = null;
  #isReleased = false;
  #endWatch: (() => void) | undefined;

  constructor(store: Store, { logger, times = DEFAULT_TIMES, name = nameProcess }: MembershipOptions) {
    const { heartbeatInterval, leaseTimeout } = times;
    this.#store = store;
    this.#logger = logger;
    this.#newName = name;
    this.#name = name();
    this.#next = this.#name;
    this.times = { sessionTimeout: Math.min(leaseTimeout, HEARTBEATS_WITHOUT_SESSION * heartbeatInterval), ...times };
    this.#silent = new Silence(leaseTimeout);
    this.#silentWithoutSession = new Silence(this.times.sessionTimeout);
    this.#rounds = new Interval(
      heartbeatInterval,
      () => this.#round(),
      (error) => logger.warn({ err: error }, `the heartbeat of this process cannot be written: ${messageOf(error)}`),
    );
  }

  /** What this process is called in the store. Another name after it was taken for gone, once it has a row of that name. */
  get name(): string {
    return this.#name;
  }

  /** Writes the first heartbeat, and looks at the other processes. A second call does nothing more. */
  start(): Promise<void> {
    // Others have stopped, or were taken for gone.
    this.#endWatch ??= this.#store.watch?.(PROCESSES, () => this.#rounds.hurry());
    this.#starting ??= this.#rounds.begin();
    return this.#starting;
  }

  /** Whether no other process can have taken this one for gone, as far as its own clocks tell. */
  isHeld(): boolean {
    return this.#confirmedAt !== null && elapsedSince(this.#confirmedAt) < this.times.sessionTimeout;
  }

  /** Whether it has given its lease back, so long ago that others have what it was at work on. */
  get isOver(): boolean {
    return this.#isReleased && !this.isHeld();
  }

  /** Resolves once a new heartbeat shows that this process was not taken for gone, once it has given up its work, and when `signal` aborts. */
  async confirm(signal: AbortSignal): Promise<void> {
    while (!this.isHeld() && !signal.aborted) {
      if (this.#isReleased) return this.#leave();
      await this.#beat().catch(() => sleep(RETRY_PAUSE_MS, undefined, { signal }).catch(() => {}));
    }
  }

  /** Tells of names whether their processes, other than this one, are gone for good. To be asked for anew with each look. */
  goneCheck(): (name: string) => Promise<boolean> {
    const known = new Map<string, Promise<boolean>>();
    return (name) => {
      const gone = known.get(name) ?? this.#isGone(name);
      known.set(name, gone);
      return gone;
    };
  }

  /** A process writes its first heartbeat before anything names it. */
  async #isGone(name: string): Promise<boolean> {
    return name !== this.#name && (await this.#store.get(processKey(name))) === undefined;
  }

  /** Calls `listener` whenever another process is gone: it has stopped, or was taken for gone by any process. */
  onGone(listener: () => void): void {
    this.#goneListeners.push(listener);
  }

  /** Calls `listener` when this process was taken for gone, and again when it has another name: what it was at work on is left to others. */
  onLost(listener: () => void): void {
    this.#lostListeners.push(listener);
  }

  /** What other processes are at work on, as of their last heartbeats. */
  async busyElsewhere(): Promise<ReadonlySet<string>> {
    const rows = await this.#otherRows();
    return new Set(rows.flatMap(({ value }) => parseHeartbeat(value).busy ?? []));
  }

  /** Gives the lease back: others take over at once what this process has left. A second call does nothing more. */
  async release(): Promise<void> {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#endWatch?.();
    await this.#rounds.stop();
    await this.#beating?.catch(() => {});
    if (this.#revision === null) return;
    await this.#store.commit({ delete: [processKey(this.#name)] }).catch(() => {});
    this.#store.wake?.(PROCESSES);
  }

  async #round(): Promise<void> {
    // A look counts only where this process can write as well: otherwise the silence may be that of the store.
    await this.#beat();
    await this.#look();
  }

  /** One heartbeat at a time. */
  #beat(): Promise<void> {
    this.#beating ??= this.#write().finally(() => {
      this.#beating = null;
    });
    return this.#beating;
  }

  async #write(): Promise<void> {
    this.#showing ??= this.#show();
    // Later heartbeats do not wait for a session that does not answer.
    if (this.#revision === null) await this.#showing;
    const session = this.#isShown;
    const busy = this.busy();
    const heartbeat: Heartbeat = { at: Date.now(), ...(session && { session }), ...(busy.length > 0 && { busy }) };
    const begun = moment();
    const key = processKey(this.#next);
    try {
      this.#revision = await this.#store.commit({
        put: [[key, JSON.stringify(heartbeat)]],
        expect: [[key, this.#revision]],
      });
      this.#confirmedAt = begun;
      if (this.#name === this.#next) return;
      // What has begun since is in the store under the name before.
      this.#name = this.#next;
      this.#leave();
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      const row = await this.#store.get(key);
      if (this.#isReleased) return;
      // A heartbeat happened of which this process did not hear: nobody else writes this row.
      if (row !== undefined) this.#revision = row.revision;
      else if (this.#revision !== null) this.#lose();
      await this.#write();
    }
  }

  async #show(): Promise<void> {
    this.#isShown = (await this.#store.presence?.show(this.#next)) === true;
    this.#showing = null;
  }

  #lose(): void {
    this.#logger.warn(
      "this process was silent for so long that another one has taken it for gone: it gives up what it was at work on",
    );
    this.#next = this.#newName();
    this.#revision = null;
    this.#confirmedAt = null;
    this.#leave();
  }

  #leave(): void {
    for (const listener of this.#lostListeners) listener();
  }

  async #look(): Promise<void> {
    const rows = await this.#otherRows();
    const claimed = rows.filter(({ value }) => parseHeartbeat(value).session === true);
    const shown =
      claimed.length === 0 ? null : await this.#store.presence?.shown(claimed.map(({ key }) => processOfKey(key)));
    const withoutSession = shown == null ? [] : claimed.filter(({ key }) => !shown.has(processOfKey(key)));
    const now = performance.now();
    const gone = new Set([
      ...this.#silent.after(rows, now),
      ...this.#silentWithoutSession.after(withoutSession, now),
      ...rows.filter(({ key }) => hasEnded(processOfKey(key))),
    ]);
    // One that has written another heartbeat meanwhile keeps its lease.
    for (const row of gone) if (!(await removeUnchanged(this.#store, row))) gone.delete(row);
    const left = new Set(rows.filter((row) => !gone.has(row)).map(({ key }) => key));
    const hasChanged = gone.size > 0 || [...this.#others].some((key) => !left.has(key));
    this.#others = left;
    if (hasChanged) for (const listener of this.#goneListeners) listener();
  }

  async #otherRows(): Promise<Row[]> {
    const own = processKey(this.#name);
    const all: Row[] = [];
    for await (const rows of allRows(this.#store, { prefix: PROCESSES }, ROWS_PER_READ))
      all.push(...rows.filter(({ key }) => key !== own));
    return all;
  }
}

/** By two clocks: one stands still while the machine sleeps, the other may be set. */
type Moment = readonly [steady: number, system: number];

const moment = (): Moment => [performance.now(), Date.now()];
const elapsedSince = ([steady, system]: Moment): number => Math.max(performance.now() - steady, Date.now() - system);

/** A row in another form, as an earlier version wrote it, says nothing. */
function parseHeartbeat(value: string): Partial<Heartbeat> {
  try {
    return Object(JSON.parse(value));
  } catch {
    return {};
  }
}
