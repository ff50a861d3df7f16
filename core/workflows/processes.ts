/**
 * Processes that share a store. Each says from time to time that it lives; what a silent one ran, another takes over. No write
 * is needed for a single execution: its open row names its process, and every commit to its journal expects that row.
 */
import { messageOf } from "../errors.ts";
import { PROCESSES, processKey } from "../storage/keys.ts";
import type { Row } from "../storage/store.ts";
import type { Engine } from "./engine.ts";
import { Orders } from "./orders.ts";
import { takeUp } from "./recovery.ts";

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

export class Processes {
  readonly #engine: Engine;
  readonly #times: ProcessTimes;
  readonly #orders: Orders;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  /** By key: what the sign of life of another process was, and since when. */
  #seen = new Map<string, { value: string; since: number }>();
  #retired = false;
  #stopped = false;

  constructor(engine: Engine, times: ProcessTimes = PROCESS_TIMES) {
    this.#engine = engine;
    this.#times = times;
    this.#orders = new Orders(engine, times.orders);
  }

  async start(): Promise<void> {
    await this.#live();
    await this.#orders.start();
    this.#arm();
  }

  /** Takes nothing over any more, but lives. */
  retire(): void {
    this.#retired = true;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await Promise.all([this.#round, this.#orders.close()]);
  }

  /** What it has left may be taken over at once. */
  async leave(): Promise<void> {
    await this.#engine.store.commit({ delete: [processKey(this.#engine.around.process)] }).catch(() => {});
  }

  #arm(): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#live()
        .catch((error: unknown) => {
          this.#engine.logger.warn({ err: error }, `other processes could not be looked for: ${messageOf(error)}`);
        })
        .finally(() => this.#arm());
    }, this.#times.sign);
    this.#timer.unref();
  }

  /** Says that this process lives, and takes over what the dead ones ran. */
  async #live(): Promise<void> {
    const { store, around } = this.#engine;
    const now = Date.now();
    await store.commit({ put: [[processKey(around.process), String(now)]] });
    const rows = await store.scan({ prefix: PROCESSES, limit: MOST });
    const dead = this.#deadOf(rows, now);
    if (this.#retired) return;
    const gone = new Map(rows.map(({ key }) => [key, dead.includes(key)]));
    const count = await takeUp(this.#engine, async (process) => {
      const key = processKey(process);
      // One that has begun since then has said so before it ran anything.
      if (!gone.has(key)) gone.set(key, (await store.get(key)) === undefined);
      return gone.get(key) === true;
    });
    if (count > 0) this.#engine.logger.info({ executions: count }, "took over executions of a process that is gone");
    if (dead.length > 0) await store.commit({ delete: dead });
  }
  /** Keys of those that have been silent for long. */
  #deadOf(rows: readonly Row[], now: number): string[] {
    const seen = new Map<string, { value: string; since: number }>();
    for (const { key, value } of rows) {
      const before = this.#seen.get(key);
      seen.set(key, before?.value === value ? before : { value, since: now });
    }
    this.#seen = seen;
    const { sign, silence } = this.#times;
    const isSilent = ({ value, since }: { value: string; since: number }) =>
      Number(value) < now - silence && since <= now - WATCHED * sign;
    return [...seen].filter(([, sighting]) => isSilent(sighting)).map(([key]) => key);
  }
}
