/** A mutex for each key: work on the same key runs one after the other. Used for changes of conversations within this process. */

export interface KeyedMutex {
  /** Runs `work` when all earlier work on these keys has ended. */
  run<T>(keys: readonly number[], work: () => Promise<T>): Promise<T>;
}

export function createKeyedMutex(): KeyedMutex {
  /** The end of the latest work of each key; keys without work have no entry. */
  const ends = new Map<number, Promise<unknown>>();

  function runOne<T>(key: number, work: () => Promise<T>): Promise<T> {
    const before = ends.get(key);
    const result = before === undefined ? work() : before.then(work);
    const end = result
      .catch(() => {})
      .then(() => {
        if (ends.get(key) === end) ends.delete(key);
      });
    ends.set(key, end);
    return result;
  }

  function runAll<T>(keys: readonly number[], index: number, work: () => Promise<T>): Promise<T> {
    const key = keys[index];
    return key === undefined ? work() : runOne(key, () => runAll(keys, index + 1, work));
  }

  return {
    // Always in the same order, so that callers cannot deadlock.
    run: (keys, work) =>
      keys.length === 1
        ? runOne(keys[0]!, work)
        : runAll(
            [...new Set(keys)].sort((a, b) => a - b),
            0,
            work,
          ),
  };
}
