/**
 * What one process of a shared store asks of another: to stop an execution that the other one runs. The request is a row; who runs
 * the execution looks for such rows while it runs any, and who asked looks at the execution until it rests.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import { indexedExecution, openExecutionKey, STOP_REQUESTS, stopRequestKey } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Engine } from "../engine.ts";
import { noExecution, stillRunning } from "../journal/errors.ts";
import { type FoundExecution, loadExecution, readExecution } from "../journal/load.ts";
import type { JournalState } from "../journal/state.ts";
import type { Stop } from "../run/lifetime.ts";

/** Milliseconds that steps may take to heed a cancel. */
const GRACE = 5_000;
/** Milliseconds between two looks at the execution: the first, and the longest; and how long they go on. */
const LOOK = { first: 50, longest: 1_000, end: 600_000 };
const PAGE = 1_000;

export type StopRequest = Pick<Stop, "reason"> & { readonly kind: "suspend" | "cancel" };

export const stopFromRequest = ({ kind, reason }: StopRequest): Stop => ({
  kind,
  reason,
  patience: kind === "cancel" ? GRACE : Number.POSITIVE_INFINITY,
});

/** `open`: revision of the open row that it is about, so that it does not stop what was resumed since. */
type Order = readonly [kind: StopRequest["kind"], reason: string, open: number];

const parseOrder = (row: Row): Order => JSON.parse(row.value) as Order;

/**
 * Has an execution stopped that another process runs, and resolves when it rests; whoever runs it by then.
 *
 * @returns its fold; still running when it rested, and was resumed
 */
export async function stopRemoteExecution(
  store: Store,
  { start, rest }: FoundExecution,
  request: StopRequest,
): Promise<JournalState> {
  const end = performance.now() + LOOK.end;
  let asked: number | null = null;
  for (let delay = LOOK.first; performance.now() < end; delay = Math.min(delay * 2, LOOK.longest)) {
    const found = await readExecution(store, start.number);
    if (found === null) throw noExecution(start.id);
    const { open } = found;
    if (open === null || found.rest?.revision !== rest?.revision) {
      const loaded = await loadExecution(store, found);
      if (loaded !== null) {
        if (asked !== null) await withdraw(store, start.number, asked).catch(() => {});
        return loaded.state;
      }
    }
    // Another process may have taken it over, which knows nothing of the request.
    else if (open.revision !== asked && (await ask(store, open, start.number, request))) asked = open.revision;
    await sleep(delay, undefined, { ref: false });
  }
  throw stillRunning(start.id);
}

/** False when something has changed meanwhile. */
async function ask(store: Store, open: Row, number: number, { kind, reason }: StopRequest): Promise<boolean> {
  const key = stopRequestKey(number);
  const known = await store.get(key);
  if (known !== undefined) {
    const [knownKind, , about] = parseOrder(known);
    // A suspension does not take a cancel back.
    if (about === open.revision && (knownKind === "cancel" || knownKind === kind)) return true;
  }
  const order: Order = [kind, reason, open.revision];
  try {
    await store.commit({
      put: [[key, JSON.stringify(order)]],
      expect: [
        [open.key, open.revision],
        [key, known?.revision ?? null],
      ],
    });
    return true;
  } catch (error) {
    if (error instanceof CommitConflict) return false;
    throw error;
  }
}

/** What is asked of a run that is over. Somebody may ask for something of the next one by now. */
async function withdraw(store: Store, number: number, open: number): Promise<void> {
  const order = await store.get(stopRequestKey(number));
  if (order === undefined || parseOrder(order)[2] !== open) return;
  await remove(store, order);
}

const remove = (store: Store, { key, revision }: Row) =>
  store.commit({ delete: [key], expect: [[key, revision]] }).then(() => {}, ignoreConflict);

/** Does what other processes ask of this one. */
export class StopRequests {
  readonly #engine: Engine;
  readonly #looks: Interval;

  /** @param interval milliseconds between two looks, while something runs here */
  constructor(engine: Engine, interval: number) {
    this.#engine = engine;
    this.#looks = new Interval(
      interval,
      () => this.#look(),
      (error) => {
        const message = `what other processes ask for could not be read: ${messageOf(error)}`;
        engine.logger.warn({ err: error }, message);
      },
    );
  }

  /** Removes what is about executions that do not run any more, and begins. */
  async start(): Promise<void> {
    const { store } = this.#engine;
    const rows = await store.scan({ prefix: STOP_REQUESTS, limit: PAGE });
    const open = await store.getMany(rows.map((row) => openExecutionKey(indexedExecution(row.key))));
    const stale = rows.filter((row, index) => open[index]?.revision !== parseOrder(row)[2]);
    await Promise.all(stale.map((row) => remove(store, row)));
    this.#looks.start();
  }

  close(): Promise<void> {
    return this.#looks.stop();
  }

  async #look(): Promise<void> {
    const { store, live } = this.#engine;
    if (live.size === 0) return;
    const rows = await store.scan({ prefix: STOP_REQUESTS, limit: PAGE });
    if (rows.length === 0) return;
    const orders = new Map(rows.map((row) => [indexedExecution(row.key), row]));
    for (const execution of live.values()) {
      const row = orders.get(execution.state.start.number);
      if (row === undefined) continue;
      const [kind, reason, open] = parseOrder(row);
      if (open !== execution.revision) continue;
      execution.stop(stopFromRequest({ kind, reason }));
      // Should this process end before the execution rests, it is asked of the next one.
      await remove(store, row);
    }
  }
}

/** Somebody asks for more by now. */
function ignoreConflict(error: unknown): void {
  if (!(error instanceof CommitConflict)) throw error;
}
