/** A store that is simple enough to be right, played beside a real one. */
import assert from "node:assert/strict";
import { CommitConflict } from "../../core/lib/errors.ts";
import type { Store } from "../../core/storage/store.ts";

interface ModelCommit {
  put: [string, string][];
  delete: string[];
  clear: string[];
  add: [string, number][];
  /** As it is before the commits of the same moment, or absent. */
  expect: [string, "now" | "absent"][];
}

interface ModelRow {
  value: string;
  /** The commit that wrote it. */
  writer: symbol;
}

export class ModelStore {
  readonly #store: Store;
  readonly #prefix: string;
  readonly #rows = new Map<string, ModelRow>();

  constructor(store: Store, prefix: string) {
    this.#store = store;
    this.#prefix = prefix;
  }

  /** Commits all at once, and compares who lost and what is there. */
  async play(commits: readonly ModelCommit[]): Promise<void> {
    const before = new Map(this.#rows);
    const stored = new Map((await this.#scan()).map(({ key, revision }) => [key, revision]));
    const real = await Promise.allSettled(
      commits.map(({ put, delete: gone, clear, add, expect }) =>
        this.#store.commit({
          put: put.map(([key, value]) => [this.#key(key), JSON.stringify(value)]),
          delete: gone.map((key) => this.#key(key)),
          clear: clear.map((key) => this.#key(key)),
          add: add.map(([key, delta]) => [this.#key(key), delta]),
          expect: expect.map(([key, what]) => [
            this.#key(key),
            what === "absent" ? null : (stored.get(this.#key(key)) ?? null),
          ]),
        }),
      ),
    );
    const lost = commits.map((commit) => this.#apply(commit, before));
    real.forEach((result, index) => {
      if (result.status === "rejected") assert.ok(result.reason instanceof CommitConflict, String(result.reason));
      assert.equal(result.status === "rejected", lost[index], `commit ${index}`);
    });
    const wanted = [...this.#rows].map(([key, { value }]) => [this.#key(key), value]).sort(byKey);
    assert.deepEqual(
      (await this.#scan()).map(({ key, value }) => [key, value]),
      wanted,
    );
  }

  #apply(commit: ModelCommit, before: ReadonlyMap<string, ModelRow>): boolean {
    const rows = this.#rows;
    const holds = ([key, what]: ModelCommit["expect"][number]) =>
      rows.get(key)?.writer === (what === "absent" ? undefined : before.get(key)?.writer);
    if (!commit.expect.every(holds)) return true;
    const writer = Symbol();
    for (const prefix of commit.clear) for (const key of rows.keys()) if (key.startsWith(prefix)) rows.delete(key);
    for (const key of commit.delete) rows.delete(key);
    for (const [key, value] of commit.put) rows.set(key, { value: JSON.stringify(value), writer });
    for (const [key, delta] of commit.add) {
      rows.set(key, { value: String(Number(rows.get(key)?.value ?? 0) + delta), writer });
    }
    return false;
  }

  #key(name: string): string {
    return this.#prefix + name;
  }

  #scan() {
    return this.#store.scan({ prefix: this.#prefix, limit: 1_000 });
  }
}

const byKey = ([a]: string[], [b]: string[]) => ((a as string) < (b as string) ? -1 : 1);
