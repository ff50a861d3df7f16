/**
 * Processes that share a store. Each says from time to time that it lives; what a silent one ran, another takes over. No write
 * is needed for a single execution: its open row names its process, and every commit to its journal expects that row.
 */
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import { PROCESSES, processKey } from "../../storage/keys.ts";
import type { Row } from "../../storage/store.ts";
import type { Engine } from "../engine.ts";
import { recoverExecutions } from "./recovery.ts";
import { StopRequests } from "./stop-requests.ts";

/** Milliseconds. */
export interface ProcessTimes {
  /** Between two signs of life. */
  readonly sign: number;
  /** After which a process without one is taken for dead. */
  readonly silence: number;
  /** Between two looks at what other processes want done with what runs here. */
  readonly orders: number;
}

export const PROCESS_TIMES: ProcessTimes = { sign: 5_000, silence: 30_000, orders: 250 };
const MOST = 1_000;
/** Signs of life of ours within which a process that seems dead shows none: its clock may be another. */
const WATCHED = 3;
/** Looks at the processes to one at everything that runs: usually none has left anything. */
const THOROUGH = 12;

export class Processes {
  readonly #engine: Engine;
  readonly #times: ProcessTimes;
  readonly #orders: StopRequests;
  /** Two, so that what there is to take over, however much, keeps no sign of life waiting. */
  readonly #signs: Interval;
  readonly #looks: Interval;
  /** By key: what the sign of life of another process was, and since when. */
  #seen = new Map<string, { value: string; since: number }>();
  #round = 0;
  /** Whether something may have been left that has not been looked for. */
  #due = true;
  #retired = false;

  constructor(engine: Engine, times: ProcessTimes = PROCESS_TIMES) {
    this.#engine = engine;
    this.#times = times;
    this.#orders = new StopRequests(engine, times.orders);
    const failed = (what: string) => (error: unknown) =>
      engine.logger.warn({ err: error }, `${what}: ${messageOf(error)}`);
    this.#signs = new Interval(
      times.sign,
      () => this.#sign(),
      failed("other processes cannot be told that this one lives"),
    );
    this.#looks = new Interval(times.sign, () => this.#look(), failed("other processes could not be looked for"));
  }

  async start(): Promise<void> {
    await this.#sign();
    this.#signs.start();
    // What has to wait for a place to go on keeps nobody else waiting.
    await Promise.race([this.#looks.begin(), this.#engine.room.full]);
    await this.#orders.start();
  }

  /** Takes nothing over any more, but lives. */
  retire(): void {
    this.#retired = true;
  }

  async stop(): Promise<void> {
    this.#retired = true;
    await Promise.all([this.#signs.stop(), this.#looks.stop(), this.#orders.close()]);
  }

  /** What it has left may be taken over at once. */
  async leave(): Promise<void> {
    await this.#engine.store.commit({ delete: [processKey(this.#engine.around.process)] }).catch(() => {});
  }

  async #sign(): Promise<void> {
    const { store, around } = this.#engine;
    await store.commit({ put: [[processKey(around.process), String(Date.now())]] });
  }

  /** Takes over what others have left. */
  async #look(): Promise<void> {
    const { store } = this.#engine;
    const known = this.#seen;
    const rows = await store.scan({ prefix: PROCESSES, limit: MOST });
    const dead = this.#deadOf(rows, Date.now());
    const hasLeft = [...known.keys()].some((key) => !this.#seen.has(key));
    const isThorough = ++this.#round % THOROUGH === 0;
    if (dead.length > 0 || hasLeft || isThorough || this.#engine.adrift) this.#due = true;
    if (!this.#due || this.#retired) return;
    this.#engine.adrift = false;
    await this.#takeUp(rows, new Set(dead.map(({ key }) => key)));
    if (this.#retired) return;
    this.#due = false;
    await Promise.all(dead.map((row) => this.#forget(row)));
  }

  async #takeUp(rows: readonly Row[], dead: ReadonlySet<string>): Promise<void> {
    const { store, logger } = this.#engine;
    const gone = new Map(rows.map(({ key }) => [key, dead.has(key)]));
    const isGone = async (process: string) => {
      const key = processKey(process);
      // One that has begun since then has said so before it ran anything.
      if (!gone.has(key)) gone.set(key, (await store.get(key)) === undefined);
      return gone.get(key) === true;
    };
    const count = await recoverExecutions(this.#engine, isGone, () => this.#retired);
    if (count > 0) logger.info({ executions: count }, "took over executions of a process that is gone");
  }

  /** Unless it has turned out to live. */
  async #forget({ key, revision }: Row): Promise<void> {
    try {
      await this.#engine.store.commit({ delete: [key], expect: [[key, revision]] });
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
    }
  }

  /** Those that have been silent for long. */
  #deadOf(rows: readonly Row[], now: number): Row[] {
    const own = processKey(this.#engine.around.process);
    const seen = new Map<string, { value: string; since: number }>();
    for (const { key, value } of rows) {
      const before = this.#seen.get(key);
      seen.set(key, before?.value === value ? before : { value, since: now });
    }
    this.#seen = seen;
    const { sign, silence } = this.#times;
    return rows.filter(({ key }) => {
      const { value, since } = seen.get(key)!;
      return key !== own && Number(value) < now - silence && since <= now - WATCHED * sign;
    });
  }
}
