/**
 * A JSON value that fits a JSON Schema, the same one for the same input: what a scripted model says when it is asked for
 * JSON and no rule applies. It looks at type, properties, required, items, enum, const, default, examples, bounds,
 * formats, local $ref, allOf and the first entry of anyOf and oneOf. It does not look at pattern, uniqueItems, not, if:
 * a schema that leans on those gets a value that does not fit.
 */
import { isObject } from "../../lib/is-object.ts";

type Schema = Record<string, unknown>;

/** Schemas come from clients: what is made from them is bounded, whatever `minItems` and `minLength` ask for. */
const MOST_NODES = 5000;
const MOST_ITEMS = 100;
const MOST_CHARACTERS = 10_000;
const DEEPEST = 32;
/** Optional properties are filled in down to here; a schema that refers to itself ends below. */
const DEEPEST_OPTIONAL = 3;

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

/** A number that is given and finite, else the other. */
const numberOr = <T>(value: unknown, other: T): number | T => (typeof value === "number" ? value : other);

/**
 * @param hint a value to take from wherever it has the right type: the user's JSON, or a tool's output
 * @param text what strings say
 */
export function fitSchema(schema: unknown, hint: unknown, text: string): unknown {
  const budget = { nodes: MOST_NODES };
  const root = schema;

  function fit(raw: unknown, hinted: unknown, depth: number): unknown {
    if (!isObject(raw) || --budget.nodes < 0 || depth > DEEPEST) return hinted ?? null;
    const node = flatten(raw, root, budget);
    if ("const" in node) return node.const;
    if (Array.isArray(node.enum)) return node.enum.includes(hinted) ? hinted : (node.enum[0] ?? null);
    const type = typeOf(node);
    if (hinted === undefined && type !== "object" && "default" in node) return node.default;
    if (hinted === undefined && Array.isArray(node.examples) && node.examples.length > 0) return node.examples[0];
    switch (type) {
      case "object":
        return fitObject(node, isObject(hinted) ? hinted : {}, depth);
      case "array":
        return fitArray(node, Array.isArray(hinted) ? hinted : [], depth);
      case "string":
        return fitString(node, hinted, text);
      case "integer":
      case "number":
        return fitNumber(node, hinted, type === "integer");
      case "boolean":
        return typeof hinted === "boolean" ? hinted : true;
      default:
        return null;
    }
  }

  function fitObject(node: Schema, hinted: Schema, depth: number): unknown {
    // Keys come from clients: without a prototype `__proto__` is a key like any other.
    const value: Record<string, unknown> = Object.create(null);
    const properties = isObject(node.properties) ? node.properties : {};
    const required = new Set(Array.isArray(node.required) ? node.required : []);
    for (const key of Object.keys(properties)) {
      const given = Object.hasOwn(hinted, key) ? hinted[key] : undefined;
      if (!required.has(key) && given === undefined && depth >= DEEPEST_OPTIONAL) continue;
      value[key] = fit(properties[key], given, depth + 1);
    }
    for (const key of required) {
      if (typeof key === "string" && !(key in value)) {
        const others = isObject(node.additionalProperties) ? node.additionalProperties : { type: "string" };
        value[key] = fit(others, Object.hasOwn(hinted, key) ? hinted[key] : undefined, depth + 1);
      }
    }
    return value;
  }

  function fitArray(node: Schema, hinted: unknown[], depth: number): unknown[] {
    const least = Math.min(numberOr(node.minItems, 0), MOST_ITEMS);
    const most = Math.min(numberOr(node.maxItems, MOST_ITEMS), MOST_ITEMS);
    const heads = Array.isArray(node.prefixItems) ? node.prefixItems : [];
    const wanted = Math.max(hinted.length || Math.max(heads.length, 1), least);
    const count = Math.min(wanted, most, node.items === false ? heads.length : MOST_ITEMS);
    const items: unknown[] = [];
    for (let index = 0; index < count && budget.nodes > 0; index++) {
      items.push(fit(heads[index] ?? node.items ?? { type: "string" }, hinted[index], depth + 1));
    }
    return items;
  }

  return fit(schema, hint, 0);
}

function fitString(node: Schema, hinted: unknown, text: string): string {
  const format =
    typeof node.format === "string" && Object.hasOwn(FORMATS, node.format) ? FORMATS[node.format] : undefined;
  const wanted = typeof hinted === "string" ? hinted : (format ?? text);
  const least = Math.min(numberOr(node.minLength, 0), MOST_CHARACTERS);
  const characters = [...wanted.slice(0, MOST_CHARACTERS)];
  const cut = characters.slice(0, numberOr(node.maxLength, MOST_CHARACTERS)).join("");
  return characters.length >= least ? cut : cut + "x".repeat(least - characters.length);
}

function fitNumber(node: Schema, hinted: unknown, whole: boolean): number {
  const step = numberOr(node.multipleOf, whole ? 1 : 0);
  const above = numberOr(node.exclusiveMinimum, null);
  const below = numberOr(node.exclusiveMaximum, null);
  const nudge = step > 0 ? step : 0.5;
  const least = Math.max(numberOr(node.minimum, -Infinity), above === null ? -Infinity : above + nudge);
  const most = Math.min(numberOr(node.maximum, Infinity), below === null ? Infinity : below - nudge);
  const inside = Math.min(Math.max(numberOr(hinted, 0), least), most);
  if (step <= 0) return inside;
  const up = Math.ceil(inside / step) * step;
  return up <= most ? up : Math.floor(inside / step) * step;
}

function typeOf(node: Schema): unknown {
  if (Array.isArray(node.type)) return node.type.find((type) => type !== "null") ?? "null";
  if (node.type !== undefined) return node.type;
  if ("properties" in node || "required" in node) return "object";
  if ("items" in node || "prefixItems" in node) return "array";
  return "string";
}

/** The node with its `$ref`, `allOf` and the first usable entry of `anyOf` or `oneOf` laid over it. */
function flatten(node: Schema, root: unknown, budget: { nodes: number }, depth = 0): Schema {
  if (depth > DEEPEST) return node;
  const layers: unknown[] = [];
  if (typeof node.$ref === "string") layers.push(resolve(node.$ref, root));
  if (Array.isArray(node.allOf)) layers.push(...node.allOf.slice(0, MOST_ITEMS));
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

/** What a local reference (`#/$defs/Name`) points to. */
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
