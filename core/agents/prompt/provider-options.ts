/** Data for the provider in messages and their parts: cache control, and reasoning that it expects back. */
import type { SharedV3ProviderOptions } from "@ai-sdk/provider";
import { invalid } from "../../lib/errors.ts";
import { type Fields, isObject } from "../../lib/is-object.ts";

type Carried = { providerOptions: SharedV3ProviderOptions } | undefined;

/**
 * Reads the field for a part of the prompt; undefined when there is none. Model messages call it `providerOptions`, UI
 * messages `providerMetadata`.
 */
export function readProviderOptions(fields: Fields, field: string, path: string): Carried {
  const value = fields[field];
  if (value === undefined || value === null) return undefined;
  if (!isObject(value) || !Object.values(value).every(isObject))
    throw invalid(`${path}.${field} must be an object of objects, one for each provider`);
  const { thoughts } = (value.penstock ?? {}) as Fields;
  if (thoughts !== undefined) checkThoughts(thoughts, `${path}.${field}.penstock.thoughts`);
  return { providerOptions: value as SharedV3ProviderOptions };
}

/** A thought, with what its provider wants back of it. */
export interface Thought {
  readonly text: string;
  readonly providerMetadata?: SharedV3ProviderOptions | undefined;
}

/** Whether what a provider gave with a call has the thoughts of its answer (`Carried.ofMessage`). */
export const carriesMessage = (given: object): boolean => "message" in given;

/** The thoughts that a call of a reply carries. */
function checkThoughts(thoughts: unknown, path: string): void {
  if (!Array.isArray(thoughts)) throw invalid(`${path} must be array`);
  for (const [index, thought] of thoughts.entries()) {
    if (!isObject(thought) || typeof thought.text !== "string") throw invalid(`${path}[${index}].text must be string`);
    readProviderOptions(thought, "providerMetadata", `${path}[${index}]`);
  }
}

/** Merges metadata; the later takes precedence, key by key: a provider may sign at the end what it named at the start. */
export function mergeMetadata(
  earlier: SharedV3ProviderOptions | undefined,
  later: SharedV3ProviderOptions | undefined,
): SharedV3ProviderOptions | undefined {
  if (earlier === undefined || later === undefined || earlier === later) return later ?? earlier;
  const merged = { ...earlier };
  for (const [provider, values] of Object.entries(later)) merged[provider] = { ...earlier[provider], ...values };
  return merged;
}
