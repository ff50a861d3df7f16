/** The store of `memory:`, which ends with the process. Commits are applied synchronously, so that they are atomic. */
import { CommitConflict } from "../lib/errors.ts";
import { excerpt, joinRows } from "./bounded-reader.ts";
import { addToCounter, checkCommit, checkKey, checkRange, checkTail, keyBounds } from "./keys.ts";
import type { Commit, Range, Row, Store } from "./store.ts";

/** The slot of a key. A write replaces the row in it, so that rows that were returned before do not change. */
interface Slot {
  readonly key: string;
  row: Row;
  /** What the row takes; weighed once, when it is written. */
  bytes: number;
}

/** A full block is split in two. Large enough that there are few blocks, small enough that inserting into one is cheap. */
const BLOCK_SIZE = 512;
/** What a row takes beside its texts: its objects, and its places in the map and in a block. */
const BYTES_PER_ROW = 200;

/**
 * The rows whose keys begin alike, sorted by key: blocks of some hundred rows that are found by bisection, and a map for single keys. Most
 * new keys are greater than all others of their space.
 */
class Space {
  /** About how many bytes the rows take. */
  bytes = 0;
  readonly #slots = new Map<string, Slot>();
  /** No block is empty, unless it is the only one. */
  readonly #blocks: Slot[][] = [[]];

  get(key: string): Row | undefined {
    return this.#isGreatest(key) ? undefined : this.#slots.get(key)?.row;
  }

