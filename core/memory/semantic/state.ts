/** What an index was made with. Vectors of two models cannot be compared: whoever changes the model makes the index anew. */
import { CommitConflict, unavailable } from "../../lib/errors.ts";
import type { Row, Store } from "../../storage/store.ts";

export interface IndexSettings {
  readonly provider: string;
  readonly model: string;
  /** Null before the first vector, where only the provider knows. */
  readonly dimensions: number | null;
  /** `exact`, or the name of a plugin. */
  readonly vectors: string;
}

interface Stored extends IndexSettings {
  /** False from the beginning to the end of `penstock reindex`. */
  readonly complete: boolean;
  /** Messages were saved while the memory had no semantic search: they are not found. */
  readonly gaps: boolean;
}

const REINDEX = "run penstock reindex";

export class IndexState {
  readonly #store: Store;
  readonly #key: string;
  #stored: Stored;
  #revision: number;
  #problem: string | null = null;

  private constructor(store: Store, key: string, stored: Stored, revision: number) {
    this.#store = store;
    this.#key = key;
    this.#stored = stored;
    this.#revision = revision;
  }

  /** @returns the state, or what is wrong with the index, in words for whoever wrote the manifest */
  static async open(store: Store, key: string, made: IndexSettings): Promise<IndexState | { problem: string }> {
    let row = await store.get(key);
    if (row === undefined) {
      try {
        return await IndexState.#write(store, key, { ...made, complete: true, gaps: false }, null);
      } catch (error) {
        // Another process starts at the same time, and was first.
        if (!(error instanceof CommitConflict)) throw error;
        row = (await store.get(key))!;
      }
    }
    const stored = JSON.parse(row.value) as Stored;
    const problem = difference(stored, made);
    return problem === null ? new IndexState(store, key, stored, row.revision) : { problem };
  }

  /** Begins an index anew, whatever there was: it is not `complete` until `finish`. */
  static async begin(store: Store, key: string, made: IndexSettings, clear: readonly string[]): Promise<IndexState> {
    const row = await store.get(key);
    return IndexState.#write(store, key, { ...made, complete: false, gaps: false }, row?.revision ?? null, clear);
  }

  /** A memory without semantic search: remembers that what is saved from now on is missing from its index, if it has one. */
  static async markGaps(store: Store, key: string): Promise<void> {
    const row = await store.get(key);
    if (row === undefined) return;
    const stored = JSON.parse(row.value) as Stored;
    if (!stored.gaps) await IndexState.#write(store, key, { ...stored, gaps: true }, row.revision);
  }

  static async #write(
    store: Store,
    key: string,
    stored: Stored,
    revision: number | null,
    clear: readonly string[] = [],
  ): Promise<IndexState> {
    const written = await store.commit({ put: [[key, JSON.stringify(stored)]], expect: [[key, revision]], clear });
    return new IndexState(store, key, stored, written);
  }

  get key(): string {
    return this.#key;
  }

  get gaps(): boolean {
    return this.#stored.gaps;
  }

  /** For a commit of vectors: they are of this index only while nobody has begun another. */
  get expectation(): readonly [key: string, revision: number] {
    return [this.#key, this.#revision];
  }

  /** Compares with the row as it is now. @throws ServiceError when somebody has made the index with something else */
  check(row: Row | undefined): void {
    if (this.#problem === null && row?.revision !== this.#revision) this.#renew(row);
    if (this.#problem !== null) throw unavailable(`semantic search is not available: ${this.#problem}`);
  }

  #renew(row: Row | undefined): void {
    const stored = row === undefined ? null : (JSON.parse(row.value) as Stored);
    const problem = stored === null ? "its index is gone" : difference(stored, this.#stored);
    if (problem === null) {
      this.#stored = stored!;
      this.#revision = row!.revision;
    } else {
      this.#problem = `${problem}; it was made anew by another process, restart this one`;
    }
  }

  /** `check` with the row read now. */
  async refresh(): Promise<void> {
    this.check(await this.#store.get(this.#key));
  }

  /** Remembers the dimensions with the first vectors. @throws Error when these are of another length than those before */
  async setDimensions(dimensions: number): Promise<void> {
    const known = this.#stored.dimensions;
    if (known === dimensions) return;
    if (known !== null) {
      throw new Error(`the vectors have ${dimensions} dimensions, those in the index ${known}: ${REINDEX}`);
    }
    await this.#change({ dimensions });
  }

  async finish(): Promise<void> {
    await this.#change({ complete: true });
  }

  async #change(change: Partial<Stored>): Promise<void> {
    const written = await IndexState.#write(this.#store, this.#key, { ...this.#stored, ...change }, this.#revision);
    this.#stored = written.#stored;
    this.#revision = written.#revision;
  }
}

/** Why an index cannot serve what the manifest asks for; null when it can. */
function difference(stored: Stored, made: IndexSettings): string | null {
  if (!stored.complete) return `the index is not complete, since penstock reindex was interrupted: ${REINDEX} again`;
  const same =
    stored.provider === made.provider &&
    stored.model === made.model &&
    stored.vectors === made.vectors &&
    (stored.dimensions === null || made.dimensions === null || stored.dimensions === made.dimensions);
  return same ? null : `the index was made with ${nameOf(stored)}, and the manifest says ${nameOf(made)}: ${REINDEX}`;
}

function nameOf({ provider, model, dimensions, vectors }: IndexSettings): string {
  const name = model === "" ? provider : `${provider}/${model}`;
  const size = dimensions === null ? "" : ` (${dimensions} dimensions)`;
  return `${name}${size} in ${vectors}`;
}
