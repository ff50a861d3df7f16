/**
 * Plugins with top-level `await`. Only ES modules may have it; in a folder whose package.json does not declare ES modules, tsx treats
 * files as CommonJS. If one file has it, all files of its plugin folder are loaded as ES modules.
 */
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire, register } from "node:module";
import { dirname, extname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { foldersIn, sourcesIn } from "./sources.ts";

/** Folders that have the hook already: all services of a process share the module system. */
const loadedAsModules = new Set<string>();

/** @param files of plugins that tsx will load */
export async function allowWaiting(files: readonly string[]): Promise<void> {
  const roots = [...new Set(files.map((file) => dirname(dirname(file))))].filter((root) => !loadedAsModules.has(root));
  for (const root of roots) {
    if (!(await waitsSomewhere(root))) continue;
    loadedAsModules.add(root);
    register(moduleHook(root));
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

type Esbuild = typeof import("esbuild");

async function waits(file: string): Promise<boolean> {
  const source = await readFile(file, "utf8").catch(() => "");
  // Most files use await only inside functions, which only a parser can tell.
  if (!/\bawait\b/.test(source)) return false;
  // The esbuild that tsx uses.
  const tsx = createRequire(import.meta.url).resolve("tsx/package.json");
  const { transform } = createRequire(tsx)("esbuild") as Esbuild;
  const loader = extname(file) === ".ts" ? "ts" : "js";
  return transform(source, { loader, format: "cjs", logLevel: "silent" }).then(
    () => false,
    ({ errors = [] }: { errors?: { text: string }[] }) => errors.some(({ text }) => text.startsWith("Top-level await")),
  );
}

/** The hook, which runs in a separate thread. A file without import and export may be CommonJS, and is left unchanged. */
function moduleHook(root: string): string {
  const source = `import { readFileSync } from "node:fs";
const root = ${JSON.stringify(`${pathToFileURL(root).href}/`)}; export async function resolve(specifier, context, next) {
  const found = await next(specifier, context);
  // tsx marks what it takes for CommonJS in the address.
  const url = found.url.replace(/%3Ftsx-commonjs-.*$/, "");
  const [path] = url.split("?");
  if (!path.startsWith(root) || path.includes("/node_modules/") || !/\\.[jt]s$/.test(path)) return found;
  const isModule = /^\\s*(?:import\\b(?!\\s*\\()|export\\b)/m.test(readFileSync(new URL(path), "utf8"));
  return isModule ? { ...found, url, format: "module" } : found;
}`;
  return `data:text/javascript,${encodeURIComponent(source)}`;
}
