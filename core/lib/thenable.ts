/** Recognises values that `await` waits for: promises of this and other realms, and any object with a `then`. */

/** @throws whatever a getter `then` throws */
export const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  ((typeof value === "object" && value !== null) || typeof value === "function") &&
  typeof (value as { then?: unknown }).then === "function";

/** The result of a plugin: a thenable becomes a promise, any other value is returned unchanged. */
export const promised = (given: unknown): unknown => (isThenable(given) ? Promise.resolve(given) : given);
