/** The rules of a scripted model: which one applies to a call, and what the model replies. */
import { APICallError } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import {
  compilePluginTemplate,
  type LanguageModelV3CallOptions,
  type LanguageModelV3Prompt,
  type Template,
} from "../../plugin/plugin.ts";
import type { ScriptedReply } from "./answer.ts";

/*
 * Generates a JSON value for a JSON Schema, always the same one for the same input: the answer of a scripted model that is asked
 * for JSON when no rule applies. It supports type, properties, required, items, enum, const, default, examples, bounds,
 * formats, local $ref, allOf and the first entry of anyOf and oneOf. It ignores pattern, uniqueItems, not and if: the value may
 * be invalid for schemas that use those.
 */

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

// The failures of scripted models, in the form of a real provider's failures.

/** The HTTP status that a real provider sends for each reason in error messages. */
const STATUSES: Readonly<Record<string, number>> = {
  "rate limited": 429,
  "timed out": 504,
  overloaded: 503,
  unavailable: 500,
  "refused the request": 400,
};

/** @param error one of the reasons above; any other text is the message of an `unavailable` */
function scriptedFailure(error: string): Error {
  const statusCode = Object.hasOwn(STATUSES, error) ? STATUSES[error]! : 500;
  return new APICallError({ message: error, url: "scripted:", requestBodyValues: {}, statusCode });
}

interface CallConfig {
  tool: string;
  input?: unknown;
}

/** A rule in the manifest. */
export interface ReplyConfig {
  when?: string;
  text?: string;
  call?: CallConfig | CallConfig[];
  object?: unknown;
  error?: string;
  then?: unknown;
}

interface Rule {
  when: RegExp;
  text: Template | undefined;
  calls: readonly { tool: string; input: Template }[] | undefined;
  /** Whether `call` is a single call: then `result` is its output, and otherwise a list of outputs. */
  single: boolean;
  next: Template | undefined;
  error: string | undefined;
}

/** Computes the reply to a call. Throws when a template of the rule fails for this input. */
type Respond = (options: LanguageModelV3CallOptions) => ScriptedReply;

const SCOPE = ["input", "match"];
const ACTIONS = ["text", "call", "object", "error"] as const;

/** @throws Error that names the rule (`replies[2]: ...`) and what is wrong with it */
export function compileReplies(replies: readonly ReplyConfig[], at: string): Respond {
  const rules = replies.map((reply, index) => {
    try {
      return compileRule(reply);
    } catch (error) {
      throw new Error(`${at}[${index}]${(error as Error).message}`);
    }
  });
  return (options) => respond(rules, options);
}

function compileRule(reply: ReplyConfig): Rule {
  const given = ACTIONS.filter((kind) => reply[kind] !== undefined);
  const pair = given.length === 2 && given[0] === "text" && given[1] === "error";
  if (given.length !== 1 && !pair)
    throw new Error(`: exactly one of ${ACTIONS.join(", ")} is needed (error may follow a text)`);
  if (reply.then !== undefined && reply.call === undefined) throw new Error(".then: only a rule with call has one");
  const calls = reply.call === undefined ? undefined : [reply.call].flat();
  const content = reply.text ?? reply.object;
  return {
    when: withField(".when", () => new RegExp(reply.when ?? "", "i")),
    text:
      content === undefined
        ? undefined
        : withField(reply.text === undefined ? ".object" : ".text", () => compilePluginTemplate(content, SCOPE)),
    calls: calls?.map(({ tool, input }) => ({
      tool,
      input: withField(".call.input", () => compilePluginTemplate(input ?? {}, SCOPE)),
    })),
    single: !Array.isArray(reply.call),
    next:
      reply.then === undefined
        ? undefined
        : withField(".then", () => compilePluginTemplate(reply.then, [...SCOPE, "result"])),
    error: reply.error,
  };
}

function withField<T>(field: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`${field}: ${(error as Error).message}`);
  }
}

function respond(rules: readonly Rule[], options: LanguageModelV3CallOptions): ScriptedReply {
  const input = lastUserText(options.prompt);
  for (const rule of rules) {
    const match = rule.when.exec(input);
    if (match === null) continue;
    const scope: Record<string, unknown> = { input, match: Array.from(match, (group) => group ?? "") };
    if (rule.calls === undefined) {
      const reply: ScriptedReply = {};
      if (rule.text !== undefined) reply.text = toText(rule.text(scope));
      if (rule.error !== undefined) reply.failure = scriptedFailure(rule.error);
      return reply;
    }
    const results = toolResults(options.prompt);
    if (results.length > 0) return { text: replyAfterCall(rule, scope, results, options) };
    // Without tools the rule cannot apply.
    if (options.toolChoice?.type === "none" || !options.tools?.length) continue;
    return { calls: rule.calls.map((call) => ({ tool: call.tool, input: call.input(scope) })) };
  }
  return { text: wantsJson(options) ? jsonFor(options, parseObject(input), input) : input };
}

function replyAfterCall(
  rule: Rule,
  scope: Record<string, unknown>,
  results: unknown[],
  options: LanguageModelV3CallOptions,
) {
  const result = rule.single ? results.at(-1) : results;
  if (rule.next !== undefined) return toText(rule.next({ ...scope, result }));
  return wantsJson(options) ? jsonFor(options, result, String(scope.input)) : JSON.stringify(result);
}

const wantsJson = (options: LanguageModelV3CallOptions) => options.responseFormat?.type === "json";

function jsonFor(options: LanguageModelV3CallOptions, hint: unknown, text: string): string {
  const schema = options.responseFormat?.type === "json" ? options.responseFormat.schema : undefined;
  return JSON.stringify(schema === undefined ? (hint ?? { text }) : fitSchema(schema, hint, text));
}

const toText = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function parseObject(text: string): unknown {
  if (!/^\s*[{[]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The text of the last user message; an empty string when there is none. */
function lastUserText(prompt: LanguageModelV3Prompt): string {
  for (let index = prompt.length - 1; index >= 0; index--) {
    const message = prompt[index]!;
    if (message.role !== "user") continue;
    const [first] = message.content;
    if (message.content.length === 1 && first?.type === "text") return first.text;
    return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  }
  return "";
}

/** The outputs of the tools that ran after the last message of the model, in order. */
function toolResults(prompt: LanguageModelV3Prompt): unknown[] {
  const results: unknown[] = [];
  for (let index = prompt.length - 1; index >= 0; index--) {
    const message = prompt[index]!;
    if (message.role !== "tool") break;
    const outputs: unknown[] = [];
    for (const part of message.content) {
      if (part.type !== "tool-result") continue;
      const { output } = part;
      outputs.push(output.type === "execution-denied" ? (output.reason ?? "denied") : output.value);
    }
    results.unshift(...outputs);
  }
  return results;
}
