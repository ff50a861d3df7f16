/** Makes room in `memory:` for rows that are found by rows of their time: the oldest go. */
import { Interval } from "../lib/interval.ts";
import { unlessConflict } from "./conflict.ts";
import { excessBytes, type KindOfRows } from "./memory-shares.ts";
import { pagesInBackground } from "./ranges.ts";
import { isVolatile } from "./sharing.ts";
import type { Store } from "./store.ts";

/** Short, since what comes within it is kept as well. */
const INTERVAL_MS = 250;
const ROWS_PER_PAGE = 100;

interface Aged {
  readonly kind: KindOfRows;
  /** Prefix of the rows of time. */
  readonly times: string;
  /** What one of these is about. */
  idOf(timeKey: string): string;
  /** The key of its own row; null: it stays for now. */
  keyOf(id: string): string | null | Promise<string | null>;
  /** Whether it goes only when there is nothing else to remove. */
  isNeeded?(key: string): Promise<boolean>;
  failed(error: unknown): void;
}

/** The work that makes the room, to be started and stopped; null for a store that is not in the heap. */
export function roomKeeper(store: Store, aged: Aged): Interval | null {
  if (!isVolatile(store)) return null;
  const interval: Interval = new Interval(INTERVAL_MS, () => removeOldest(store, aged, interval.signal), aged.failed);
  return interval;
}

async function removeOldest(store: Store, aged: Aged, signal: AbortSignal): Promise<void> {
  const { kind, times, idOf, keyOf, isNeeded } = aged;
  for (const spares of isNeeded === undefined ? [false] : [true, false]) {
    if (excessBytes(store, kind) <= 0) return;
    for await (const rows of pagesInBackground(store, { prefix: times }, ROWS_PER_PAGE, signal)) {
      for (const time of rows) {
        const key = await keyOf(idOf(time.key));
        if (key === null || (spares && (await isNeeded?.(key)))) continue;
        await unlessConflict(store.commit({ delete: [time.key, key], expect: [[time.key, time.revision]] }));
        if (excessBytes(store, kind) <= 0) return;
      }
    }
  }
}
