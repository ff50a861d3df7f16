// Tells whether a bundle was made of the sources that are there now. Plain JavaScript: it decides whether TypeScript is loaded at all.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** What a bundle is made of: the sources, and which packages are installed. */
const SOURCES = ["core", "generated", "package.json", "package-lock.json", "node_modules/.package-lock.json"];
/** In the folder of the bundle. */
export const STAMP = "sources.sha256";

/** Names, sizes and times of all sources: another one when a file was edited, added, removed, or brought back from earlier. */
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

/** The bundle of a checkout, when there is one and it is made of these very sources. */
export function freshBundle(root) {
  const stamp = join(root, "dist", STAMP);
  if (!existsSync(stamp)) return null;
  const isFresh = readFileSync(stamp, "utf8").trim() === digestOfSources(root);
  return isFresh ? pathToFileURL(join(root, "dist/penstock.js")) : null;
}
