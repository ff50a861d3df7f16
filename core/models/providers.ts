/** From an entry of `providers:` to a model provider: a plugin of ours or the user's, else a package from npm. */

import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { Problem } from "../lib/problem.ts";
import { hint } from "../manifest/issues.ts";
import type { ProviderManifest } from "../manifest/manifest.ts";
import type { Host, ModelProvider } from "../plugin/plugin.ts";
import { CreateError, configProblems, configure, createInstance } from "../registry/create.ts";
import type { Registry } from "../registry/registry.ts";
import { createPackageProvider, isPackageName, PackageError } from "./npm-provider.ts";

export interface ProviderTools {
  registry: Registry;
  host: Host;
  /** Where packages may be installed, first to last. */
  folders: readonly string[];
  variableOf?: ((path: readonly (string | number)[]) => string | undefined) | undefined;
}

type Made = { provider: ModelProvider; problems?: undefined } | { provider: null; problems: Problem[] };

/** Makes the provider of `providers.KEY`. Never throws: what went wrong comes back as problems. */
export async function makeProvider(key: string, entry: ProviderManifest, tools: ProviderTools): Promise<Made> {
  const { use, config } = split(entry);
  const plugin = tools.registry.get("provider", use);
  if (plugin === undefined) return makePackage(key, use, config, tools);
  const logger = tools.host.logger.child({ provider: key });
  const { env, signal, onClose, keyv } = tools.host;
  try {
    return { provider: await createInstance(plugin, config, { name: key, logger, env, signal, onClose, keyv }) };
  } catch (error) {
    const problems =
      error instanceof CreateError && error.phase === "config"
        ? configProblems(["providers", key], error.message)
        : [{ path: ["providers", key], message: messageOf(error) }];
    return { provider: null, problems };
  }
}

/** The problems of an entry that nothing uses: its keys must be right, but nothing is made or imported. */
export function shapeProblems(key: string, entry: ProviderManifest, registry: Registry): Problem[] {
  const { use, config } = split(entry);
  const plugin = registry.get("provider", use);
  if (plugin === undefined) return isPackageName(use) ? packageKeyProblems(key, config) : [unknown(key, use, registry)];
  const { problem } = configure(plugin, config);
  return problem === null ? [] : configProblems(["providers", key], problem);
}

/** Keys that begin with `x-` are the user's own notes. */
function split({ use, ...rest }: ProviderManifest): { use: string; config: Record<string, unknown> } {
  return { use, config: Object.fromEntries(Object.entries(rest).filter(([key]) => !key.startsWith("x-"))) };
}

async function makePackage(
  key: string,
  use: string,
  config: Record<string, unknown>,
  { registry, folders, variableOf }: ProviderTools,
): Promise<Made> {
  const failed = (...problems: Problem[]): Made => ({ provider: null, problems });
  if (!isPackageName(use)) return failed(unknown(key, use, registry));
  const misplaced = packageKeyProblems(key, config);
  if (misplaced.length > 0) return failed(...misplaced);
  try {
    const options = (config.options ?? {}) as Record<string, unknown>;
    const provider = await createPackageProvider(use, options, folders);
    return { provider: typeof config.retries === "number" ? { ...provider, retries: config.retries } : provider };
  } catch (error) {
    if (!(error instanceof PackageError)) throw error;
    if (error.option === undefined) {
      // A short name may also be a plugin that was misspelt.
      const known = use.includes("/") ? "" : hint(use, registry.names("provider"));
      return failed({ path: ["providers", key, "use"], message: error.message + known });
    }
    const path = ["providers", key, "options", error.option];
    const variable = variableOf?.(path) ?? "that it is read from";
    const message = `is empty, and an agent or a memory uses this provider: set it, or the environment variable ${variable}`;
    return failed({ path, message });
  }
}

/** Beside `use`, a package has `options` for its factory, and `retries`. */
function packageKeyProblems(key: string, config: Record<string, unknown>): Problem[] {
  const problems: Problem[] = [];
  for (const [name, value] of Object.entries(config)) {
    const path = ["providers", key, name];
    if (name === "options") {
      const fits = isObject(value);
      if (!fits) problems.push({ path, message: "must be an object: it is handed to the package's factory" });
    } else if (name === "retries") {
      const fits = Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 10;
      if (!fits) problems.push({ path, message: "must be a whole number from 0 to 10" });
    } else {
      problems.push({ path, message: "unknown key: what a package is given goes in options" });
    }
  }
  return problems;
}

function unknown(key: string, use: string, registry: Registry): Problem {
  const known = hint(use, registry.names("provider"));
  return { path: ["providers", key, "use"], message: `no provider plugin "${use}"${known}` };
}
