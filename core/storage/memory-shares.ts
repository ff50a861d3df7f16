/**
 * How the rows of `memory:`, which are in the heap of the process, share their room. Each kind may take `most` while the others leave
 * it that much, and keeps its share whatever they do. The shares add up to the room: when no kind is over its limit, all of them together
 * fit into it.
 */
import { CONVERSATION_SPACES, EXECUTIONS, SEGMENTS } from "./keys.ts";
import type { Store } from "./store.ts";

const MIB = 1024 * 1024;
/** Of all kinds together. */
const ROOM = 42 * MIB;

interface Kind {
  /** What the keys of its rows begin with. */
  readonly spaces: readonly string[];
  readonly share: number;
  readonly most: number;
}

const KINDS = {
  conversations: { spaces: CONVERSATION_SPACES, share: 16 * MIB, most: ROOM },
  executions: {
    spaces: [EXECUTIONS, "xo/", "xn/", "xi/", "xs/", "xw/", "xu/", "xv/", "xr/"],
    share: 10 * MIB,
    most: ROOM,
  },
  tasks: { spaces: ["a2/", "a2c/", "a2i/", "a2u/"], share: 5 * MIB, most: 16 * MIB },
  traces: { spaces: [SEGMENTS, "td/", "tl/", "tf/"], share: 4 * MIB, most: 16 * MIB },
  /** Replies to requests with an Idempotency-Key. */
  replies: { spaces: ["it/", "ik/"], share: 4 * MIB, most: 16 * MIB },
  /** Of `/v1/responses`. */
  responses: { spaces: ["rt/", "rs/"], share: 3 * MIB, most: 16 * MIB },
} as const satisfies Record<string, Kind>;

export type KindOfRows = keyof typeof KINDS;

function heldBytes(store: Pick<Store, "held">, kind: KindOfRows): number {
  let bytes = 0;
  for (const space of KINDS[kind].spaces) bytes += store.held?.(space) ?? 0;
  return bytes;
}

/** How many bytes the rows of a kind may take now. */
function roomFor(store: Pick<Store, "held">, kind: KindOfRows): number {
  let left = ROOM;
  for (const other of Object.keys(KINDS) as KindOfRows[]) if (other !== kind) left -= heldBytes(store, other);
  const { share, most } = KINDS[kind];
  return Math.max(share, Math.min(most, left));
}

/** By how many bytes they are over it; 0 or less: they are not. */
export function excessBytes(store: Pick<Store, "held">, kind: KindOfRows): number {
  const held = heldBytes(store, kind);
  const { share } = KINDS[kind];
  // Within its share it is asked about no other kind: this is asked with every change.
  return held <= share ? held - share : held - roomFor(store, kind);
}

/** From here on the rows decide how large the heap is. */
const LARGE = 16 * MIB;

/** Whether the rows of `memory:` take much of the heap. */
export const areRowsLarge = (store: Pick<Store, "held">): boolean =>
  (Object.keys(KINDS) as KindOfRows[]).reduce((bytes, kind) => bytes + heldBytes(store, kind), 0) > LARGE;
