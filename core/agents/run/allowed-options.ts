/** `providerOptions` of requests: which of them an agent lets through, and how they join the agent's own. */
import type {
  LanguageModelV3Message,
  LanguageModelV3ToolResultOutput,
  SharedV3ProviderOptions,
} from "@ai-sdk/provider";
import { invalid } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";

/** Paths as a tree; null is the end of a path, below which everything is allowed. */
export interface AllowedOptions extends ReadonlyMap<string, AllowedOptions | null> {}
interface Growing extends Map<string, Growing | null> {}

/** @param paths with points between their keys: `openai.reasoningEffort` */
export function allowedOptions(paths: readonly string[]): AllowedOptions {
  const root: Growing = new Map();
  for (const path of paths) add(root, path.split("."));
  return root;
}

/** A shorter path allows the longer ones. */
function add(level: Growing, [key, ...rest]: readonly string[]): void {
  const below = level.get(key!);
  if (rest.length === 0) level.set(key!, null);
  else if (below !== null) {
    const next: Growing = below ?? new Map();
    level.set(key!, next);
    add(next, rest);
  }
}

/**
 * Goes no deeper into `value` than the allowed paths do.
 *
 * @param path where `value` stands in the request
 * @throws ServiceError `invalid_input` naming the first option that is not allowed
 */
export function checkProviderOptions(allowed: AllowedOptions, value: unknown, path: string): void {
  if (!isObject(value)) throw invalid(`${path} must be object`);
  for (const [key, below] of Object.entries(value)) {
    const level = allowed.get(key);
    if (level === null) continue;
    const here = `${path}.${key}`;
    if (level === undefined)
      throw invalid(`${here.slice(0, MAX_PATH)} is not allowed: ${describeAllowed(allowed, path)}`);
    checkProviderOptions(level, below, here);
  }
}

/** Clients choose the names of keys, so that messages have a limit. */
const MAX_PATH = 256;

function describeAllowed(allowed: AllowedOptions, path: string): string {
  if (allowed.size === 0) return "this agent takes no provider options from requests";
  return `this agent takes from requests only ${[...allowed.keys()].map((key) => `${path}.${key}`).join(", ")}`;
}

/**
 * Checks the options that messages and their parts carry in the input of a request. Parts of an assistant's message carry what
 * the provider gave with them and wants back (signatures, ids of its own): these pass.
 *
 * @param input as `buildPrompt` has checked it
 * @param field its name in the request
 */
export function checkInputOptions(allowed: AllowedOptions, input: unknown, field: string): void {
  if (!Array.isArray(input)) return;
  for (let index = 0; index < input.length; index++) {
    const message = input[index] as Fields;
    checkOwn(allowed, message, "providerOptions", () => `${field}[${index}]`);
    if (message.role === "assistant") continue;
    for (const [key, carrying] of PART_LISTS) {
      const parts = message[key];
      if (!Array.isArray(parts)) continue;
      for (let at = 0; at < parts.length; at++)
        checkPart(allowed, parts[at], carrying, () => `${field}[${index}].${key}[${at}]`);
    }
  }
}

type Fields = Record<string, unknown>;

/** The parts of model messages and of UI messages, and the fields in which these carry options. */
const PART_LISTS = [
  ["content", ["providerOptions"]],
  ["parts", ["providerOptions", "providerMetadata"]],
] as const;

/** A part, and in a tool's result its output and the parts of that. */
function checkPart(allowed: AllowedOptions, part: unknown, carrying: readonly string[], path: () => string): void {
  if (!isObject(part)) return;
  for (const key of carrying) checkOwn(allowed, part, key, path);
  if (part.type !== "tool-result" || !isObject(part.output)) return;
  const { output } = part;
  checkOwn(allowed, output, "providerOptions", () => `${path()}.output`);
  if (output.type !== "content" || !Array.isArray(output.value)) return;
  for (const [index, item] of output.value.entries())
    if (isObject(item)) checkOwn(allowed, item, "providerOptions", () => `${path()}.output.value[${index}]`);
}

