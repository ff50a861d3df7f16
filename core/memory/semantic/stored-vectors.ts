/**
 * Reads the vectors of an owner, in pieces that are small enough to be handed on without holding up others.
 *
 * Every vector is a row of its own, and only these rows count. Once an owner has many, they are also packed into blocks, whose numbers
 * are bytes: far smaller and faster to read. A vector that is written after that is noted under `recent` until it is in a block too. So
 * blocks may have vectors that were deleted or replaced meanwhile. Whoever finds one there looks at its row.
 */
import { groupsOf } from "../../storage/bounded-reader.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { OwnerKeys } from "./layout.ts";
import type { StoredVectors } from "./scan-thread.ts";

/** A row has some thousand characters. */
const ROWS_PER_READ = 256;
const BYTES_PER_READ = 2 * 1024 * 1024;
/** Of blocks only keys and sizes are read first. A store that cannot leave out the rest gives this many whole ones. */
const HEADS_PER_READ = 64;

/** How far an owner's vectors are packed. */
export interface Pack {
  /** Short key of the last row that is in a block. Empty: before the first. Null: all are, or are noted as recent. */
  readonly after: string | null;
  /** Number of the next block. */
  readonly next: number;
}

/** Revisions of blocks, by key. */
export type BlockRevisions = Map<string, number>;

export const readPack = ({ value }: Row): Pack => JSON.parse(value) as Pack;
export const writePack = (pack: Pack): string => JSON.stringify(pack);

/**
 * All vectors of an owner; of two with one key the later counts.
 *
 * @param known blocks that need not be read. Those that are read are added
 */
export async function* storedVectors(
  store: Store,
  keys: OwnerKeys,
  known: BlockRevisions = new Map(),
): AsyncGenerator<StoredVectors, void> {
  const row = await store.get(keys.pack);
  if (row === undefined) return yield* rowsBelow(store, keys, keys.vectors);
  const { after } = readPack(row);
  let fresh = await unknownBlocks(store, keys, known);
  let rest = after;
  do {
    yield* readBlocks(store, fresh, known);
    if (rest !== null) yield* rowsBelow(store, keys, keys.vectors, rest);
    rest = null;
    yield* recentRows(store, keys);
    // Recent ones may have gone into a block before they were read here.
    fresh = await unknownBlocks(store, keys, known);
  } while (fresh.length > 0);
}

/** The rows of vectors below a prefix: those of the owner, or of one conversation. */
export async function* rowsBelow(
  store: Store,
  keys: OwnerKeys,
  prefix: string,
  after = "",
): AsyncGenerator<StoredVectors, void> {
  for await (const rows of allRows(store, { prefix, after: keys.vectors + after }, ROWS_PER_READ)) {
    yield { keys: rows.map(({ key }) => key.slice(keys.vectors.length)), rows: rows.map(({ value }) => value) };
  }
}

async function* recentRows(store: Store, keys: OwnerKeys): AsyncGenerator<StoredVectors, void> {
  for await (const notes of allRows(store, { prefix: keys.recent }, ROWS_PER_READ))
    yield await rowsOfNotes(store, keys, notes);
}

/** The rows that are noted as recent and exist. */
export async function rowsOfNotes(store: Store, keys: OwnerKeys, notes: readonly Row[]) {
  const noted = notes.map(({ key }) => key.slice(keys.recent.length));
  const rows = await store.getMany(noted.map((key) => keys.vectors + key));
  const found = noted.flatMap((key, index) => (rows[index] === undefined ? [] : [{ key, value: rows[index].value }]));
  return { keys: found.map(({ key }) => key), rows: found.map(({ value }) => value) };
}

/** Key and size of each, in the order of their numbers. */
async function unknownBlocks(store: Store, keys: OwnerKeys, known: BlockRevisions): Promise<Row[]> {
  const unknown: Row[] = [];
  for await (const heads of allRows(store, { prefix: keys.blocks, longest: 1 }, HEADS_PER_READ)) {
    for (const head of heads) if (known.get(head.key) !== head.revision) unknown.push(head);
  }
  return unknown;
}

async function* readBlocks(
  store: Store,
  heads: readonly Row[],
  known: BlockRevisions,
): AsyncGenerator<StoredVectors, void> {
  for (const group of groupsOf(heads, ({ size, value }) => size ?? value.length, BYTES_PER_READ)) {
    const rows = await store.getMany(group.map(({ key }) => key));
    const blocks: string[] = [];
    for (const [index, { key, revision }] of group.entries()) {
      known.set(key, rows[index]?.revision ?? revision);
      if (rows[index] !== undefined) blocks.push(rows[index].value);
    }
    yield { blocks };
  }
}
