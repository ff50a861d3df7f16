/** Waiting: for what another function settles, and at the longest for some time or until a signal aborts. */
import { type Aborts, abortsOf } from "./aborts.ts";

/** A promise that is settled from outside. */
export class Deferred<T = void> {
  resolve!: (value: T) => void;
  reject!: (reason: unknown) => void;
  readonly promise = new Promise<T>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });
}

/** Resolves after `milliseconds`; rejects with the signal's reason when it aborts before. */
export const pause = (milliseconds: number, signal: AbortSignal | undefined): Promise<void> =>
  timed(milliseconds, (passed) => untilAborted(passed, signal));

/** Settles like the work, at the latest after `milliseconds`. */
export const within = async (milliseconds: number, work: Promise<unknown>): Promise<void> =>
  void (await timed(milliseconds, (passed) => Promise.race([work, passed])));

function timed<T>(milliseconds: number, wait: (passed: Promise<void>) => Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const passed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  return wait(passed).finally(() => clearTimeout(timer));
}

/** Settles like `promise`, or rejects with the reason of `work` when that aborts first; `late` gets a value that arrives after that. */
export function untilAborted<T>(
  promise: PromiseLike<T>,
  work: AbortSignal | Aborts | undefined,
  late: (value: T) => void = ignore,
): Promise<T> {
  const aborts = work instanceof AbortSignal ? abortsOf(work) : work;
  return new Promise((resolve, reject) => {
    let isAborted = false;
    const listener = {
      aborted(reason: unknown) {
        isAborted = true;
        reject(reason);
      },
    };
    promise.then(
      (value) => {
        if (isAborted) late(value);
        else {
          aborts?.remove(listener);
          resolve(value);
        }
      },
      (thrown) => {
        aborts?.remove(listener);
        reject(thrown);
      },
    );
    aborts?.add(listener);
  });
}

const ignore = () => undefined;
