/** What is wrong with the settings that a provider's entry has for its models, or of no effect. */
import { isObject } from "../lib/is-object.ts";
import type { Problem } from "../lib/problem.ts";
import { hint } from "../manifest/issues.ts";
import type { ProviderManifest } from "../manifest/manifest.ts";
import { fits, MODEL_KEYS } from "./settings.ts";

/** Keys that nobody reads: the provider has no settings for its models beside those of the core. */
export function unknownModelKeys(key: string, { models = {} }: ProviderManifest): Problem[] {
  return Object.entries(models).flatMap(([pattern, row]) =>
    Object.keys(row)
      .filter((name) => !MODEL_KEYS.has(name) && !name.startsWith("x-"))
      .map((name) => ({
        path: ["providers", key, "models", pattern, name],
        message: `unknown key${hint(name, [...MODEL_KEYS])}`,
      })),
  );
}

/** Where `parameters` stand beside a package, which calls its provider in its own way. */
export function unusedParameters(key: string, entry: ProviderManifest): Problem[] {
  const at = ["providers", key];
  const places = [at, ...Object.keys(entry.models ?? {}).map((pattern) => [...at, "models", pattern])];
  const holders = [entry, ...Object.values(entry.models ?? {})];
  const message = "packages do not use it: an option that is null in the agent's options is not sent";
  return places
    .filter((_, index) => isObject(holders[index]) && holders[index].parameters !== undefined)
    .map((place) => ({ path: [...place, "parameters"], message }));
}

/** Settings of models that are not used, which may be misspelt. @param used names of all models of the provider */
export function unusedModels(key: string, { models = {} }: ProviderManifest, used: readonly string[]): Problem[] {
  return Object.keys(models)
    .filter((pattern) => !used.some((model) => fits(pattern, model)))
    .map((pattern) => ({
      path: ["providers", key, "models", pattern],
      message: `fits none of the models that are used: ${used.join(", ")}`,
      severity: "warning",
    }));
}