  /** Whether it is greater than all keys. */
  #isGreatest(key: string): boolean {
    const block = this.#blocks[this.#blocks.length - 1]!;
    return block.length === 0 || block[block.length - 1]!.key < key;
  }

  set(row: Row): void {
    const { key } = row;
    const bytes = bytesOf(row);
    const isGreatest = this.#isGreatest(key);
    const known = isGreatest ? undefined : this.#slots.get(key);
    this.bytes += bytes - (known?.bytes ?? 0);
    if (known !== undefined) {
      known.bytes = bytes;
      known.row = row;
      return;
    }
    const slot: Slot = { key, row, bytes };
    this.#slots.set(key, slot);
    const at = isGreatest ? this.#blocks.length - 1 : this.#findBlock(key);
    const block = this.#blocks[at] as Slot[];
    if (isGreatest) block.push(slot);
    else block.splice(lowerBound(block, key), 0, slot);
    // Rising keys leave full blocks behind.
    if (block.length > BLOCK_SIZE)
      this.#blocks.splice(at + 1, 0, block.splice(isGreatest ? BLOCK_SIZE : BLOCK_SIZE / 2));
  }

  delete(key: string): void {
    const known = this.#slots.get(key);
    if (known === undefined) return;
    this.#slots.delete(key);
    this.bytes -= known.bytes;
    const at = this.#findBlock(key);
    const block = this.#blocks[at] as Slot[];
    block.splice(lowerBound(block, key), 1);
    if (block.length === 0 && this.#blocks.length > 1) this.#blocks.splice(at, 1);
  }

  /** From the first key that is not less than `from`. */
  *up(from: string): Generator<Slot> {
    let at = this.#findBlock(from);
    let index = lowerBound(this.#blocks[at] as Slot[], from);
    for (; at < this.#blocks.length; at++, index = 0) {
      const block = this.#blocks[at] as Slot[];
      for (; index < block.length; index++) yield block[index] as Slot;
    }
  }

  /** From the last key that is less than `before`, downwards. */
  *down(before: string): Generator<Slot> {
    let at = this.#findBlock(before);
    let index = lowerBound(this.#blocks[at] as Slot[], before) - 1;
    for (; ; index = (this.#blocks[at] as Slot[]).length - 1) {
      const block = this.#blocks[at] as Slot[];
      for (; index >= 0; index--) yield block[index] as Slot;
      if (--at < 0) return;
    }
  }

  /** The block where `key` is or belongs: the last whose first key is not greater. */
  #findBlock(key: string): number {
    let low = 0;
    let high = this.#blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const [first] = this.#blocks[middle] as [Slot];
      if (first.key <= key) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** What the keys of a space begin with: all up to the first slash, and a key without one is alone. Their order is that of their keys. */
const spaceOf = (key: string): string => key.slice(0, key.indexOf("/") + 1) || key;

/** Rows in memory, sorted by key. */
export class SortedRows {
  readonly #spaces = new Map<string, Space>();

  /** About how many bytes the rows of a space take. */
  bytes(space: string): number {
    return this.#spaces.get(space)?.bytes ?? 0;
  }

  get(key: string): Row | undefined {
    return this.#spaces.get(spaceOf(key))?.get(key);
  }

  set(row: Row): void {
    const name = spaceOf(row.key);
    let space = this.#spaces.get(name);
    if (space === undefined) {
      space = new Space();
      this.#spaces.set(name, space);
    }
    space.set(row);
  }

  delete(key: string): void {
    this.#spaces.get(spaceOf(key))?.delete(key);
  }

  /** Rows of the range, in its order. */
  scan(range: Range): Row[] {
    const { low, high } = keyBounds(range);
    const { prefix, reverse = false, limit } = range;
    let skip = range.skip ?? 0;
    const rows: Row[] = [];
    const spaces = this.#spacesOf(prefix);
    for (const space of reverse ? spaces.reverse() : spaces) {
      for (const { key, row } of reverse ? space.down(high) : space.up(low)) {
        if (reverse ? key < low : key >= high) break;
        if (skip-- > 0) continue;
        if (rows.length >= limit) return rows;
        rows.push(row);
      }
    }
    return rows;
  }

  /** Keys that begin with `prefix`. */
  keys(prefix: string): string[] {
    return this.scan({ prefix, limit: Number.POSITIVE_INFINITY }).map(({ key }) => key);
  }

  /** Those that have keys which begin with `prefix`, in their order. */
  #spacesOf(prefix: string): Space[] {
    const names = prefix.includes("/")
      ? [spaceOf(prefix)]
      : [...this.#spaces.keys()].filter((name) => name.startsWith(prefix)).sort();
    return names.flatMap((name) => this.#spaces.get(name) ?? []);
  }
}

const bytesOf = ({ key, value }: Row): number => BYTES_PER_ROW + key.length + heapBytes(value);

/** A text with a single character beyond Latin-1 takes two bytes for each of its characters. One of Latin-1 is counted so as well. */
const heapBytes = (text: string): number => (Buffer.byteLength(text) === text.length ? 1 : 2) * text.length;

/** Index of the first slot whose key is not less than `key`. */
function lowerBound(block: readonly Slot[], key: string): number {
  let low = 0;
  let high = block.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((block[middle] as Slot).key < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function createMemoryStore(): Store {
  const rows = new SortedRows();
  /** Rises with every commit, so that a row that is deleted and written again gets another revision. */
  let revision = 0;

  function apply(commit: Commit): number {
    checkCommit(commit);
    const conflicts = (commit.expect ?? []).filter(([key, wanted]) => (rows.get(key)?.revision ?? null) !== wanted);
    if (conflicts.length > 0) throw new CommitConflict(conflicts.map(([key]) => key));
    const removed = [...(commit.delete ?? []), ...(commit.clear ?? []).flatMap((prefix) => rows.keys(prefix))];
    // First, since it may throw, and must not leave half of the commit behind.
    for (const [key, delta] of commit.add ?? []) {
      addToCounter(key, (removed.includes(key) ? undefined : rows.get(key)?.value) ?? "0", delta);
    }
    revision++;
    for (const key of removed) rows.delete(key);
    for (const [key, value] of commit.put ?? []) rows.set({ key, value, revision });
    for (const [key, delta] of commit.add ?? []) {
      rows.set({ key, value: addToCounter(key, rows.get(key)?.value ?? "0", delta), revision });
    }
    return revision;
  }

  return {
    kind: "memory",
    get: async (key) => {
      checkKey(key);
      return rows.get(key);
    },
    getMany: async (keys, longest = Number.POSITIVE_INFINITY) => {
      keys.forEach(checkKey);
      return keys.map((key) => {
        const row = rows.get(key);
        return row && excerpt(row, longest);
      });
    },
    scan: async (range) => {
      checkRange(range);
      const { longest } = range;
      const found = rows.scan(range);
      return longest === undefined ? found : found.map((row) => excerpt(row, longest));
    },
    tail: async (tail) => {
      checkTail(tail);
      const found = rows.scan({ ...tail, reverse: true });
      return joinRows(found.reverse(), tail, rows.get(tail.otherKey));
    },
    commit: async (commit) => apply(commit),
    held: (space) => rows.bytes(space),
    problem: async () => null,
    close: async () => {},
  };
}
