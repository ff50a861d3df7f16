// Detects whether a bundle was built from the current sources. Plain JavaScript: it decides whether TypeScript is loaded at all.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** What determines a bundle: the sources, and the installed packages. */
const SOURCES = [
  "core",
  "generated",
  "schemas",
  "docs",
  "package.json",
  "package-lock.json",
  "node_modules/.package-lock.json",
];
/** Name of the file in the bundle's folder that contains the digest. */
export const STAMP = "sources.sha256";

/** Digest of names, sizes and times of all sources: it changes when a file is edited, added, removed, or restored. */
export function digestOfSources(root) {
  const hash = createHash("sha256");
  const { platform, arch, versions } = process;
  hash.update(`${platform} ${arch} ${versions.modules}\n`);
  const add = (path) => {
    const found = statSync(join(root, path), { throwIfNoEntry: false });
    if (found === undefined) return;
    if (!found.isDirectory()) return void hash.update(`${path} ${found.size} ${found.mtimeMs}\n`);
    for (const name of readdirSync(join(root, path)).sort()) add(`${path}/${name}`);
  };
  for (const path of SOURCES) add(path);
  return hash.digest("hex");
}

/** The bundle of a checkout, if it exists and was built from the current sources; else null. */
export function freshBundle(root) {
  const stamp = join(root, "dist", STAMP);
  if (!existsSync(stamp)) return null;
  const isFresh = readFileSync(stamp, "utf8").trim() === digestOfSources(root);
  return isFresh ? pathToFileURL(join(root, "dist/penstock.js")) : null;
}
