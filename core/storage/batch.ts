/** Groups calls: those of one turn of the event loop, and those that arrive while a group is being processed, form the next group. */

interface Batch<I, O> {
  (input: I): Promise<O>;
  /** Resolves when no call is waiting and no group is being processed. */
  idle(): Promise<void>;
  /** For how many milliseconds the oldest call has waited that has no result yet; 0 without one. */
  oldest(): number;
}

interface BatchOptions<I> {
  /** The greatest weight of a group, and the weight of one call (default: 1). A call that is heavier than the limit is a group alone. */
  limit: number;
  weigh?: (input: I) => number;
}

interface Call<I, O> {
  readonly input: I;
  /** By `performance.now()`. */
  readonly since: number;
  resolve(value: O): void;
  reject(error: unknown): void;
}

/**
 * Processes one group at a time, and then waits for one poll phase: callers that were just answered make their next calls in it.
 * Without the wait, callers would end up in two half groups that take turns.
 *
 * @param run gives a result for each input, in order. An Error as a result rejects that call alone, a rejection rejects all
 */
export function createBatch<I, O>(
  run: (inputs: readonly I[]) => Promise<readonly (O | Error)[]>,
  options: BatchOptions<I>,
): Batch<I, O> {
  const { limit, weigh = () => 1 } = options;
  let waiting: Call<I, O>[] = [];
  let processed: readonly Call<I, O>[] = [];
  let busy = false;
  const idleWaiters: (() => void)[] = [];

  function take(): Call<I, O>[] {
    let weight = 0;
    let count = 0;
    for (const { input } of waiting) {
      weight += weigh(input);
      if (count > 0 && weight > limit) break;
      count++;
    }
    const taken = waiting;
    waiting = count === taken.length ? [] : taken.splice(count);
    return taken;
  }

  async function runGroup(): Promise<void> {
    const calls = take();
    processed = calls;
    try {
      const results = await run(calls.map(({ input }) => input));
      calls.forEach(({ resolve, reject }, index) => {
        const result = results[index] as O | Error;
        if (result instanceof Error) reject(result);
        else resolve(result);
      });
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
    processed = [];
    // The outer `setImmediate` runs in this turn of the event loop, the inner one after the next poll phase.
    setImmediate(setImmediate, next);
  }

  function next(): void {
    if (waiting.length > 0) {
      void runGroup();
      return;
    }
    busy = false;
    for (const waiter of idleWaiters.splice(0)) waiter();
  }

  const call = (input: I): Promise<O> =>
    new Promise((resolve, reject) => {
      waiting.push({ input, since: performance.now(), resolve, reject });
      if (busy) return;
      busy = true;
      setImmediate(next);
    });

  return Object.assign(call, {
    idle: () => (busy ? new Promise<void>((resolve) => idleWaiters.push(resolve)) : Promise.resolve()),
    oldest() {
      const call = processed[0] ?? waiting[0];
      return call === undefined ? 0 : performance.now() - call.since;
    },
  });
}
