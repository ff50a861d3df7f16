/** `uniqueItems` in one pass: Ajv compares each item with every other one, which takes hours for what fits into a request. */
import type { Ajv2020, FuncKeywordDefinition } from "ajv/dist/2020.js";

/** Puts it in the place of Ajv's own. */
export function useUniqueItems(ajv: Pick<Ajv2020, "removeKeyword" | "addKeyword">): void {
  ajv.removeKeyword("uniqueItems");
  ajv.addKeyword({ keyword: "uniqueItems", type: "array", schemaType: "boolean", before: "items", validate });
}

const validate: NonNullable<FuncKeywordDefinition["validate"]> = (wanted: boolean, items: unknown[]) => {
  if (!wanted) return true;
  const places = new Map<unknown, number>();
  for (const [i, item] of items.entries()) {
    const key = keyOf(item);
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

/** The same for equal values alone: scalars stand for themselves, so that no text of them is made. */
function keyOf(value: unknown): unknown {
  if (typeof value === "string") return `"${value}`;
  return typeof value === "object" && value !== null ? JSON.stringify(value, sorted) : value;
}

/** The keys of an object do not count by their order. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
