/** What can be waited for, as `await` sees it: promises of this and other realms, and whatever else has a `then`. */

/** @throws whatever its `then` throws when it is looked at */
export const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  ((typeof value === "object" && value !== null) || typeof value === "function") &&
  typeof (value as { then?: unknown }).then === "function";

/** What a plugin gives, as a promise where it has to be waited for, and as it is where not. */
export const promised = (given: unknown): unknown => (isThenable(given) ? Promise.resolve(given) : given);
