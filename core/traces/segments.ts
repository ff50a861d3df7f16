/** Reads segments, whether they are still waiting to be written or already in the store. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { decodeNumber, NUMBER_LIMIT } from "../storage/encoding.ts";
import { SEGMENTS, segmentDataKey, segmentKey, segmentsFrom } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { type Segment, type SegmentHead, SegmentReader } from "./segment.ts";
import { parseHead } from "./segment-rows.ts";

/** Number of heads in the first read; every read takes twice as many as the one before. */
const FIRST_READ_HEADS = 32;
const MAX_READ_HEADS = 1024;

/** The time at which a segment was sealed, in milliseconds since 1970. */
export const sealedAt = (name: string): number => decodeNumber(name.slice(0, 9));

interface ListedSegment {
  readonly name: string;
  readonly head: SegmentHead;
  /** Null when it was removed meanwhile. */
  read(): Promise<SegmentReader | null>;
}

/**
 * All segments of one point in time, the newest first.
 *
 * @param pending the segments that wait to be written at this time, the newest first
 * @param from milliseconds since 1970; segments that were sealed before are left out
 */
export async function* newestSegments(
  store: Store,
  pending: readonly Segment[],
  from: number,
): AsyncGenerator<ListedSegment, void> {
  let next = 0;
  let before = `${SEGMENTS}~`;
  const after = segmentsFrom(Math.min(Math.max(0, from), NUMBER_LIMIT - 1));
  for (let limit = FIRST_READ_HEADS; ; limit = Math.min(MAX_READ_HEADS, 2 * limit)) {
    const heads = (await store.scan({ prefix: SEGMENTS, after, before, reverse: true, limit })).map(parseHead);
    for (const { name, head } of heads) {
      while (next < pending.length && pending[next]!.name > name) yield listWaiting(pending[next++]!);
      // Skips a pending segment that has been written meanwhile.
      if (next < pending.length && pending[next]!.name === name) next++;
      yield { name, head, read: () => readSegment(store, name) };
    }
    if (heads.length < limit) break;
    before = segmentKey(heads.at(-1)!.name);
  }
  while (next < pending.length) yield listWaiting(pending[next++]!);
}

function listWaiting({ name, head, text }: Segment): ListedSegment {
  return { name, head, read: async () => SegmentReader.of(await text) };
}

export async function readSegment(store: Store, name: string): Promise<SegmentReader | null> {
  // A store in memory answers without yielding to the event loop, so yield here between two segments.
  await nextTurn();
  const row = await store.get(segmentDataKey(name));
  return row === undefined ? null : SegmentReader.of(row.value);
}
