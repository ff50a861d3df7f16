/** Runs work one at a time. All calls during a run share the next run, which sees what they have changed. */
export function sharedRuns<T>(work: () => Promise<T>): () => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | null = null;
  const begin = () => {
    next = null;
    return work();
  };
  return () => {
    if (next === null) {
      next = last.then(begin, begin);
      last = next;
    }
    return next;
  };
}
