/**
 * Reads the vectors of an owner, in pieces that are small enough to be handed on without holding up others.
 *
 * Every vector is a row of its own, and only these rows count. Once an owner has many, they are also packed into blocks, whose numbers
 * are bytes: far smaller and faster to read. A vector that is written after that is noted under `recent` until it is in a block too. So
 * blocks may have vectors that were deleted or replaced meanwhile. Whoever finds one there looks at its row.
 */
import { allRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { OwnerKeys } from "./layout.ts";
import type { StoredVectors } from "./scan-thread.ts";

/** A row has some thousand characters. */
const ROWS_PER_READ = 256;
const BLOCK_CHARACTERS_PER_READ = 2 * 1024 * 1024;
/** Blocks of which most vectors were deleted are small, and others may follow. */
const LEAST_BLOCK_CHARACTERS = 64 * 1024;

/** How far an owner's vectors are packed. */
export interface Pack {
  /** Short key of the last row that is in a block. Empty: before the first. Null: all are, or are noted as recent. */
  readonly after: string | null;
  /** Number of the next block. */
  readonly next: number;
}

/** How many blocks were read. */
export interface Progress {
  blocks: number;
}

export const readPack = ({ value }: Row): Pack => JSON.parse(value) as Pack;
export const writePack = (pack: Pack): string => JSON.stringify(pack);

/**
 * All vectors of an owner; of two with one key the later counts.
 *
 * @param progress blocks that were read before are not read again. Those that are read are counted
 */
export async function* storedVectors(
  store: Store,
  keys: OwnerKeys,
  progress: Progress = { blocks: 0 },
): AsyncGenerator<StoredVectors, void> {
  let row = await store.get(keys.pack);
  if (row === undefined) return yield* rowsBelow(store, keys, keys.vectors);
  let { after } = readPack(row);
  do {
    yield* newBlocks(store, keys, progress, readPack(row).next);
    if (after !== null) yield* rowsBelow(store, keys, keys.vectors, after);
    after = null;
    yield* recentRows(store, keys);
    // Recent ones may have gone into a block before they were read here.
    row = await store.get(keys.pack);
  } while (row !== undefined && readPack(row).next > progress.blocks);
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

async function* newBlocks(
  store: Store,
  keys: OwnerKeys,
  progress: Progress,
  end: number,
): AsyncGenerator<StoredVectors, void> {
  // The first ones show how large they are.
  for (let largest = BLOCK_CHARACTERS_PER_READ; progress.blocks < end; ) {
    const count = Math.min(Math.floor(BLOCK_CHARACTERS_PER_READ / largest), end - progress.blocks);
    const numbers = Array.from({ length: Math.max(1, count) }, (_, index) => progress.blocks + index);
    const rows = await store.getMany(numbers.map((number) => keys.block(number)));
    const blocks = rows.flatMap((row) => (row === undefined ? [] : [row.value]));
    progress.blocks += numbers.length;
    const sizes = blocks.map(({ length }) => length);
    if (largest === BLOCK_CHARACTERS_PER_READ && sizes.length > 0) largest = LEAST_BLOCK_CHARACTERS;
    largest = Math.max(largest, ...sizes);
    if (blocks.length > 0) yield { blocks };
  }
}
