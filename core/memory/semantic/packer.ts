/**
 * Packs the vectors of owners who have many into blocks, in the background. Each step is one commit that expects that no other process
 * has made a step meanwhile, so that after a crash the next process goes on where this one has ended.
 */
import type { Logger } from "pino";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import type { Commit, Row, Store } from "../../storage/store.ts";
import type { OwnerKeys } from "./layout.ts";
import type { ScanThread } from "./scan-thread.ts";
import type { IndexState } from "./state.ts";
import { type Pack, readPack, rowsOfNotes, writePack } from "./stored-vectors.ts";

/** Fewer are read as fast as rows. */
const PACKED_FROM = 512;
export const VECTORS_PER_BLOCK = 256;
/** In a row. */
const MAX_CONFLICTS = 5;

interface PackerParts {
  store: Store;
  state: IndexState | null;
  thread: ScanThread;
  signal?: AbortSignal | undefined;
  logger?: Logger | undefined;
}

export class Packer {
  readonly #parts: PackerParts;
  readonly #waiting = new Map<string, OwnerKeys>();
  #running: Promise<void> | null = null;

  constructor(parts: PackerParts) {
    this.#parts = parts;
  }

  /** Packs what there is to pack of this owner. Returns at once. */
  check(keys: OwnerKeys): void {
    this.#waiting.set(keys.pack, keys);
    this.#running ??= this.#run();
  }

  /** Resolves when nothing is being packed. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    await null;
    for (const [key, owner] of this.#waiting) {
      this.#waiting.delete(key);
      await this.#pack(owner).catch((error) => this.#report(error));
    }
    this.#running = null;
  }

  async #pack(owner: OwnerKeys): Promise<void> {
    for (let conflicts = 0; !this.#parts.signal?.aborted; ) {
      try {
        if (!(await this.#step(owner))) return;
        conflicts = 0;
      } catch (error) {
        // Another process packs them, or somebody has just written or deleted one. The next check goes on.
        if (!(error instanceof CommitConflict)) throw error;
        if (++conflicts === MAX_CONFLICTS) return;
      }
    }
  }

  #report(error: unknown): void {
    if (this.#parts.signal?.aborted) return;
    const text = `semantic memory: vectors wait to be packed: ${messageOf(error)}`;
    this.#parts.logger?.warn({ err: error }, text);
  }

  /** @returns whether there may be more to do */
  async #step(keys: OwnerKeys): Promise<boolean> {
    const row = await this.#parts.store.get(keys.pack);
    if (row === undefined) return this.#begin(keys);
    return readPack(row).after === null ? this.#packRecent(keys, row) : this.#packRows(keys, row);
  }

  /** From this commit on, whoever writes a vector notes it as recent. */
  async #begin(keys: OwnerKeys): Promise<boolean> {
    const { store } = this.#parts;
    const rows = await store.scan({ prefix: keys.vectors, limit: PACKED_FROM, longest: 1 });
    if (rows.length < PACKED_FROM) return false;
    await this.#commit({ put: [[keys.pack, writePack({ after: "", next: 0 })]], expect: [[keys.pack, null]] });
    return true;
  }

  async #packRows(keys: OwnerKeys, row: Row): Promise<boolean> {
    const { store } = this.#parts;
    const pack = readPack(row);
    const range = { prefix: keys.vectors, after: keys.vectors + pack.after, limit: VECTORS_PER_BLOCK };
    const rows = await store.scan(range);
    const names = rows.map(({ key }) => key.slice(keys.vectors.length));
    const last = rows.length < VECTORS_PER_BLOCK ? null : names.at(-1)!;
    // One commit writes a vector and its note, so that both have one revision unless the vector was written again since.
    const notes = (await store.getMany(names.map((name) => keys.recent + name))).filter(
      (note, index) => note !== undefined && note.revision === rows[index]!.revision,
    );
    const values = rows.map(({ value }) => value);
    await this.#write(keys, row, names, values, { after: last, next: pack.next }, notes as Row[]);
    return true;
  }

  async #packRecent(keys: OwnerKeys, row: Row): Promise<boolean> {
    const { store } = this.#parts;
    const notes = await store.scan({ prefix: keys.recent, limit: VECTORS_PER_BLOCK });
    if (notes.length < VECTORS_PER_BLOCK) return false;
    // A row that is written or deleted after this has a note with another revision, or none.
    const { keys: names, rows } = await rowsOfNotes(store, keys, notes);
    await this.#write(keys, row, names, rows, readPack(row), notes);
    return true;
  }

  /** Adds a block, and removes the notes of its vectors, which must not have changed. */
  async #write(
    keys: OwnerKeys,
    { revision }: Row,
    names: readonly string[],
    rows: readonly string[],
    { after, next }: Pack,
    notes: readonly Row[],
  ): Promise<void> {
    const block = rows.length === 0 ? [] : [[keys.block(next), await this.#parts.thread.pack(names, rows)] as const];
    await this.#commit({
      put: [...block, [keys.pack, writePack({ after, next: next + block.length })]],
      delete: notes.map(({ key }) => key),
      expect: [[keys.pack, revision], ...notes.map((note) => [note.key, note.revision] as const)],
    });
  }

  async #commit(commit: Commit): Promise<void> {
    const { store, state } = this.#parts;
    await store.commit({
      ...commit,
      expect: [...(commit.expect ?? []), ...(state === null ? [] : [state.expectation])],
    });
  }
}
