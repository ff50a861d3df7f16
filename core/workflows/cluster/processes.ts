/**
 * Processes that share a store. Each writes a heartbeat from time to time. When the heartbeats of one stop, its lease runs out, and
 * another process recovers the executions that it ran. A single execution needs no lease of its own: its open row names its process,
 * and every commit to its journal expects that row to be unchanged.
 */
import { messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import { removeUnchanged } from "../../storage/conflict.ts";
import { PROCESSES, processKey } from "../../storage/keys.ts";
import { Leases } from "../../storage/leases.ts";
import type { Row } from "../../storage/store.ts";
import type { Engine } from "../engine.ts";
import { recoverExecutions } from "./recovery.ts";
import { StopRequests } from "./stop-requests.ts";

/** All in milliseconds. */
export interface ProcessTimes {
  /** Between two heartbeats. */
  readonly heartbeatInterval: number;
  /** A process that wrote no heartbeat for so long is taken for dead. */
  readonly leaseTimeout: number;
  /** Between two reads of the stop requests that other processes have written. */
  readonly stopRequestInterval: number;
}

const DEFAULT_PROCESS_TIMES: ProcessTimes = {
  heartbeatInterval: 5_000,
  leaseTimeout: 30_000,
  stopRequestInterval: 250,
};
/** Its clock may differ from ours: only a process whose heartbeat has not changed during so many of our own is taken for dead. */
const UNCHANGED_HEARTBEATS = 3;
/** Every so many rounds all open executions are read, even when no process has gone: usually there is nothing to recover. */
const ROUNDS_PER_FULL_SCAN = 12;

export class Processes {
  readonly #engine: Engine;
  readonly #times: ProcessTimes;
  readonly #stopRequests: StopRequests;
  /** Apart from the recovery, so that however much there is to recover, no heartbeat is late. */
  readonly #heartbeats: Interval;
  readonly #recovery: Interval;
  readonly #leases: Leases;
  #round = 0;
  /** Whether there may be executions to recover that have not been looked for. */
  #recoveryDue = true;
  #stopped = false;

  constructor(engine: Engine, times: ProcessTimes = DEFAULT_PROCESS_TIMES) {
    this.#engine = engine;
    this.#times = times;
    this.#leases = new Leases(engine.store, { prefix: PROCESSES, readTime: Number });
    this.#stopRequests = new StopRequests(engine, times.stopRequestInterval);
    const failed = (what: string) => (error: unknown) =>
      engine.logger.warn({ err: error }, `${what}: ${messageOf(error)}`);
    this.#heartbeats = new Interval(
      times.heartbeatInterval,
      () => this.#writeHeartbeat(),
      failed("the heartbeat of this process cannot be written"),
    );
    this.#recovery = new Interval(
      times.heartbeatInterval,
      () => this.#recover(),
      failed("other processes could not be checked"),
    );
  }

  async start(): Promise<void> {
    await this.#writeHeartbeat();
    this.#heartbeats.start();
    // The start does not wait for executions that have to wait for a free slot.
    await Promise.race([this.#recovery.begin(), this.#engine.capacity.full]);
    await this.#stopRequests.start();
  }

  /** Recovers nothing from now on, but still writes heartbeats. */
  stopRecovering(): void {
    this.#stopped = true;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all([this.#heartbeats.stop(), this.#recovery.stop(), this.#stopRequests.close()]);
  }

  /** Removes the heartbeat, so that others may recover at once what is still open. */
  async deregister(): Promise<void> {
    await this.#engine.store.commit({ delete: [processKey(this.#engine.environment.process)] }).catch(() => {});
  }

  async #writeHeartbeat(): Promise<void> {
    const { store, environment } = this.#engine;
    await store.commit({ put: [[processKey(environment.process), String(Date.now())]] });
  }

  /** Recovers the executions of processes that are gone. */
  async #recover(): Promise<void> {
    const before = this.#leases.keys;
    const dead = await this.#deadProcesses();
    const { keys } = this.#leases;
    const hasDeregistered = [...before].some((key) => !keys.has(key));
    const isFullScan = ++this.#round % ROUNDS_PER_FULL_SCAN === 0;
    if (dead.length > 0 || hasDeregistered || isFullScan || this.#engine.mayHaveUnowned) this.#recoveryDue = true;
    if (!this.#recoveryDue || this.#stopped) return;
    this.#engine.mayHaveUnowned = false;
    await this.#recoverFrom(keys, new Set(dead.map(({ key }) => key)));
    if (this.#stopped) return;
    this.#recoveryDue = false;
    // A process that has written another heartbeat meanwhile keeps its lease.
    await Promise.all(dead.map((row) => removeUnchanged(this.#engine.store, row)));
  }

  async #recoverFrom(known: ReadonlySet<string>, dead: ReadonlySet<string>): Promise<void> {
    const { store, logger } = this.#engine;
    const gone = new Map([...known].map((key) => [key, dead.has(key)]));
    const isGone = async (process: string) => {
      const key = processKey(process);
      // A process that started after the reading wrote its heartbeat before it ran anything.
      if (!gone.has(key)) gone.set(key, (await store.get(key)) === undefined);
      return gone.get(key) === true;
    };
    const count = await recoverExecutions(this.#engine, isGone, () => this.#stopped);
    if (count > 0) logger.info({ executions: count }, "recovered executions of a process that is gone");
  }

  /** The leases that have run out. */
  async #deadProcesses(): Promise<Row[]> {
    const own = processKey(this.#engine.environment.process);
    const { heartbeatInterval, leaseTimeout } = this.#times;
    const dead: Row[] = [];
    const timeout = { sinceHeartbeat: leaseTimeout, unchanged: UNCHANGED_HEARTBEATS * heartbeatInterval };
    for await (const row of this.#leases.expired(timeout)) if (row.key !== own) dead.push(row);
    return dead;
  }
}
