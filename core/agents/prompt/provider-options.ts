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
  return { providerOptions: value as SharedV3ProviderOptions };
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
