/** Copies of the source, each bundled into one folder: fast to start, and with a change where a guard is to be missing. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import type { Engines } from "./cases.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Below node_modules, so that the packages are found from there. */
const CACHE = join(ROOT, "node_modules/.cache");

/** A piece of a file of the source, and what is put in its place. */
export interface Patch {
  /** Relative to the root. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export interface Built {
  readonly engines: Engines;
  /** Path of sqlite-process.ts, for plain node. */
  readonly sqliteProcess: string;
  remove(): void;
}

/** @throws Error when a piece is not there exactly once */
export async function buildEngines(patches: readonly Patch[] = []): Promise<Built> {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, "engines-"));
  const used = new Set<Patch>();
  await build({
    absWorkingDir: ROOT,
    entryPoints: ["test/model/engines.ts", "test/model/sqlite-process.ts"],
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    packages: "external",
    format: "esm",
    platform: "node",
    target: "node20",
    logLevel: "error",
    plugins: [
      {
        name: "patches",
        setup: ({ onLoad }) =>
          onLoad({ filter: /\.ts$/ }, ({ path }) => {
            let contents = readFileSync(path, "utf8");
            for (const patch of patches) {
              if (patch.file !== relative(ROOT, path)) continue;
              contents = patched(contents, patch);
              used.add(patch);
            }
            return { contents, loader: "ts" };
          }),
      },
    ],
  });
  for (const patch of patches) if (!used.has(patch)) throw new Error(`${patch.file} is not part of the engines`);
  return {
    engines: (await import(join(folder, "engines.mjs"))) as Engines,
    sqliteProcess: join(folder, "sqlite-process.mjs"),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export function patched(text: string, { file, from, to }: Patch): string {
  const count = text.split(from).length - 1;
  if (count !== 1) throw new Error(`${file} has ${count} times, and should have once: ${from}`);
  return text.replace(from, () => to);
}
