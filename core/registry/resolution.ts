/**
 * Makes `#plugin`, its long name `penstock-gateway/plugin`, and TypeScript work for plugin files anywhere on the disk, in ES modules
 * and CommonJS alike. Inside the project package.json maps both names; a folder elsewhere has another package.json, or none, which
 * makes its files CommonJS. Every import leads to the same module that core uses, so that a `ServiceError` of a plugin is an instance
 * of core's class.
 */

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import Module, { createRequire } from "node:module";
import { dirname, extname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import * as plugin from "../plugin/plugin.ts";
import { foldersIn, sourcesIn } from "./sources.ts";

/*
 * Plugins with top-level `await`. Only ES modules may have it; in a folder whose package.json does not declare ES modules, tsx treats
 * files as CommonJS. If one file has it, all files of its plugin folder are loaded as ES modules.
 */

/** Folders that have the hook already: all services of a process share the module system. */
const loadedAsModules = new Set<string>();

/** @param files of plugins that tsx will load */
async function allowWaiting(files: readonly string[]): Promise<void> {
  const roots = [...new Set(files.map((file) => dirname(dirname(file))))].filter((root) => !loadedAsModules.has(root));
  for (const root of roots) {
    if (!(await waitsSomewhere(root))) continue;
    await registerHook(moduleHook(root));
    loadedAsModules.add(root);
  }
}

async function waitsSomewhere(root: string): Promise<boolean> {
  const sources = foldersIn(root)
    .filter((folder) => !isModulePackage(folder))
    .flatMap(sourcesIn)
    .filter((file) => /\.[jt]s$/.test(file));
  const waiting = await Promise.all(sources.map(waits));
  return waiting.includes(true);
}

/** Whether the nearest package.json says that files are ES modules. */
function isModulePackage(folder: string): boolean {
  for (let above = folder; ; above = dirname(above)) {
    try {
      return JSON.parse(readFileSync(join(above, "package.json"), "utf8")).type === "module";
    } catch {
      if (dirname(above) === above) return false;
    }
  }
}

/** The esbuild that tsx uses. */
export function loadEsbuild(): typeof import("esbuild") {
  const tsx = createRequire(import.meta.url).resolve("tsx/package.json");
  return createRequire(tsx)("esbuild");
}

async function waits(file: string): Promise<boolean> {
  const source = await readFile(file, "utf8").catch(() => "");
  // Most files use await only inside functions, which only a parser can tell.
  if (!/\bawait\b/.test(source)) return false;
  const { transform } = loadEsbuild();
  const loader = extname(file) === ".ts" ? "ts" : "js";
  return transform(source, { loader, format: "cjs", logLevel: "silent" }).then(
    () => false,
    ({ errors = [] }: { errors?: { text: string }[] }) => errors.some(({ text }) => text.startsWith("Top-level await")),
  );
}

/** A file without import and export may be CommonJS, and is left unchanged. */
const moduleHook = (root: string) => `import { readFileSync } from "node:fs";
const root = ${JSON.stringify(`${pathToFileURL(root).href}/`)}; export const resolve = (specifier, context, next) => {
  const found = next(specifier, context);
  return found instanceof Promise ? found.then(asModule) : asModule(found);
};
const asModule = (found) => {
  // tsx marks what it takes for CommonJS in the address.
  const url = found.url.replace(/%3Ftsx-commonjs-.*$/, "");
  const [path] = url.split("?");
  if (!path.startsWith(root) || path.includes("/node_modules/") || !/\\.[jt]s$/.test(path)) return found;
  const isModule = /^\\s*(?:import\\b(?!\\s*\\()|export\\b)/m.test(readFileSync(new URL(path), "utf8"));
  return isModule ? { ...found, url, format: "module" } : found;
};`;

const SPECIFIERS = ["#plugin", "penstock-gateway/plugin"];
/** Set once per process, because all services in it share the module system. */
const RESOLVES = Symbol.for("penstock.resolves");
const TRANSLATES = Symbol.for("penstock.translates");
const EXAMPLES = fileURLToPath(new URL("../../plugins/", import.meta.url));
const TYPESCRIPT = /\.m?ts$/;

type Load = (request: string, parent: unknown, isMain: boolean) => unknown;
type ResolveFilename = (request: string, ...rest: unknown[]) => string;
interface Internals {
  _load: Load;
  _resolveFilename: ResolveFilename;
  [RESOLVES]?: Promise<void>;
  [TRANSLATES]?: Promise<void>;
}

/** Must be called before importing `files`. */
export async function prepareResolution(files: readonly string[]): Promise<void> {
  // A bundle runs without tsx until there is a TypeScript plugin; the sources cannot run without it.
  const sources = TYPESCRIPT.test(import.meta.url);
  // Examples beside the sources find `#plugin` through the package.json there.
  if (files.every((file) => sources && file.startsWith(EXAMPLES))) return;
  // Under tsx, which runs the sources, Node does not recognise an ES module in a .js file by its syntax: tsx has to.
  const translated = sources ? /\.m?ts$|\.js$/ : TYPESCRIPT;
  const internals = Module as unknown as Internals;
  if (files.some((file) => translated.test(file))) internals[TRANSLATES] ??= registerTypeScript(sources);
  await internals[TRANSLATES];
  internals[RESOLVES] ??= registerImport(internals);
  await internals[RESOLVES];
  // Without tsx, Node itself recognises ES modules by their syntax.
  if (sources || internals[TRANSLATES]) await allowWaiting(files);
}

async function registerTypeScript(sources: boolean): Promise<void> {
  const { register: registerRequire } = await import("tsx/cjs/api");
  registerRequire();
  if (sources) return;
  const { register: registerEsm } = await import("tsx/esm/api");
  registerEsm();
}

/**
 * The result of `require.resolve("#plugin")`. A CommonJS file that was imported resolves its requires first and passes files to
 * the ES loader, which does not use `_load`; native modules, recognised by their extension, still go through `_load`.
 */
const NO_FILE = "/penstock/plugin.node";

function patchRequire(internals: Internals): void {
  const load = internals._load;
  const resolve = internals._resolveFilename;
  internals._load = function (this: unknown, request, parent, isMain) {
    return SPECIFIERS.includes(request) ? plugin : load.call(this, request, parent, isMain);
  };
  internals._resolveFilename = function (this: unknown, request, ...rest) {
    return SPECIFIERS.includes(request) ? NO_FILE : resolve.call(this, request, ...rest);
  };
}

/** Hooks give addresses: this one gives that of a module that gets core's through `require`. */
async function registerImport(internals: Internals): Promise<void> {
  patchRequire(internals);
  const names = Object.keys(plugin).map((name) => `export const ${name} = plugin.${name};`);
  const bridge = dataModule(
    `import { createRequire } from "node:module";
const plugin = createRequire(${JSON.stringify(import.meta.url)})("${SPECIFIERS[0]}");
${names.join("\n")}`,
  );
  const hooks = `export const resolve = (specifier, context, next) =>
  ${JSON.stringify(SPECIFIERS)}.includes(specifier) ? { url: ${JSON.stringify(bridge)}, format: "module", shortCircuit: true } : next(specifier, context);`;
  await registerHook(hooks);
}

async function registerHook(source: string): Promise<void> {
  const url = dataModule(source);
  // In this thread. Node 20 can only have hooks in another one, of which newer versions warn.
  const { registerHooks } = Module as { registerHooks?(hooks: object): void };
  if (registerHooks === undefined) Module.register(url);
  else registerHooks(await import(url));
}

const dataModule = (source: string) => `data:text/javascript,${encodeURIComponent(source)}`;
