/** Copies JSON values, so that tools and plugins may change their arguments. */

/** A deep copy of a value that is JSON. */
export function cloneJson<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    const list = value.slice();
    for (let index = 0; index < list.length; index++) {
      const item: unknown = list[index];
      if (typeof item === "object" && item !== null) list[index] = cloneJson(item);
    }
    return list as T;
  }
  // A spread copies a key `__proto__`, which clients may send, as an ordinary key, as it is in JSON.
  const copy = { ...value } as Record<string, unknown>;
  for (const key in copy) {
    const item = copy[key];
    if (typeof item === "object" && item !== null) copy[key] = cloneJson(item);
  }
  return copy as T;
}
