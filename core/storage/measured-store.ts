/** Wraps a store to count and time its commits, without making anybody wait longer. */
import { CommitConflict } from "../lib/errors.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

export class MeasuredStore implements Store {
  readonly kind: string;
  readonly presence: Store["presence"];
  readonly wake: Store["wake"];
  readonly watch: Store["watch"];
  readonly watched: Store["watched"];
  readonly held: Store["held"];
  readonly vectors: Store["vectors"];
  readonly #store: Store;
  readonly #meters: Pick<Meters, "commits" | "commitDurations">;

  constructor(store: Store, meters: Pick<Meters, "commits" | "commitDurations">) {
    this.kind = store.kind;
    this.presence = store.presence;
    this.wake = store.wake?.bind(store);
    this.watch = store.watch?.bind(store);
    this.watched = store.watched?.bind(store);
    this.held = store.held?.bind(store);
    this.vectors = store.vectors?.bind(store);
    this.#store = store;
    this.#meters = meters;
  }

  commit(commit: Commit): Promise<number> {
    const started = performance.now();
    const committed = this.#store.commit(commit);
    committed.then(
      () => {
        this.#meters.commits.count("ok");
        this.#meters.commitDurations.observe(performance.now() - started);
      },
      (error) => this.#meters.commits.count(error instanceof CommitConflict ? "conflict" : "error"),
    );
    return committed;
  }

  get(key: string): Promise<Row | undefined> {
    return this.#store.get(key);
  }

  getMany(keys: readonly string[], longest?: number): Promise<(Row | undefined)[]> {
    return this.#store.getMany(keys, longest);
  }

  scan(range: Range): Promise<Row[]> {
    return this.#store.scan(range);
  }

  tail(tail: Tail): Promise<Joined | null> {
    return this.#store.tail(tail);
  }

  problem(): Promise<string | null> {
    return this.#store.problem();
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}
