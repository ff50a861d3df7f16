/** One change of a conversation at a time within this process: only other processes can make a commit lose its race. */

export interface KeyedMutex {
  /** Runs `work` when runAll earlier work on these conversations has ended. */
  run<T>(conversations: readonly number[], work: () => Promise<T>): Promise<T>;
}

export function createKeyedMutex(): KeyedMutex {
  /** The end of the work that was asked for last; only of conversations that are being changed. */
  const ends = new Map<number, Promise<unknown>>();

  function runOne<T>(conversation: number, work: () => Promise<T>): Promise<T> {
    const before = ends.get(conversation);
    const result = before === undefined ? work() : before.then(work);
    const end = result
      .catch(() => {})
      .then(() => {
        if (ends.get(conversation) === end) ends.delete(conversation);
      });
    ends.set(conversation, end);
    return result;
  }

  function runAll<T>(conversations: readonly number[], index: number, work: () => Promise<T>): Promise<T> {
    const conversation = conversations[index];
    return conversation === undefined ? work() : runOne(conversation, () => runAll(conversations, index + 1, work));
  }

  return {
    // Always in the same order, so that no two wait for each other.
    run: (conversations, work) =>
      runAll(
        [...new Set(conversations)].sort((a, b) => a - b),
        0,
        work,
      ),
  };
}
