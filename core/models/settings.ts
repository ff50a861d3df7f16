/** The settings of one model: those of its provider, overridden by those that the manifest has for models of that name. */
import { isObject } from "../lib/is-object.ts";
import type { ModelSettingsManifest, ProviderManifest } from "../manifest/manifest.ts";
import type { ModelSettings } from "../plugin/plugin.ts";

/** Keys of `providers.KEY` that the core reads itself, for every provider. */
const PROVIDER_KEYS: ReadonlySet<string> = new Set([
  "use",
  "timeouts",
  "retries",
  "parameters",
  "structuredOutput",
  "extractReasoning",
  "models",
]);

/** Keys of `providers.KEY.models.PATTERN` that the core reads itself. */
export const MODEL_KEYS: ReadonlySet<string> = new Set(["contextWindow", "parameters", "structuredOutput", "prices"]);

/** @param model the provider's name of the model */
export function modelSettings(provider: ProviderManifest, model: string): ModelSettings {
  const rows = matchingRows(provider.models ?? {}, model);
  const parameters = [provider.parameters, ...rows.map((row) => row.parameters)];
  return {
    timeouts: provider.timeouts,
    extractReasoning: provider.extractReasoning ?? false,
    structuredOutput: last(rows.map((row) => row.structuredOutput)) ?? provider.structuredOutput ?? "auto",
    parameters: {
      omit: parameters.flatMap((each) => each?.omit ?? []),
      rename: Object.assign({}, ...parameters.map((each) => each?.rename)),
    },
    contextWindow: last(rows.map((row) => row.contextWindow)),
    prices: last(rows.map((row) => row.prices)),
  };
}

/** The rows whose pattern matches the name: shorter patterns before longer ones, and the exact name last. */
function matchingRows(models: Record<string, ModelSettingsManifest>, model: string): ModelSettingsManifest[] {
  const fitting = Object.keys(models).filter((pattern) => fits(pattern, model));
  const weight = (pattern: string) => (pattern === model ? Number.POSITIVE_INFINITY : pattern.length);
  return fitting.sort((left, right) => weight(left) - weight(right)).map((pattern) => models[pattern]!);
}

export const fits = (pattern: string, model: string): boolean =>
  pattern.endsWith("*") ? model.startsWith(pattern.slice(0, -1)) : model === pattern;

const last = <T>(values: readonly (T | undefined)[]): T | undefined => values.findLast((value) => value !== undefined);

/**
 * The configuration that is left for the plugin. If the plugin's own schema has one of the core's keys, it gets that too, as `scripted`
 * does with `models`: without the model keys that the core reads, and without rows that had nothing else.
 */
export function pluginConfig(
  { use: _, ...provider }: ProviderManifest,
  isOwn: (key: string) => boolean = () => false,
): Record<string, unknown> {
  const config: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(provider)) {
    if (key.startsWith("x-")) continue;
    if (!PROVIDER_KEYS.has(key)) config[key] = value;
    else if (isOwn(key)) config[key] = key === "models" ? ownModelKeys(value) : value;
  }
  return config;
}

function ownModelKeys(models: unknown): unknown {
  if (!isObject(models)) return models;
  return Object.fromEntries(
    Object.entries(models).flatMap(([name, row]) => {
      if (!isObject(row)) return [[name, row]];
      const entries = Object.entries(row);
      const own = entries.filter(([key]) => !MODEL_KEYS.has(key) && !key.startsWith("x-"));
      return own.length === 0 && entries.length > 0 ? [] : [[name, Object.fromEntries(own)]];
    }),
  );
}
