/**
 * What a process of a shared store does about executions of the other processes: it recovers those of dead processes, and carries out
 * the stop requests for its own. A single execution needs no lease of its own: its open row names its process, and every commit to its
 * journal expects that row to be unchanged.
 */
import { messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import type { Membership, MembershipTimes } from "../../storage/membership.ts";
import type { Engine } from "../engine.ts";
import { recoverExecutions } from "./recovery.ts";
import { StopRequests, stopsAsked } from "./stop-requests.ts";

/** All in milliseconds. */
export interface ProcessTimes extends MembershipTimes {
  /** Pause between two reads of the stop requests that other processes have written. */
  readonly stopRequestInterval: number;
}

const STOP_REQUEST_INTERVAL_MS = 250;
/** Pause between two checks whether there is anything to recover; the check is cheap. */
const CHECK_INTERVAL_MS = 250;
/** After this many heartbeats all open executions are read, even if every process lives: usually there is nothing to recover. */
const HEARTBEATS_PER_FULL_SCAN = 60;

export class Processes {
  readonly #engine: Engine;
  readonly #membership: Membership;
  readonly #stopRequests: StopRequests;
  readonly #recovery: Interval;
  readonly #fullScanInterval: number;
  /** Whether there may be executions to recover that no scan has looked for yet. */
  #recoveryDue = true;
  #lastScan = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(engine: Engine, membership: Membership, stopRequestInterval = STOP_REQUEST_INTERVAL_MS) {
    const { heartbeatInterval } = membership.times;
    this.#engine = engine;
    this.#membership = membership;
    this.#fullScanInterval = HEARTBEATS_PER_FULL_SCAN * heartbeatInterval;
    this.#stopRequests = new StopRequests(engine, stopRequestInterval);
    this.#recovery = new Interval(
      Math.min(CHECK_INTERVAL_MS, heartbeatInterval),
      () => this.#recover(),
      (error) =>
        engine.logger.warn({ err: error }, `what other processes left could not be taken over: ${messageOf(error)}`),
    );
    membership.onGone(() => {
      this.#recoveryDue = true;
    });
  }

  async start(): Promise<void> {
    await this.#membership.start();
    // The boot does not wait for executions that have to wait for a free slot.
    await Promise.race([this.#recovery.begin(), this.#engine.capacity.full]);
    await this.#stopRequests.start();
  }

  /** Stops recovering executions, but keeps the lease. */
  stopRecovering(): void {
    this.#stopped = true;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all([this.#recovery.stop(), this.#stopRequests.close()]);
  }

  /** Recovers the executions of dead processes. */
  async #recover(): Promise<void> {
    if (!(await this.#isDue()) || this.#stopped) return;
    this.#recoveryDue = false;
    this.#engine.mayHaveUnowned = false;
    this.#lastScan = performance.now();
    try {
      await this.#recoverAll();
    } catch (error) {
      this.#recoveryDue = true;
      throw error;
    }
  }

  async #isDue(): Promise<boolean> {
    const { mayHaveUnowned, leftAlone, store } = this.#engine;
    if (this.#recoveryDue || mayHaveUnowned) return true;
    if (performance.now() - this.#lastScan >= this.#fullScanInterval) return true;
    // No process runs the executions that were left alone, but they can be stopped.
    return leftAlone.size > 0 && (await stopsAsked(store, leftAlone)).length > 0;
  }

  async #recoverAll(): Promise<void> {
    const count = await recoverExecutions(this.#engine, this.#membership.goneCheck(), () => this.#stopped);
    if (count > 0) this.#engine.logger.info({ executions: count }, "recovered executions of a process that is gone");
  }
}
