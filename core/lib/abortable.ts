/** Waiting that ends immediately when a signal aborts. */

/** Resolves after `milliseconds`; rejects with the signal's reason when it aborts before. */
export function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return abortable(signal, (resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    return () => clearTimeout(timer);
  });
}

/** Settles like `promise`, or rejects with the signal's reason when it aborts first; `late` gets a value that arrives after that. */
export function untilAborted<T>(
  promise: PromiseLike<T>,
  signal: AbortSignal | undefined,
  late: (value: T) => void = () => undefined,
): Promise<T> {
  return abortable(signal, (resolve, reject) => {
    promise.then((value) => (signal?.aborted ? late(value) : resolve(value)), reject);
    return () => undefined;
  });
}

/** @param begin starts the work, and returns a function that stops it */
function abortable<T>(
  signal: AbortSignal | undefined,
  begin: (resolve: (value: T) => void, reject: (thrown: unknown) => void) => () => void,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      stop();
      reject(signal?.reason);
    };
    const settled = () => signal?.removeEventListener("abort", aborted);
    const stop = begin(
      (value) => {
        settled();
        resolve(value);
      },
      (thrown) => {
        settled();
        reject(thrown);
      },
    );
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted, { once: true });
  });
}
