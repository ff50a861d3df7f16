/** The packages that a service needs where it runs: those that its manifest names and its plugins import, with all that they need. */
import { readFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { basename, join } from "node:path";
import type { PluginBuild } from "esbuild";
import { copyFiles, installed } from "../codegen/carried.ts";
import { USE_PACKAGES } from "../memory/embedding/open.ts";
import { PLUGIN_KINDS } from "../registry/kinds.ts";
import { loadEsbuild } from "../registry/resolution.ts";
import { SOURCE_FILE } from "../registry/sources.ts";

/** @param out with the service's files */
export const packagesOf = async (manifest: string, out: string, files: readonly string[]): Promise<string[]> => [
  ...namedIn(manifest),
  ...(await importedBy(out, files)),
];

/** The packages that a manifest may name; those that are plugins are not installed. */
const namedIn = (manifest: string): string[] => [
  ...[...manifest.matchAll(/\buse["']?\s*:\s*["']?(@?[\w.-]+(?:\/[\w.-]+)?)/g)].map(([, use]) => use!),
  ...(manifest.includes("local/use") ? USE_PACKAGES : []),
];

/** The packages that plugins and their helpers import. What cannot be read is for the check of the build to say. */
async function importedBy(out: string, files: readonly string[]): Promise<string[]> {
  const names = new Set<string>();
  const sources = files.filter((file) => SOURCE_FILE.test(basename(file)) && file.split("/").some(isOfPlugins));
  const entryPoints = sources.map((file) => join(out, file));
  const collect = ({ onResolve }: PluginBuild) =>
    onResolve({ filter: /^[^./#]/ }, ({ path }) => {
      if (!isBuiltin(path)) names.add(path.split("/", path.startsWith("@") ? 2 : 1).join("/"));
      return { path, external: true };
    });
  await loadEsbuild()
    .build({
      ...{ entryPoints, outdir: out, bundle: true, write: false, logLevel: "silent", platform: "node", format: "esm" },
      ...{ external: ["#*"], plugins: [{ name: "packages", setup: collect }] },
    })
    .catch(() => {});
  return [...names];
}

const isOfPlugins = (folder: string): boolean => PLUGIN_KINDS.some((kind) => kind.folder === folder);

/** What of an installed package no program runs. */
const NOT_RUN = /\.(map|d\.[cm]?ts)$/;

/**
 * Copies packages and all that they need below `out`, as files in `folder` find them. Those that are not installed are left out.
 *
 * @returns their names and versions
 */
export function carryInstalled(folder: string, names: Iterable<string>, out: string): string[] {
  /** The folder of each copy. */
  const copies = new Map<string, string>();
  const carried: string[] = [];
  // Those that the service itself imports come first, and stand at the top.
  const wanted = Array.from(names, (name): [name: string, from: string, above: readonly string[]] => [
    name,
    folder,
    [],
  ]);
  for (const [name, from, above] of wanted) {
    const found = installed(from, name);
    // Penstock itself is in the build.
    if (found === null || name === "penstock-gateway") continue;
    const seen = above.map((_, depth) => [...above.slice(0, depth + 1), name]);
    const places = [[name], ...seen].map((place) => place.join("/node_modules/"));
    const copy = places.findLast((place) => copies.has(place));
    if (copy !== undefined && copies.get(copy) === found) continue;
    // Beside another version, or else at the top.
    const place = copy === undefined ? [name] : [...above, name];
    const path = place.join("/node_modules/");
    copies.set(path, found);
    copyFiles(found, join(out, "node_modules", path), (file) => !NOT_RUN.test(file));
    const { version, ...needs } = JSON.parse(readFileSync(join(found, "package.json"), "utf8"));
    carried.push(`${name}@${version}`);
    const needed = { ...needs.dependencies, ...needs.optionalDependencies, ...needs.peerDependencies };
    for (const each of Object.keys(needed)) wanted.push([each, found, place]);
  }
  return carried.sort();
}
