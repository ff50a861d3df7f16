/** Copies of JSON values: what tools and plugins see is their own. */

/** A deep copy of what is JSON already. */
export function copyOf<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    const list = new Array<unknown>(value.length);
    for (let index = 0; index < value.length; index++) list[index] = copyOf(value[index]);
    return list as T;
  }
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    const item = copyOf((value as Record<string, unknown>)[key]);
    if (key === "__proto__") define(copy, key, item);
    else copy[key] = item;
  }
  return copy as T;
}

/** Clients may send `__proto__` as the key that it is for JSON; a plain assignment would set the prototype. */
function define(target: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });
}
