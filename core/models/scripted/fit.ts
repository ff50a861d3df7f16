/**
 * Generates a JSON value for a JSON Schema, always the same one for the same input: the answer of a scripted model that is asked
 * for JSON when no rule applies. It supports type, properties, required, items, enum, const, default, examples, bounds,
 * formats, local $ref, allOf and the first entry of anyOf and oneOf. It ignores pattern, uniqueItems, not and if: the value may
 * be invalid for schemas that use those.
 */
import { isObject } from "../../lib/is-object.ts";

type Schema = Record<string, unknown>;

/** Schemas come from clients: the size of the value is bounded, whatever `minItems` and `minLength` ask for. */
const MAX_NODES = 5000;
const MAX_ITEMS = 100;
const MAX_CHARACTERS = 10_000;
const MAX_DEPTH = 32;
/** Optional properties are left out below this depth, so that recursive schemas terminate. */
const MAX_OPTIONAL_DEPTH = 3;

const FORMATS: Readonly<Record<string, string>> = {
  "date-time": "2000-01-01T00:00:00Z",
  date: "2000-01-01",
  time: "00:00:00Z",
  duration: "PT0S",
  email: "someone@example.com",
  hostname: "example.com",
  ipv4: "127.0.0.1",
  ipv6: "::1",
  uri: "https://example.com/",
  "uri-reference": "/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

/** The value if it is a number, else `other`. */
const numberOr = <T>(value: unknown, other: T): number | T => (typeof value === "number" ? value : other);

/**
 * @param hint a value whose parts are used wherever they have the right type: the user's JSON, or the output of a tool
 * @param text used for strings
 */
export function fitSchema(schema: unknown, hint: unknown, text: string): unknown {
  const budget = { nodes: MAX_NODES };
  const root = schema;

  function fit(raw: unknown, hintHere: unknown, depth: number): unknown {
    if (!isObject(raw) || --budget.nodes < 0 || depth > MAX_DEPTH) return hintHere ?? null;
    const node = flatten(raw, root, budget);
    if ("const" in node) return node.const;
    if (Array.isArray(node.enum)) return node.enum.includes(hintHere) ? hintHere : (node.enum[0] ?? null);
    const type = schemaType(node);
    if (hintHere === undefined && type !== "object" && "default" in node) return node.default;
    if (hintHere === undefined && Array.isArray(node.examples) && node.examples.length > 0) return node.examples[0];
    switch (type) {
      case "object":
        return fitObject(node, isObject(hintHere) ? hintHere : {}, depth);
      case "array":
        return fitArray(node, Array.isArray(hintHere) ? hintHere : [], depth);
      case "string":
        return fitString(node, hintHere, text);
      case "integer":
      case "number":
        return fitNumber(node, hintHere, type === "integer");
      case "boolean":
        return typeof hintHere === "boolean" ? hintHere : true;
      default:
        return null;
    }
  }

  function fitObject(node: Schema, hintHere: Schema, depth: number): unknown {
    // Keys come from clients: in an object without a prototype, `__proto__` is a key like any other.
    const value: Record<string, unknown> = Object.create(null);
    const properties = isObject(node.properties) ? node.properties : {};
    const required = new Set(Array.isArray(node.required) ? node.required : []);
    for (const key of Object.keys(properties)) {
      const given = Object.hasOwn(hintHere, key) ? hintHere[key] : undefined;
      if (!required.has(key) && given === undefined && depth >= MAX_OPTIONAL_DEPTH) continue;
      value[key] = fit(properties[key], given, depth + 1);
    }
    for (const key of required) {
      if (typeof key === "string" && !(key in value)) {
        const others = isObject(node.additionalProperties) ? node.additionalProperties : { type: "string" };
        value[key] = fit(others, Object.hasOwn(hintHere, key) ? hintHere[key] : undefined, depth + 1);
      }
    }
    return value;
  }

  function fitArray(node: Schema, hintHere: unknown[], depth: number): unknown[] {
    const minimum = Math.min(numberOr(node.minItems, 0), MAX_ITEMS);
    const maximum = Math.min(numberOr(node.maxItems, MAX_ITEMS), MAX_ITEMS);
    const heads = Array.isArray(node.prefixItems) ? node.prefixItems : [];
    const preferred = Math.max(hintHere.length || Math.max(heads.length, 1), minimum);
    const count = Math.min(preferred, maximum, node.items === false ? heads.length : MAX_ITEMS);
    const items: unknown[] = [];
    for (let index = 0; index < count && budget.nodes > 0; index++) {
      items.push(fit(heads[index] ?? node.items ?? { type: "string" }, hintHere[index], depth + 1));
    }
    return items;
  }

  return fit(schema, hint, 0);
}

function fitString(node: Schema, hintHere: unknown, text: string): string {
  const format =
    typeof node.format === "string" && Object.hasOwn(FORMATS, node.format) ? FORMATS[node.format] : undefined;
  const preferred = typeof hintHere === "string" ? hintHere : (format ?? text);
  const minimum = Math.min(numberOr(node.minLength, 0), MAX_CHARACTERS);
  const characters = [...preferred.slice(0, MAX_CHARACTERS)];
  const cut = characters.slice(0, numberOr(node.maxLength, MAX_CHARACTERS)).join("");
  return characters.length >= minimum ? cut : cut + "x".repeat(minimum - characters.length);
}

function fitNumber(node: Schema, hintHere: unknown, whole: boolean): number {
  const step = numberOr(node.multipleOf, whole ? 1 : 0);
  const above = numberOr(node.exclusiveMinimum, null);
  const below = numberOr(node.exclusiveMaximum, null);
  const nudge = step > 0 ? step : 0.5;
  const minimum = Math.max(numberOr(node.minimum, -Infinity), above === null ? -Infinity : above + nudge);
  const maximum = Math.min(numberOr(node.maximum, Infinity), below === null ? Infinity : below - nudge);
  const inside = Math.min(Math.max(numberOr(hintHere, 0), minimum), maximum);
  if (step <= 0) return inside;
  const up = Math.ceil(inside / step) * step;
  return up <= maximum ? up : Math.floor(inside / step) * step;
}

function schemaType(node: Schema): unknown {
  if (Array.isArray(node.type)) return node.type.find((type) => type !== "null") ?? "null";
  if (node.type !== undefined) return node.type;
  if ("properties" in node || "required" in node) return "object";
  if ("items" in node || "prefixItems" in node) return "array";
  return "string";
}

/** Merges the node with its `$ref`, its `allOf` and the first usable entry of `anyOf` and `oneOf`. */
function flatten(node: Schema, root: unknown, budget: { nodes: number }, depth = 0): Schema {
  if (depth > MAX_DEPTH) return node;
  const layers: unknown[] = [];
  if (typeof node.$ref === "string") layers.push(resolve(node.$ref, root));
  if (Array.isArray(node.allOf)) layers.push(...node.allOf.slice(0, MAX_ITEMS));
  for (const choice of [node.anyOf, node.oneOf]) {
    if (Array.isArray(choice)) layers.push(choice.find((entry) => isObject(entry) && entry.type !== "null"));
  }
  let flat = node;
  for (const layer of layers) {
    if (!isObject(layer) || --budget.nodes < 0) continue;
    const { $ref: _ref, allOf: _all, anyOf: _any, oneOf: _one, ...rest } = flat;
    flat = merge(flatten(layer, root, budget, depth + 1), rest);
  }
  return flat;
}

function merge(under: Schema, over: Schema): Schema {
  const merged: Schema = { ...under, ...over };
  if (isObject(under.properties) && isObject(over.properties)) {
    merged.properties = { ...under.properties, ...over.properties };
  }
  if (Array.isArray(under.required) && Array.isArray(over.required)) {
    merged.required = [...under.required, ...over.required];
  }
  return merged;
}

/** The target of a local reference (`#/$defs/Name`). */
function resolve(reference: string, root: unknown): unknown {
  if (!reference.startsWith("#")) return undefined;
  let node = root;
  for (const raw of reference.slice(1).split("/").slice(1)) {
    const key = raw.replaceAll("~1", "/").replaceAll("~0", "~");
    if ((!isObject(node) && !Array.isArray(node)) || !Object.hasOwn(node, key)) return undefined;
    node = (node as Record<string, unknown>)[key];
  }
  return node;
}
