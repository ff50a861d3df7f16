/** The source files of plugin folders, to detect changed code, which a running process cannot load again. */
import { createHash } from "node:crypto";
import { type Dirent, readdirSync, readFileSync, realpathSync } from "node:fs";
import { join, resolve } from "node:path";

/** The absolute path, with symbolic links resolved. */
export function realFolder(folder: string): string {
  const path = resolve(folder);
  try {
    return realpathSync(path);
  } catch {
    return path; // `discover` reports the problem.
  }
}

export const SOURCE_FILE = /^[^.].*\.(m?[jt]s|json)$/;

/** A folder and all folders below it except packages; an empty list when it does not exist. */
export function foldersIn(root: string): string[] {
  const inside = entriesOf(root);
  if (inside === null) return [];
  const folders = inside.filter(
    (entry) => entry.isDirectory() && entry.name !== "node_modules" && !entry.name.startsWith("."),
  );
  return [root, ...folders.flatMap(({ name }) => foldersIn(join(root, name)))];
}

function entriesOf(folder: string): Dirent[] | null {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return null;
  }
}

/** The source files that are directly in a folder. */
export const sourcesIn = (folder: string): string[] =>
  (entriesOf(folder) ?? [])
    .filter((entry) => entry.isFile() && SOURCE_FILE.test(entry.name))
    .map(({ name }) => join(folder, name));

/** Digests of the source files of these folders, by real path. */
export function digestSources(roots: readonly string[]): Map<string, string> {
  const folders = new Set(roots.map(realFolder).flatMap(foldersIn));
  return new Map([...folders].flatMap(sourcesIn).map((file) => [file, digestOf(file)]));
}

/** A file that cannot be read is treated like an empty one. */
function digestOf(file: string): string {
  const hash = createHash("sha256");
  try {
    // Small files, each read in a third of the time that a promise for it takes.
    hash.update(readFileSync(file));
  } catch {}
  return hash.digest("base64");
}

/** Files that were added, changed or removed. */
export function changedSources(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): string[] {
  return [...new Set([...before.keys(), ...after.keys()])]
    .filter((file) => before.get(file) !== after.get(file))
    .sort();
}