function checkOwn(allowed: AllowedOptions, fields: Fields, key: string, path: () => string): void {
  const value = fields[key];
  // Null is nothing to the readers of the input too.
  if (value !== undefined && value !== null) checkProviderOptions(allowed, value, `${path()}.${key}`);
}

/**
 * Takes out of a prompt what no request may ask for: stored messages may have been saved by a client. Parts of an assistant's message
 * keep what a provider gives out (signatures, ids of its own); that it caches something is no answer of a provider.
 *
 * @param prompt as it was read from the input and the conversation; its parts are changed
 */
export function keepAllowed(allowed: AllowedOptions, prompt: readonly LanguageModelV3Message[]): void {
  for (const message of prompt) {
    keepIn(message, allowed);
    if (message.role === "system") continue;
    const isAnswer = message.role === "assistant";
    for (const part of message.content) {
      if (part.type === "tool-approval-response") continue;
      keepIn(part, allowed, isAnswer);
      if (part.type === "tool-result") keepInResult(part, allowed);
    }
  }
}

type Carrier = { providerOptions?: SharedV3ProviderOptions | undefined };

function keepIn(carrier: Carrier, allowed: AllowedOptions, isAnswer = false): void {
  const { providerOptions } = carrier;
  if (providerOptions === undefined) return;
  const kept = Object.entries(providerOptions).map(([provider, values]) => {
    const level = allowed.get(provider);
    const given = Object.entries(values).filter(([key]) => isAnswer && !ASKS_FOR_CACHE.test(key));
    return [provider, level === null ? values : { ...Object.fromEntries(given), ...permitted(level, values) }] as const;
  });
  const some = kept.filter(([, values]) => Object.keys(values).length > 0);
  carrier.providerOptions = some.length === 0 ? undefined : (Object.fromEntries(some) as SharedV3ProviderOptions);
}

/** Anthropic's `cacheControl`, `cache_control` of others, `cachePoint` of Bedrock: what is cached costs more. */
const ASKS_FOR_CACHE = /^cache/i;

function permitted(allowed: AllowedOptions | undefined, value: object): Record<string, unknown> {
  const kept = Object.entries(value).flatMap(([key, below]): [string, unknown][] => {
    const level = allowed?.get(key);
    if (level === null) return [[key, below]];
    return level === undefined || !isObject(below) ? [] : [[key, permitted(level, below)]];
  });
  return Object.fromEntries(kept);
}

function keepInResult(part: { output: LanguageModelV3ToolResultOutput }, allowed: AllowedOptions): void {
  if (part.output.type !== "content" && part.output.providerOptions === undefined) return;
  // The value may be that of the request, which the history has too.
  const output = { ...part.output };
  keepIn(output as Carrier, allowed);
  if (output.type === "content")
    output.value = output.value.map((item) => {
      const own = { ...item };
      keepIn(own as Carrier, allowed);
      return own;
    });
  part.output = output;
}

/** `over` takes precedence, option by option: what an operator has set stays where the request says nothing of it. */
export function mergeProviderOptions(
  base: SharedV3ProviderOptions | undefined,
  over: SharedV3ProviderOptions | undefined,
): SharedV3ProviderOptions | undefined {
  if (base === undefined || over === undefined) return over ?? base;
  return mergeObjects(base, over) as SharedV3ProviderOptions;
}

/** `fromEntries` defines its keys, so that one called `__proto__` is a key like any other. */
function mergeObjects(base: object, over: object): object {
  const merged = new Map<string, unknown>(Object.entries(base));
  for (const [key, value] of Object.entries(over)) {
    const below = merged.get(key);
    merged.set(key, isObject(below) && isObject(value) ? mergeObjects(below, value) : value);
  }
  return Object.fromEntries(merged);
}
