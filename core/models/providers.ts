/** Creates model providers from the entries of `providers:`, which name plugins or npm packages. */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { messageOf, type Problem } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { formatPath, hint, type ProviderManifest } from "../manifest/manifest.ts";
import type { ModelServer } from "../observability/span.ts";
import type { Host, ModelProvider, ProviderPlugin } from "../plugin/plugin.ts";
import { CreateError, configProblems, configure, createInstance } from "../registry/create.ts";
import type { Registry } from "../registry/registry.ts";
import type { CassetteIntercept } from "./cassettes/intercept.ts";
import { secretSettings } from "./cassettes/secrets.ts";
import { pluginConfig, unknownModelKeys, unusedParameters } from "./settings-problems.ts";

// Creates model providers from AI SDK packages, by their npm name.

/** An error with the name of the option at fault, if any, in `option`. */
class PackageError extends Error {
  override readonly name = "PackageError";
  readonly option: string | undefined;

  constructor(message: string, option?: string) {
    super(message);
    this.option = option;
  }
}

/** `@scope/name` or `name`, and optionally a path inside the package. */
const PACKAGE_NAME = /^((?:@[a-z0-9._~-]+\/)?[a-z0-9][a-z0-9._~-]*)(\/.+)?$/i;
/** Names of options that must not be empty. */
const SECRET_OPTION = /key|token|secret|password/i;

const isPackageName = (name: string): boolean => PACKAGE_NAME.test(name);

interface PackageContext {
  /** Where the package may be installed, in order of preference. */
  readonly folders: readonly string[];
  /** The `fetch` for the provider, unless the options have one. */
  readonly fetch: typeof globalThis.fetch;
}

/**
 * Imports a provider package and calls its factory (`createAnthropic`) with the options.
 *
 * @throws PackageError when it is not installed, has no provider, or an option that is a secret is empty
 */
export async function createPackageProvider(
  name: string,
  options: Record<string, unknown>,
  { folders, fetch }: PackageContext,
): Promise<ModelProvider> {
  const entry = locate(name, folders);
  if (entry === null) {
    throw new PackageError(`the package "${name}" is not installed: run ${installCommand(name)} in ${folders[0]}`);
  }
  const empty = Object.keys(options).find((key) => SECRET_OPTION.test(key) && options[key] === "");
  if (empty !== undefined) throw new PackageError("is empty", empty);
  let namespace: Record<string, unknown>;
  try {
    namespace = (await import(pathToFileURL(entry).href)) as Record<string, unknown>;
  } catch (error) {
    throw new PackageError(`the package "${name}" cannot be loaded: ${messageOf(error)}`);
  }
  const factory = findFactory(namespace, name);
  if (factory === null)
    throw new PackageError(`the package "${name}" is not an AI SDK provider: it exports no create function`);
  try {
    // A copy, because the manifest is frozen and a factory may change its argument.
    return toProvider(factory({ fetch, ...structuredClone(options) }), name);
  } catch (error) {
    if (error instanceof PackageError) throw error;
    throw new PackageError(`the package "${name}" does not take these options: ${messageOf(error)}`);
  }
}

function installCommand(name: string): string {
  const [, root = name] = PACKAGE_NAME.exec(name) ?? [];
  return `npm install ${root}`;
}

/** The file that `import` of the package loads, or null when it is not installed in any of the folders. */
function locate(name: string, folders: readonly string[]): string | null {
  for (const folder of folders) {
    const require = createRequire(join(folder, "package.json"));
    try {
      return require.resolve(name);
    } catch {
      const entry = locateModule(name, require.resolve.paths(name) ?? []);
      if (entry !== null) return entry;
    }
  }
  return null;
}

/** `require.resolve` does not find packages that can only be imported. */
function locateModule(name: string, modules: readonly string[]): string | null {
  const [, root = name, path = ""] = PACKAGE_NAME.exec(name) ?? [];
  for (const parent of modules) {
    const file = join(parent, root, "package.json");
    if (!existsSync(file)) continue;
    const { exports, module, main } = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const target = importTarget(exports, `.${path}`) ?? (path === "" ? (module ?? main ?? "index.js") : path);
    return typeof target === "string" ? join(parent, root, target) : null;
  }
  return null;
}

