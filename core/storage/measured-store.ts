/** Wraps a store to count and time its commits, without making anybody wait longer. */
import { CommitConflict } from "../lib/errors.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import type { Store } from "./store.ts";

export const measured = (store: Store, meters: Pick<Meters, "commits" | "commitDurations">): Store => ({
  ...store,
  commit(commit) {
    const started = performance.now();
    const committed = store.commit(commit);
    committed.then(
      () => {
        meters.commits.count("ok");
        meters.commitDurations.observe(performance.now() - started);
      },
      (error) => meters.commits.count(error instanceof CommitConflict ? "conflict" : "error"),
    );
    return committed;
  },
});
