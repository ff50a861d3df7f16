/** The source files of plugin folders, to detect changed code, which a running process cannot load again. */
import { createHash } from "node:crypto";
import { type Dirent, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { realFolder } from "./discover.ts";

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
export async function digestSources(roots: readonly string[]): Promise<Map<string, string>> {
  const folders = new Set(roots.map(realFolder).flatMap(foldersIn));
  const files = [...folders].flatMap(sourcesIn);
  const digests = await Promise.all(
    files.map(async (file) => {
      // A file that cannot be read is treated like an empty one.
      const bytes = await readFile(file).catch(() => "");
      return [file, createHash("sha256").update(bytes).digest("base64")] as const;
    }),
  );
  return new Map(digests);
}

/** Files that were added, changed or removed. */
export function changedSources(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): string[] {
  return [...new Set([...before.keys(), ...after.keys()])]
    .filter((file) => before.get(file) !== after.get(file))
    .sort();
}
