/**
 * Processes that share a store. Each says from time to time that it lives; what a silent one ran, another takes over. No write
 * is needed for a single execution: its open row names its process, and every commit to its journal expects that row.
 */
import { messageOf } from "../errors.ts";
import { PROCESSES, processKey } from "../storage/keys.ts";
import type { Engine } from "./engine.ts";
import { takeUp } from "./recovery.ts";

/** Milliseconds between two signs of life, and after which a process without one is taken for dead. */
const SIGN = 5_000;
const SILENCE = 30_000;
const MOST = 1_000;

export class Processes {
  readonly #engine: Engine;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async start(): Promise<void> {
    await this.#live();
    this.#arm();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
    // What it left may be taken over at once.
    await this.#engine.store.commit({ delete: [processKey(this.#engine.around.process)] }).catch(() => {});
  }

  #arm(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#live()
        .catch((error: unknown) => {
          this.#engine.logger.warn({ err: error }, `other processes could not be looked for: ${messageOf(error)}`);
        })
        .finally(() => this.#arm());
    }, SIGN);
    this.#timer.unref();
  }

  /** Says that this process lives, and takes over what the dead ones ran. */
  async #live(): Promise<void> {
    const { store, around } = this.#engine;
    const now = Date.now();
    await store.commit({ put: [[processKey(around.process), String(now)]] });
    const rows = await store.scan({ prefix: PROCESSES, limit: MOST });
    const dead = rows.filter((row) => Number(row.value) < now - SILENCE).map((row) => row.key);
    const living = new Set(rows.map((row) => row.key).filter((key) => !dead.includes(key)));
    const count = await takeUp(this.#engine, (process) => !living.has(processKey(process)));
    if (count > 0) this.#engine.logger.info({ executions: count }, "took over executions of a process that is gone");
    if (dead.length > 0) await store.commit({ delete: dead });
  }
}
