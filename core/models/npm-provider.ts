/** Creates model providers from AI SDK packages, by their npm name. */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { messageOf } from "../lib/errors.ts";
import type { ModelProvider } from "../plugin/plugin.ts";

/** An error with the name of the option at fault, if any, in `option`. */
export class PackageError extends Error {
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

export const isPackageName = (name: string): boolean => PACKAGE_NAME.test(name);

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
