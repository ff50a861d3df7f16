/** Finds the plugin files of a folder: `<root>/<kind's folder>/*.{ts,mts,js,mjs}`. Reads names, never contents. */
import { type Dirent, existsSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, extname, join, resolve } from "node:path";
import { suggest } from "../manifest/manifest.ts";
import type { PluginKind } from "../plugin/plugin.ts";
import { PLUGIN_KINDS } from "./kinds.ts";
import type { PluginProblem } from "./problem.ts";

export interface PluginFile {
  readonly kind: PluginKind;
  /** Absolute path. */
  readonly file: string;
  /** The file's name without its extension: the plugin's name unless the plugin sets another. */
  readonly stem: string;
}

interface Discovery {
  /** Sorted by path. */
  readonly files: readonly PluginFile[];
  readonly problems: readonly PluginProblem[];
}

const ENDINGS = [".ts", ".mts", ".js", ".mjs"];
/** Files beside plugins that are not plugins. */
const IGNORED = /^(\.|readme|licen[cs]e|changelog|package(-lock)?\.json$|tsconfig\.)|\.d\.[cm]?ts$|\.map$|~$/i;
const FOLDERS = PLUGIN_KINDS.map(({ folder }) => folder);
const FOLDER_LIST = FOLDERS.map((folder) => `${folder}/`).join(", ");

/**
 * The plugin folders of a manifest: `plugins/` beside it, if it exists, and those that it names.
 *
 * @param folder of the manifest
 */
export function pluginFolders(folder: string, named: readonly string[] = []): string[] {
  const beside = join(folder, "plugins");
  return [...(existsSync(beside) ? [beside] : []), ...named.map((path) => resolve(folder, path))];
}

/** The absolute path, with symbolic links resolved. */
export function realFolder(folder: string): string {
  const path = resolve(folder);
  try {
    return realpathSync(path);
  } catch {
    return path; // `discover` reports the problem.
  }
}

/**
 * Folders inside a kind's folder belong to the plugins (helpers, fixtures) and are not searched.
 *
 * @param root absolute path of a plugin folder
 */
export function discover(root: string): Discovery {
  const files: PluginFile[] = [];
  const problems: PluginProblem[] = [];
  const report = (file: string, cause: string) => void problems.push({ file, phase: "import", cause });

  let entries: Entry[];
  try {
    entries = listEntries(root);
  } catch (error) {
    report(root, `the plugin folder cannot be read: ${readFailure(error)}`);
    return { files, problems };
  }

  for (const entry of entries) {
    const path = join(root, entry.name);
    if (!entry.folder) {
      if (ENDINGS.includes(extname(entry.name)))
        report(path, `a plugin file must be in the folder of its kind (${FOLDER_LIST}): move it there`);
      continue;
    }
    const kind = PLUGIN_KINDS.find(({ folder }) => folder === entry.name)?.kind;
    if (kind === undefined) problems.push(...strayFiles(path));
    else
      for (const { name, folder } of listEntries(path)) {
        const file = join(path, name);
        const ending = extname(name);
        if (folder) continue;
        if (ENDINGS.includes(ending)) files.push({ kind, file, stem: basename(name, ending) });
        else report(file, `a plugin file ends in ${ENDINGS.join(", ")}, not in ${ending === "" ? "nothing" : ending}`);
      }
  }
  return { files, problems };
}

interface Entry {
  name: string;
  folder: boolean;
}

function listEntries(folder: string): Entry[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => !IGNORED.test(entry.name) && entry.name !== "node_modules")
    .map((entry) => ({ name: entry.name, folder: isFolder(entry, folder) }))
    .sort((left, right) => (left.name < right.name ? -1 : 1));
}

/** Follows symbolic links, because a mounted volume may consist of them. */
function isFolder(entry: Dirent, parent: string): boolean {
  if (!entry.isSymbolicLink()) return entry.isDirectory();
  return statSync(join(parent, entry.name), { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** Plugin files in a folder with another name, such as `tool/add.ts`: a mistyped folder must not lose plugins silently. */
function strayFiles(folder: string): PluginProblem[] {
  const name = basename(folder);
  const meant = suggest(name, FOLDERS);
  const hint = meant === undefined ? `the folders are ${FOLDER_LIST}` : `did you mean ${meant}/?`;
  return listEntries(folder)
    .filter((entry) => !entry.folder && ENDINGS.includes(extname(entry.name)))
    .map((entry) => ({
      file: join(folder, entry.name),
      phase: "import",
      cause: `${name}/ is not the folder of a kind of plugin: ${hint} (helpers go in a folder inside a kind's folder)`,
    }));
}

const READ_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  ENOTDIR: "it is not a folder",
  EACCES: "permission denied",
};

function readFailure(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return READ_FAILURES[code ?? ""] ?? message;
}
