/** Finds settings for models in a provider's entry that are wrong or have no effect. */

import type { SharedV3Warning } from "@ai-sdk/provider";
import type { Logger } from "pino";
import type { Problem } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { hint, type Manifest, type ModelSettingsManifest, type ProviderManifest } from "../manifest/manifest.ts";
import type { ModelSettings } from "../plugin/plugin.ts";
import { knownContextWindow } from "./context-windows.ts";
import { namedModels, splitModelName } from "./names.ts";

// The settings of one model: those of its provider, overridden by those that the manifest has for models of that name.

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
const MODEL_KEYS: ReadonlySet<string> = new Set(["contextWindow", "parameters", "structuredOutput", "prices"]);

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

const fits = (pattern: string, model: string): boolean =>
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

/** Keys that nothing reads: the provider has no model settings beside those of the core. */
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

/** Reports `parameters` beside a package, which builds its requests in its own way. */
export function unusedParameters(key: string, entry: ProviderManifest): Problem[] {
  const at = ["providers", key];
  const places = [at, ...Object.keys(entry.models ?? {}).map((pattern) => [...at, "models", pattern])];
  const holders = [entry, ...Object.values(entry.models ?? {})];
  const message = "packages do not use it: an option that is null in the agent's options is not sent";
  return places
    .filter((_, index) => isObject(holders[index]) && holders[index].parameters !== undefined)
    .map((place) => ({ path: [...place, "parameters"], message }));
}

/** Warnings about the models of a manifest: settings that have no effect, or that will cause trouble. None is an error. */
export function modelWarnings(manifest: Manifest, isPartial = false): Problem[] {
  return [...(isPartial ? [] : unusedModels(manifest)), ...lateFirstBytes(manifest), ...longAnswers(manifest)].map(
    (problem) => ({
      ...problem,
      severity: "warning",
    }),
  );
}

/** Settings for models that are not used: the name may be misspelt. */
function unusedModels(manifest: Manifest): Problem[] {
  const { names, dynamic } = namedModels(manifest);
  if (dynamic) return [];
  const parts = names.map(({ name }) => splitModelName(name));
  return Object.entries(manifest.providers).flatMap(([key, { models = {} }]) => {
    const used = parts.flatMap(({ provider, model }) => (provider === key ? [model] : []));
    // A provider that is not used at all is probably kept for later.
    const unused = Object.keys(models).filter(
      (pattern) => used.length > 0 && !used.some((model) => fits(pattern, model)),
    );
    return unused.map((pattern) => ({
      path: ["providers", key, "models", pattern],
      message: `fits none of the models that are used: ${used.join(", ")}`,
    }));
  });
}

/** The default when `firstByte` is not set: nobody has asked for such a long wait then. */
const DEFAULT_FIRST_BYTE = 90_000;

function lateFirstBytes({ providers, server }: Manifest): Problem[] {
  const { request } = server.limits;
  return Object.entries(providers).flatMap(([key, { timeouts }]) => {
    if (timeouts.firstByte <= Math.max(request, DEFAULT_FIRST_BYTE)) return [];
    const message = `is longer than server.limits.request (${request / 1000} s), which ends requests that do not stream`;
    return [{ path: ["providers", key, "timeouts", "firstByte"], message }];
  });
}

/** Warns about long answers: some servers refuse a call that leaves no room for its prompt. */
function longAnswers({ agents, providers }: Manifest): Problem[] {
  return Object.entries(agents).flatMap(([id, { model, options }]) => {
    const given = options?.maxOutputTokens ?? null;
    const tokens = typeof given === "object" ? given?.default : given;
    if (typeof tokens !== "number") return [];
    const tight = [model].flat().find((name) => tokens >= contextWindowOf(name, providers));
    if (tight === undefined) return [];
    const window = contextWindowOf(tight, providers);
    const message = `leaves no room for a prompt: ${tight} takes ${window} tokens of prompt and answer together`;
    return [{ path: ["agents", id, "options", "maxOutputTokens"], message }];
  });
}

function contextWindowOf(name: string, providers: Manifest["providers"]): number {
  const { provider, model } = splitModelName(name);
  const entry = Object.hasOwn(providers, provider) ? providers[provider] : undefined;
  const window = entry && modelSettings(entry, model).contextWindow;
  return window ?? knownContextWindow(model) ?? Number.POSITIVE_INFINITY;
}

// Logs the warnings of providers, each once for each model: a provider repeats them with every call.

/** Bound of the warnings that are remembered; then nothing new is logged. Providers may include values that change with each request. */
const MAX_WARNINGS = 1000;
const MAX_LENGTH = 1000;

export class WarningLog {
  readonly #seen = new Set<string>();
  readonly #logger: Pick<Logger, "warn">;

  constructor(logger: Pick<Logger, "warn">) {
    this.#logger = logger;
  }

  readonly add = (model: string, text: string): void => {
    const warning = text.slice(0, MAX_LENGTH);
    const key = `${model} ${warning}`;
    if (this.#seen.has(key) || this.#seen.size >= MAX_WARNINGS) return;
    this.#seen.add(key);
    this.#logger.warn({ model, warning }, "model provider warns");
  };
}

export const warningText = (warning: SharedV3Warning): string =>
  warning.type === "other"
    ? warning.message
    : `${warning.type}: ${warning.feature}${warning.details === undefined ? "" : ` (${warning.details})`}`;