function importTarget(exports: unknown, path: string): unknown {
  if (typeof exports !== "object" || exports === null) return path === "." ? exports : undefined;
  const map = exports as Record<string, unknown>;
  if (Object.keys(map).some((key) => key.startsWith("."))) return map[path] && importTarget(map[path], ".");
  return importTarget(map.import ?? map.node ?? map.default, ".");
}

type Factory = (options: Record<string, unknown>) => unknown;

/** Finds the create function, such as `createOpenAI` of `@ai-sdk/openai`. Of several, the one that is named like the package. */
function findFactory(namespace: Record<string, unknown>, name: string): Factory | null {
  const plain = (text: string) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  const wanted = plain(name.slice(name.lastIndexOf("/") + 1));
  const rank = (key: string) => (plain(key.slice("create".length)) === wanted ? 0 : 1);
  const keys = Object.keys(namespace).filter((key) => /^create[A-Z]/.test(key) && typeof namespace[key] === "function");
  const [best] = keys.sort((left, right) => rank(left) - rank(right));
  return best === undefined ? null : (namespace[best] as Factory);
}

function toProvider(made: unknown, name: string): ModelProvider {
  const provider = made as Record<string, unknown> | ((id: string) => unknown);
  const own = (provider as Record<string, unknown>)?.languageModel;
  const languageModel = typeof own === "function" ? own.bind(provider) : provider;
  if (typeof languageModel !== "function") {
    throw new PackageError(`the package "${name}" is not an AI SDK provider: what it creates has no languageModel`);
  }
  const members = provider as Record<string, unknown>;
  const embeddingModel = members.embeddingModel ?? members.textEmbeddingModel;
  return {
    languageModel: languageModel as ModelProvider["languageModel"],
    ...(typeof embeddingModel === "function" ? { embeddingModel: embeddingModel.bind(provider) } : {}),
  };
}

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

/** Providers as the conventions for traces name them: by the end of the host of their API, and by the package that speaks to it. */
const PUBLISHED: readonly (readonly [name: string, host: string, packageName?: string])[] = [
  ["openai", "api.openai.com", "@ai-sdk/openai"],
  ["anthropic", "api.anthropic.com", "@ai-sdk/anthropic"],
  ["gcp.gemini", "generativelanguage.googleapis.com", "@ai-sdk/google"],
  ["gcp.vertex_ai", "aiplatform.googleapis.com", "@ai-sdk/google-vertex"],
  ["azure.ai.openai", ".openai.azure.com", "@ai-sdk/azure"],
  ["azure.ai.inference", ".services.ai.azure.com"],
  ["aws.bedrock", ".amazonaws.com", "@ai-sdk/amazon-bedrock"],
  ["ibm.watsonx.ai", ".ml.cloud.ibm.com"],
  ["cohere", "api.cohere.com", "@ai-sdk/cohere"],
  ["mistral_ai", "api.mistral.ai", "@ai-sdk/mistral"],
  ["groq", "api.groq.com", "@ai-sdk/groq"],
  ["deepseek", "api.deepseek.com", "@ai-sdk/deepseek"],
  ["x_ai", "api.x.ai", "@ai-sdk/xai"],
  ["perplexity", "api.perplexity.ai", "@ai-sdk/perplexity"],
  ["moonshot_ai", "api.moonshot.ai", "@ai-sdk/moonshotai"],
];

/** What traces say of a provider. One that is not on the list has the name of the wire that it speaks, or its own. */
export function serverOf(key: string, entry: ProviderManifest): ModelServer {
  const { use, options } = entry;
  const baseURL = entry.baseURL ?? (isObject(options) ? options.baseURL : undefined);
  const url = typeof baseURL === "string" && URL.canParse(baseURL) ? new URL(baseURL) : undefined;
  const host = url?.hostname ?? "";
  const [root] = PACKAGE_NAME.exec(use)?.slice(1) ?? [];
  const found = PUBLISHED.find(([, end]) => host.endsWith(end)) ?? PUBLISHED.find(([, , name]) => name === root);
  const provider = found?.[0] ?? (use === "openai-compatible" ? "openai" : key);
  if (url === undefined) return { provider };
  return { provider, address: host, port: Number(url.port) || (url.protocol === "http:" ? 80 : 443) };
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
