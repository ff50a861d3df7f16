/** Checks `uniqueItems` in one pass: Ajv compares every pair of items, which takes hours for a list that fits into a request. */
import type { Ajv2020, FuncKeywordDefinition } from "ajv/dist/2020.js";

/** Replaces Ajv's own keyword. */
export function useUniqueItems(ajv: Pick<Ajv2020, "removeKeyword" | "addKeyword">): void {
  ajv.removeKeyword("uniqueItems");
  ajv.addKeyword({ keyword: "uniqueItems", type: "array", schemaType: "boolean", before: "items", validate });
}

const validate: NonNullable<FuncKeywordDefinition["validate"]> = (wanted: boolean, items: unknown[]) => {
  if (!wanted) return true;
  const places = new Map<unknown, number>();
  for (const [i, item] of items.entries()) {
    const key = equalityKey(item);
    const j = places.get(key);
    if (j !== undefined) {
      const message = `must NOT have duplicate items (items ## ${j} and ${i} are identical)`;
      validate.errors = [{ keyword: "uniqueItems", params: { i, j }, message }];
      return false;
    }
    places.set(key, i);
  }
  return true;
};

/** The same key only for equal values. Numbers and booleans are their own key, which needs no text. */
function equalityKey(value: unknown): unknown {
  if (typeof value === "string") return `"${value}`;
  return typeof value === "object" && value !== null ? JSON.stringify(value, sorted) : value;
}

/** Sorts keys, because objects are equal whatever their order. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
