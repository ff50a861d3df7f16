/** Many calls, few trips: what is asked for while the event loop turns once, or while a trip is on its way, travels together. */

interface Batch<I, O> {
  (input: I): Promise<O>;
  /** Settles when nothing is asked for and nothing is on its way. */
  idle(): Promise<void>;
}

interface BatchOptions<I> {
  /** The most weight that travels together, and the weight of one call; default 1 each. A heavier call travels alone. */
  limit: number;
  weigh?: (input: I) => number;
}

interface Call<I, O> {
  readonly input: I;
  resolve(value: O): void;
  reject(error: unknown): void;
}

/**
 * One trip at a time. After each it waits for one poll phase: those whose calls were answered ask for the next thing then, and
 * without the wait they would settle into two half groups that take turns.
 *
 * @param run gives a result for each input, in order; an Error in its place rejects that call alone. A rejection rejects all
 */
export function createBatch<I, O>(
  run: (inputs: readonly I[]) => Promise<readonly (O | Error)[]>,
  options: BatchOptions<I>,
): Batch<I, O> {
  const { limit, weigh = () => 1 } = options;
  let waiting: Call<I, O>[] = [];
  let busy = false;
  const idlers: (() => void)[] = [];

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

  async function trip(): Promise<void> {
    const calls = take();
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
    // The first ends this turn of the loop, the second comes after the next poll phase.
    setImmediate(setImmediate, next);
  }

  function next(): void {
    if (waiting.length > 0) {
      void trip();
      return;
    }
    busy = false;
    for (const idler of idlers.splice(0)) idler();
  }

  const call = (input: I): Promise<O> =>
    new Promise((resolve, reject) => {
      waiting.push({ input, resolve, reject });
      if (busy) return;
      busy = true;
      setImmediate(next);
    });

  return Object.assign(call, {
    idle: () => (busy ? new Promise<void>((resolve) => idlers.push(resolve)) : Promise.resolve()),
  });
}
