/** Segments wherever they are: waiting to be written, or in the store. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { decodeNumber, NUMBER_LIMIT } from "../storage/encoding.ts";
import { SEGMENTS, segmentDataKey, segmentKey, segmentsFrom } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { type Segment, type SegmentHead, SegmentReader } from "./segment.ts";
import { readHeads } from "./segment-rows.ts";

/** Heads of the first read; each one after it is of twice as many, as far as `MOST`. */
const PAGE = 32;
const MOST = 1024;

/** Milliseconds since 1970. */
export const sealedAt = (name: string): number => decodeNumber(name.slice(0, 9));

interface ListedSegment {
  readonly name: string;
  readonly head: SegmentHead;
  /** Null: it was removed meanwhile. */
  read(): Promise<SegmentReader | null>;
}

/**
 * All that there were at one moment, the newest first.
 *
 * @param pending those that wait at this moment, the newest first
 * @param from those that were sealed before are left out: milliseconds since 1970
 */
export async function* newestSegments(
  store: Store,
  pending: readonly Segment[],
  from: number,
): AsyncGenerator<ListedSegment, void> {
  let next = 0;
  let before = `${SEGMENTS}~`;
  const after = segmentsFrom(Math.min(Math.max(0, from), NUMBER_LIMIT - 1));
  for (let limit = PAGE; ; limit = Math.min(MOST, 2 * limit)) {
    const heads = await readHeads(store, { after, before, reverse: true, limit });
    for (const { name, head } of heads) {
      while (next < pending.length && pending[next]!.name > name) yield waiting(pending[next++]!);
      // It was written since.
      if (next < pending.length && pending[next]!.name === name) next++;
      yield { name, head, read: () => readSegment(store, name) };
    }
    if (heads.length < limit) break;
    before = segmentKey(heads.at(-1)!.name);
  }
  while (next < pending.length) yield waiting(pending[next++]!);
}

function waiting({ name, head, text }: Segment): ListedSegment {
  return { name, head, read: async () => new SegmentReader(text) };
}

export async function readSegment(store: Store, name: string): Promise<SegmentReader | null> {
  // A store in memory answers within the turn: what else is asked for has its turn between two segments.
  await nextTurn();
  const row = await store.get(segmentDataKey(name));
  return row === undefined ? null : new SegmentReader(row.value);
}
