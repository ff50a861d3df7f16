/** Equality of JSON values as JSON Schema defines it. */
import type { WorkBudget } from "./work.ts";

export function isEqual(a: unknown, b: unknown, work: WorkBudget): boolean {
  work.spend(1);
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
    return a.every((item, index) => isEqual(item, b[index], work));
  }
  const keys = Object.keys(a);
  work.spend(keys.length);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && isEqual(a[key as never], b[key as never], work));
}

/** The indexes of two equal items, or null. Linear: items are compared by their canonical text. */
export function duplicatesIn(items: readonly unknown[], work: WorkBudget): [number, number] | null {
  const indexes = new Map<unknown, number>();
  for (const [index, item] of items.entries()) {
    const key =
      typeof item === "object" && item !== null
        ? canonicalText(item, work)
        : typeof item === "string"
          ? `"${item}`
          : item;
    work.spend(1);
    const before = indexes.get(key);
    if (before !== undefined) return [before, index];
    indexes.set(key, index);
  }
  return null;
}

function canonicalText(value: unknown, work: WorkBudget): string {
  work.spend(1);
  if (typeof value !== "object" || value === null) {
    const text = JSON.stringify(value);
    work.spend(text.length >> 3);
    return text;
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonicalText(item, work)).join()}]`;
  const map = value as Record<string, unknown>;
  const keys = Object.keys(map).sort();
  work.spend(keys.length);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonicalText(map[key], work)}`).join()}}`;
}
