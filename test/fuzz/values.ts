/** JSON values grown from a schema: right ones mostly, for `mutate.ts` to spoil. */
import { schemas } from "../support/schemas.ts";
import { INPUTS, NAMES } from "./names.ts";
import type { Random } from "./random.ts";

type Schema = Record<string, unknown>;

const DEEPEST = 8;
const REFERENCE = "#/components/schemas/";

/** @param id of `schemas/` */
export const growNamed = (random: Random, id: string): unknown => grow(random, schemas[id] ?? {}, id, DEEPEST);

/** @param name what it is called where it stands, which decides what is free otherwise */
function grow(random: Random, schema: Schema | boolean, name: string, depth: number): unknown {
  if (typeof schema === "boolean" || depth <= 0) return free(random, name, depth);
  if (typeof schema.$ref === "string") {
    return grow(random, schemas[schema.$ref.replace(REFERENCE, "")] ?? {}, name, depth - 1);
  }
  if ("const" in schema) return schema.const;
  if (Array.isArray(schema.examples) && random.chance(0.25)) return structuredClone(random.pick(schema.examples));
  if (Array.isArray(schema.enum)) return random.pick(schema.enum);
  for (const key of ["anyOf", "oneOf"]) {
    const choices = schema[key];
    if (Array.isArray(choices))
      return merged(random, schema, grow(random, random.pick(choices), name, depth - 1), depth);
  }
  const type = Array.isArray(schema.type) ? random.pick(schema.type) : schema.type;
  return ofType(random, type, schema, name, depth);
}

/** What the alternative gave, with what is said beside the alternatives. */
function merged(random: Random, schema: Schema, value: unknown, depth: number): unknown {
  if (schema.properties === undefined || typeof value !== "object" || value === null || Array.isArray(value))
    return value;
  return { ...object(random, schema, depth), ...value };
}

function ofType(random: Random, type: unknown, schema: Schema, name: string, depth: number): unknown {
  if (type === "object") return object(random, schema, depth);
  if (type === "array") {
    const least = Number(schema.minItems ?? 0);
    const count = Math.max(
      least,
      random.weighted([
        [2, 0],
        [6, 1],
        [4, 2],
        [1, 9],
      ]),
    );
    return Array.from({ length: count }, () => grow(random, (schema.items ?? {}) as Schema, singular(name), depth - 1));
  }
  if (type === "string") return text(random, schema, name);
  if (type === "integer" || type === "number") {
    const low = Number(schema.minimum ?? schema.exclusiveMinimum ?? 0);
    const high = Math.min(Number(schema.maximum ?? low + 20), low + 20);
    const value = low + random.next() * (high - low);
    return type === "integer" ? Math.round(value) : value;
  }
  if (type === "boolean") return random.chance(0.5);
  return type === "null" ? null : free(random, name, depth);
}

const singular = (name: string) => name.replace(/s$/, "");

function object(random: Random, schema: Schema, depth: number): Record<string, unknown> {
  const required = new Set((schema.required ?? []) as string[]);
  const grown: Record<string, unknown> = {};
  for (const [key, each] of Object.entries((schema.properties ?? {}) as Record<string, Schema>)) {
    if (required.has(key) || random.chance(0.35)) grown[key] = grow(random, each, key, depth - 1);
  }
  const more = schema.additionalProperties;
  if (more !== undefined && more !== false && random.chance(0.5)) {
    grown[random.pick(["a", "b", "message", "input", "context"])] = grow(random, more as Schema, "", depth - 1);
  }
  return grown;
}

const FORMATS: Readonly<Record<string, string>> = {
  "date-time": "2026-11-20T09:31:12.000Z",
  date: "2026-11-20",
  uri: "https://example.test/a",
};

function text(random: Random, schema: Schema, name: string): string {
  const known = NAMES[name];
  if (known !== undefined) return random.pick(known);
  const format = FORMATS[String(schema.format)];
  if (format !== undefined) return format;
  const least = Number(schema.minLength ?? 0);
  return random
    .pick(["Where is order A-1002?", "x", "Zoë", "# Customer", "hello", "2026-11-20T09:31:12.000Z"])
    .padEnd(least, "y");
}

const SCHEMA = { type: "object", properties: { n: { type: "number" }, text: { type: "string" } } };
/** Methods of the two protocols that have messages of their own, with what they take. */
const CALLS: readonly (readonly [method: string, params: object])[] = [
  [
    "message/send",
    { message: { kind: "message", messageId: "m1", role: "user", parts: [{ kind: "text", text: "Hello" }] } },
  ],
  [
    "message/stream",
    { message: { kind: "message", messageId: "m2", role: "user", parts: [{ kind: "text", text: "Hi" }] } },
  ],
  ["SendMessage", { message: { messageId: "m3", role: "ROLE_USER", parts: [{ text: "Hello" }] } }],
  ["SendStreamingMessage", { message: { messageId: "m4", role: "ROLE_USER", parts: [{ text: "Hello" }] } }],
  ["tasks/get", { id: "t1" }],
  ["GetTask", { id: "t1" }],
  ["ListTasks", {}],
  ["CancelTask", { id: "t1" }],
  ["initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "fuzz", version: "1" } }],
  ["ping", {}],
  ["tools/list", {}],
  ["tools/call", { name: "lookup_order", arguments: { orderId: "A-1002" } }],
  ["tools/call", { name: "agent_support", arguments: { prompt: "Hello" } }],
  ["notifications/cancelled", { requestId: 1 }],
];

export function rpc(random: Random): unknown {
  const [method, params] = random.pick(CALLS);
  const message = {
    jsonrpc: "2.0",
    id: random.pick<unknown>([1, 1, "a", 2 ** 31]),
    method,
    params: structuredClone(params),
  };
  return random.chance(0.08) ? [message, message] : message;
}

/** A value that no schema describes. */
function free(random: Random, name: string, depth: number): unknown {
  if (name === "schema") return structuredClone(SCHEMA);
  if (name === "input" || name === "messages" || name === "arguments" || name === "resumeData") {
    return structuredClone(random.pick(INPUTS));
  }
  if (depth <= 0) return random.pick<unknown>([null, 1, "x"]);
  return random.pick<() => unknown>([
    () => random.pick<unknown>([null, true, 0, -1.5, "x", ""]),
    () => [free(random, "", depth - 3)],
    () => ({ a: free(random, "", depth - 3) }),
  ])();
}
