/** Finds settings for models in a provider's entry that are wrong or have no effect. */
import { isObject } from "../lib/is-object.ts";
import type { Problem } from "../lib/problem.ts";
import { hint } from "../manifest/issues.ts";
import type { Manifest, ProviderManifest } from "../manifest/manifest.ts";
import { knownContextWindow } from "./context-windows.ts";
import { namedModels, splitModelName } from "./names.ts";
import { fits, MODEL_KEYS, modelSettings } from "./settings.ts";

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
