/** Which embedding an index was built with. Vectors of two models cannot be compared, so that a change of the model needs a rebuild. */
import { CommitConflict, unavailable } from "../../lib/errors.ts";
import type { Row, Store } from "../../storage/store.ts";

export interface IndexSettings {
  readonly provider: string;
  readonly model: string;
  /** Null until the first vector, for providers that do not say it before. */
  readonly dimensions: number | null;
  /** `exact`, or the name of a plugin. */
  readonly vectors: string;
}

interface StoredState extends IndexSettings {
  /** False while the index is rebuilt. */
  readonly complete: boolean;
  /** Messages were saved while the memory had no semantic search, and are not found. */
  readonly gaps: boolean;
}

const REINDEX_HINT = "run penstock reindex";

export class IndexState {
  readonly #store: Store;
  readonly #key: string;
  #stored: StoredState;
  #revision: number;
  /** Of the row that was read last. */
  #seen: number | undefined;
  #problem: string | null = null;

  private constructor(store: Store, key: string, stored: StoredState, revision: number) {
    this.#store = store;
    this.#key = key;
    this.#stored = stored;
    this.#revision = revision;
  }

  /** @returns the state, or why the index cannot be used, as a message for the author of the manifest */
  static async open(store: Store, key: string, made: IndexSettings): Promise<IndexState | { problem: string }> {
    let row = await store.get(key);
    if (row === undefined) {
      try {
        return await IndexState.#write(store, key, { ...made, complete: true, gaps: false }, null);
      } catch (error) {
        // Another process that starts at the same time was first.
        if (!(error instanceof CommitConflict)) throw error;
        row = (await store.get(key))!;
      }
    }
    const stored = JSON.parse(row.value) as StoredState;
    const problem = difference(stored, made);
    return problem === null ? new IndexState(store, key, stored, row.revision) : { problem };
  }

  /** Begins to rebuild an index, whatever exists of it. It is not `complete` until `finish`. */
  static async begin(store: Store, key: string, made: IndexSettings): Promise<IndexState> {
    const row = await store.get(key);
    return IndexState.#write(store, key, { ...made, complete: false, gaps: false }, row?.revision ?? null);
  }

  /** For a memory without semantic search: notes in its index, if it has one, that messages saved from now on are missing from it. */
  static async markGaps(store: Store, key: string): Promise<void> {
    const row = await store.get(key);
    if (row === undefined) return;
    const stored = JSON.parse(row.value) as StoredState;
    if (!stored.gaps) await IndexState.#write(store, key, { ...stored, gaps: true }, row.revision);
  }

  static async #write(store: Store, key: string, stored: StoredState, revision: number | null): Promise<IndexState> {
    const written = await store.commit({ put: [[key, JSON.stringify(stored)]], expect: [[key, revision]] });
    return new IndexState(store, key, stored, written);
  }

  get key(): string {
    return this.#key;
  }

  get gaps(): boolean {
    return this.#stored.gaps;
  }

  /** For commits of vectors: they fail when somebody has begun to rebuild the index. */
  get expectation(): readonly [key: string, revision: number] {
    return [this.#key, this.#revision];
  }

  /** Checks the row as it is now. @throws ServiceError while the index is rebuilt, and when it was rebuilt with other settings */
  check(row: Row | undefined): void {
    if (row?.revision !== this.#seen) this.#update(row);
    if (this.#problem !== null) throw unavailable(`semantic search is not available: ${this.#problem}`);
  }

  #update(row: Row | undefined): void {
    this.#seen = row?.revision;
    const stored = row === undefined ? null : (JSON.parse(row.value) as StoredState);
    if (stored?.complete === false) {
      this.#problem = `its index is made anew; if that was interrupted, ${REINDEX_HINT} again`;
      return;
    }
    this.#problem = stored === null ? "its index is gone" : difference(stored, this.#stored);
    if (this.#problem === null) {
      this.#stored = stored!;
      this.#revision = row!.revision;
    } else this.#problem += "; another process has rebuilt it, restart this one";
  }

  /** Reads the row and checks it. */
  async refresh(): Promise<void> {
    this.check(await this.#store.get(this.#key));
  }

  /** Stores the dimensions of the first vectors. @throws Error when they differ from those in the index */
  async setDimensions(dimensions: number): Promise<void> {
    const known = this.#stored.dimensions;
    if (known === dimensions) return;
    if (known !== null) {
      throw new Error(`the vectors have ${dimensions} dimensions, those in the index ${known}: ${REINDEX_HINT}`);
    }
    await this.#change({ dimensions });
  }

  async finish(): Promise<void> {
    await this.#change({ complete: true });
  }

  async #change(change: Partial<StoredState>): Promise<void> {
    const written = await IndexState.#write(this.#store, this.#key, { ...this.#stored, ...change }, this.#revision);
    this.#stored = written.#stored;
    this.#revision = written.#revision;
  }
}

/** Why an index cannot serve what the manifest asks for; null when it can. */
function difference(stored: StoredState, made: IndexSettings): string | null {
  if (!stored.complete)
    return `the index is not complete, since penstock reindex was interrupted: ${REINDEX_HINT} again`;
  const same =
    stored.provider === made.provider &&
    stored.model === made.model &&
    stored.vectors === made.vectors &&
    (stored.dimensions === null || made.dimensions === null || stored.dimensions === made.dimensions);
  return same
    ? null
    : `the index was made with ${describe(stored)}, and the manifest says ${describe(made)}: ${REINDEX_HINT}`;
}

function describe({ provider, model, dimensions, vectors }: IndexSettings): string {
  const name = model === "" ? provider : `${provider}/${model}`;
  const size = dimensions === null ? "" : ` (${dimensions} dimensions)`;
  return `${name}${size} in ${vectors}`;
}
