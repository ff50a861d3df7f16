/** A mutex for each key: work on the same key runs one after the other, within this process. */

export interface KeyedMutex<K = number> {
  /** Runs `work` when all earlier work on these keys has ended. */
  run<T>(keys: readonly K[], work: () => Promise<T>): Promise<T>;
}

export function createKeyedMutex<K extends number | string = number>(): KeyedMutex<K> {
  /** The end of the latest work of each key; keys without work have no entry. */
  const ends = new Map<K, Promise<unknown>>();

  function runOne<T>(key: K, work: () => Promise<T>): Promise<T> {
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

  function runAll<T>(keys: readonly K[], index: number, work: () => Promise<T>): Promise<T> {
    const key = keys[index];
    return key === undefined ? work() : runOne(key, () => runAll(keys, index + 1, work));
  }

  return {
    // Always in the same order, so that callers cannot deadlock.
    run: (keys, work) =>
      keys.length === 1
        ? runOne(keys[0]!, work)
        : runAll(
            [...new Set(keys)].sort((a, b) => (a < b ? -1 : 1)),
            0,
            work,
          ),
  };
}
