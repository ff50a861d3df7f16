/** `providerOptions` of requests: which of them an agent lets through, and how they join the agent's own. */
import type { SharedV3ProviderOptions } from "@ai-sdk/provider";
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
 * Checks the `providerOptions` of messages and of their parts in the input of a request.
 *
 * @param input as `buildPrompt` has checked it
 * @param field its name in the request
 */
export function checkInputOptions(allowed: AllowedOptions, input: unknown, field: string): void {
  if (!Array.isArray(input)) return;
  for (let index = 0; index < input.length; index++) {
    const message = input[index] as Record<string, unknown>;
    checkOwn(allowed, message, () => `${field}[${index}]`);
    for (const key of PART_LISTS) {
      const parts = message[key];
      if (!Array.isArray(parts)) continue;
      for (let at = 0; at < parts.length; at++) checkPart(allowed, parts[at], () => `${field}[${index}].${key}[${at}]`);
    }
  }
}

const PART_LISTS = ["content", "parts"] as const;

/** A part, and in a tool's result its output and the parts of that. */
function checkPart(allowed: AllowedOptions, part: unknown, path: () => string): void {
  if (!isObject(part)) return;
  checkOwn(allowed, part, path);
  if (part.type !== "tool-result" || !isObject(part.output)) return;
  const { output } = part;
  checkOwn(allowed, output, () => `${path()}.output`);
  if (output.type !== "content" || !Array.isArray(output.value)) return;
  for (const [index, item] of output.value.entries()) {
    if (isObject(item)) checkOwn(allowed, item, () => `${path()}.output.value[${index}]`);
  }
}

function checkOwn(allowed: AllowedOptions, { providerOptions }: Record<string, unknown>, path: () => string): void {
  if (providerOptions !== undefined) checkProviderOptions(allowed, providerOptions, `${path()}.providerOptions`);
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
