/** Creates model providers from the entries of `providers:`, which name plugins or npm packages. */
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { Problem } from "../lib/problem.ts";
import { formatPath, hint } from "../manifest/issues.ts";
import type { ProviderManifest } from "../manifest/manifest.ts";
import type { Host, ModelProvider, ProviderPlugin } from "../plugin/plugin.ts";
import { CreateError, configProblems, configure, createInstance } from "../registry/create.ts";
import type { Registry } from "../registry/registry.ts";
import type { CassetteIntercept } from "./cassettes/record.ts";
import { secretSettings } from "./cassettes/secrets.ts";
import { createPackageProvider, isPackageName, PackageError } from "./npm-provider.ts";
import { pluginConfig } from "./settings.ts";
import { unknownModelKeys, unusedParameters } from "./settings-problems.ts";

interface ProviderContext {
  registry: Registry;
  host: Host;
  /** Where packages may be installed, in order of preference. */
  folders: readonly string[];
  variableOf?: ((path: readonly (string | number)[]) => string | undefined) | undefined;
  /** The text of a value as written in the manifest, when it refers to a value outside of it. */
  referenceAt?: ((path: readonly (string | number)[]) => string | undefined) | undefined;
  cassettes?: CassetteIntercept | undefined;
}

type ProviderResult = { provider: ModelProvider; problems?: undefined } | { provider: null; problems: Problem[] };

/** Creates the provider of `providers.KEY`. Never throws: failures are returned as problems. */
export async function makeProvider(
  key: string,
  entry: ProviderManifest,
  tools: ProviderContext,
): Promise<ProviderResult> {
  const { use } = entry;
  const plugin = tools.registry.get("provider", use);
  if (plugin === undefined) return makePackageProvider(key, entry, tools);
  const config = pluginConfig(entry, ownKeys(plugin));
  const misplaced = ownKeys(plugin)("models") ? [] : unknownModelKeys(key, entry);
  if (misplaced.length > 0) return { provider: null, problems: misplaced };
  const logger = tools.host.logger.child({ provider: key });
  const { env, signal, onClose, keyv } = tools.host;
  const intercept = interceptOf(key, entry, tools);
  const host = { name: key, logger, env, signal, onClose, keyv, ...(intercept && { intercept }) };
  try {
    return { provider: await createInstance(plugin, config, host) };
  } catch (error) {
    const problems =
      error instanceof CreateError && error.phase === "config"
        ? configProblems(["providers", key], error.message, plugin.config)
        : [{ path: ["providers", key], message: messageOf(error) }];
    return { provider: null, problems };
  }
}

/** Checks the configuration of an unused entry: nothing is created or imported. */
export function configurationProblems(key: string, entry: ProviderManifest, registry: Registry): Problem[] {
  const { use } = entry;
  const plugin = registry.get("provider", use);
  if (plugin === undefined)
    return isPackageName(use) ? packageKeyProblems(key, entry) : [unknownPlugin(key, use, registry)];
  const { problem } = configure(plugin, pluginConfig(entry, ownKeys(plugin)));
  const misplaced = ownKeys(plugin)("models") ? [] : unknownModelKeys(key, entry);
  return problem === null ? misplaced : [...misplaced, ...configProblems(["providers", key], problem, plugin.config)];
}

/** Describes where the key of the provider is set: `providers.openai.apiKey, from the environment variable OPENAI_API_KEY`. */
export function keyPlace(key: string, entry: ProviderManifest, variableOf: ProviderContext["variableOf"]): string {
  const place = isPackageName(entry.use) && isObject(entry.options) ? ["options", "apiKey"] : ["apiKey"];
  const path = ["providers", key, ...place];
  const variable = variableOf?.(path);
  return formatPath(path) + (variable === undefined ? "" : `, from the environment variable ${variable}`);
}

/** Makes a test whether a key is in the plugin's own schema. A plugin without a schema accepts any. */
const ownKeys =
  ({ config }: ProviderPlugin) =>
  (key: string): boolean =>
    config === undefined || Object.hasOwn((config.properties ?? {}) as object, key);

async function makePackageProvider(
  key: string,
  entry: ProviderManifest,
  context: ProviderContext,
): Promise<ProviderResult> {
  const { registry, host, folders, variableOf } = context;
  const { use } = entry;
  const config = pluginConfig(entry);
  const failed = (...problems: Problem[]): ProviderResult => ({ provider: null, problems });
  if (!isPackageName(use)) return failed(unknownPlugin(key, use, registry));
  const misplaced = packageKeyProblems(key, entry);
  if (misplaced.length > 0) return failed(...misplaced);
  // Undici is a hundred files, which only a manifest with a package needs to load.
  const { createFetch } = await import("./fetch/fetch.ts");
  const { fetch, close } = createFetch({
    connectTimeout: entry.timeouts.connect,
    intercept: interceptOf(key, entry, context),
  });
  host.onClose(close);
  try {
    const options = (config.options ?? {}) as Record<string, unknown>;
    return { provider: await createPackageProvider(use, options, { folders, fetch }) };
  } catch (error) {
    if (!(error instanceof PackageError)) throw error;
    if (error.option === undefined) {
      // A name without a scope may also be a misspelt plugin.
      const suggestion = use.includes("/") ? "" : hint(use, registry.names("provider"));
      return failed({ path: ["providers", key, "use"], message: error.message + suggestion });
    }
    const path = ["providers", key, "options", error.option];
    const variable = variableOf?.(path) ?? "that it is read from";
    const message = `is empty, and an agent or a memory uses this provider: set it, or the environment variable ${variable}`;
    return failed({ path, message });
  }
}

/** The interceptor that records or replays the provider, if cassettes are in use. */
function interceptOf(key: string, entry: ProviderManifest, { cassettes, referenceAt }: ProviderContext) {
  return cassettes?.(
    key,
    secretSettings(entry, ["providers", key], (path) => referenceAt?.(path) !== undefined),
  );
}

/** Problems of an entry for a package: it may have the common keys, and `options` for the factory of the package. */
function packageKeyProblems(key: string, entry: ProviderManifest): Problem[] {
  const problems = [...unknownModelKeys(key, entry), ...unusedParameters(key, entry)];
  for (const [name, value] of Object.entries(pluginConfig(entry))) {
    const path = ["providers", key, name];
    if (name === "options") {
      const fits = isObject(value);
      if (!fits) problems.push({ path, message: "must be an object: it is handed to the package's factory" });
    } else {
      problems.push({ path, message: "unknown key: the options of a package go in options" });
    }
  }
  return problems;
}

function unknownPlugin(key: string, use: string, registry: Registry): Problem {
  const suggestion = hint(use, registry.names("provider"));
  return { path: ["providers", key, "use"], message: `no provider plugin "${use}"${suggestion}` };
}
