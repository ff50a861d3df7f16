/**
 * `npm run build`: bundles Penstock for production into `dist/`, which starts with plain `node dist/penstock.js`.
 *
 * The folder mirrors the source tree where code looks for files beside itself: `dist/package.json`, data files under `dist/core/**`, and
 * the packages that are not bundled under `dist/node_modules`. So it runs wherever it is copied, on this platform. All outputs share
 * chunks, so there is one copy of every module: a `ServiceError` thrown by a plugin (which imports `#plugin`) is the one that the core
 * knows.
 */

import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, extname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as esbuild from "esbuild";
import { carryPackages, EXTERNAL } from "./carried.ts";
import { filesBelow } from "./files.ts";
import { digestOfSources, STAMP } from "./fresh.mjs";

/** A package in a build, for the licences (for people) and the bill of materials (for programs). */
interface Package {
  name: string;
  version: string;
  license: string;
  /** The texts of its licence files. */
  texts: string[];
  /** The value in the lock file: `sha512-BASE64`. */
  integrity: string | undefined;
}

type Self = Pick<Package, "name" | "version" | "license">;

const LICENCE_FILE = /^(licen[cs]e|notice)/i;
const NODE_MODULES = `${sep}node_modules${sep}`;

/** The folders of the packages to which files belong. @param inputs absolute paths, or relative to `root` */
function packageFolders(root: string, inputs: readonly string[]): string[] {
  const folders = inputs.flatMap((input) => {
    const path = resolve(root, input);
    const at = path.lastIndexOf(NODE_MODULES);
    if (at === -1) return [];
    const start = at + NODE_MODULES.length;
    const parts = path.slice(start).split(sep);
    return [path.slice(0, start) + parts.slice(0, parts[0]!.startsWith("@") ? 2 : 1).join(sep)];
  });
  return [...new Set(folders)];
}

function readPackages(root: string, folders: readonly string[]): Package[] {
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as {
    packages: Record<string, { integrity?: string }>;
  };
  const modules = realpathSync(join(root, "node_modules"));
  const packages = folders.map((folder): Package => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const files = readdirSync(folder).filter((file) => LICENCE_FILE.test(file));
    const place = `node_modules${realpathSync(folder).slice(modules.length)}`.split(sep).join("/");
    return {
      name,
      version,
      license: String(license ?? "see its licence"),
      texts: files.map((file) => readFileSync(join(folder, file), "utf8").trim()),
      integrity: lock.packages[place]?.integrity,
    };
  });
  const byName = new Map(packages.map((each) => [`${each.name}@${each.version}`, each]));
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);
}

function licenceText(packages: readonly Package[]): string {
  const list = packages.map(({ name, version, license }) => `${name} ${version}: ${license}`).join("\n");
  const texts = packages.map(({ name, version, license, texts: own }) =>
    [`${"-".repeat(80)}\n${name} ${version} (${license})`, ...own].join("\n\n"),
  );
  return `This build holds these packages, each under its own licence.\n\n${list}\n\n${texts.join("\n\n")}\n`;
}

/** CycloneDX 1.5. The same build gives the same text, so it has no time and no serial number. */
function billOfMaterials({ name, version, license }: Self, all: readonly Package[]) {
  const purl = (name: string, version: string) => `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const component = ({ name, version, license, integrity }: Package) => ({
    type: "library",
    "bom-ref": `${name}@${version}`,
    name,
    version,
    licenses: [{ expression: license }],
    purl: purl(name, version),
    ...(integrity?.startsWith("sha512-") && {
      hashes: [{ alg: "SHA-512", content: Buffer.from(integrity.slice(7), "base64").toString("hex") }],
    }),
  });
  const own = { type: "application", "bom-ref": `${name}@${version}`, name, version, purl: purl(name, version) };
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: { component: { ...own, licenses: [{ expression: license }] } },
    components: all.map(component),
  };
}

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Recognises files that handle builds themselves by testing their own URL: they find their files relative to `out`. */
const HANDLES_BUILDS = /import\.meta\.url\.endsWith\(|\.test\(import\.meta\.url\)/;
/** The folder of modules that run in browsers. */
const CONSOLE = "core/api/pages/console";
const CODE = [".ts", ".mts", ".js", ".mjs"];

/** Served to browsers unchanged, so the build has a copy. The sources read it from the installed package. */
const SWAGGER = "core/api/pages/swagger";
const SWAGGER_FILES = ["package.json", "LICENSE", "NOTICE", "swagger-ui-bundle.js", "swagger-ui.css"];

/** CommonJS packages in the bundle `require` node's own modules. */
const REQUIRE_BANNER =
  'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);';

/** V8's code is kept beside the bundle, so that who may write the one may write the other. Where nobody may, there is none. */
const ENTRY = `#!/usr/bin/env node
import "./core/node-version.js";
import module from "node:module";
import { fileURLToPath } from "node:url";
if (module.enableCompileCache) module.enableCompileCache(fileURLToPath(new URL("compile-cache", import.meta.url)));
import("./core/command/main.ts").then(({ main }) => main(process.argv.slice(2)));
`;

/** Replaces the code for builds and generated files, because the sources and schemas are not part of a build. */
const NO_SOURCES =
  'const none = () => {\n  throw new Error("this works in a checkout of the source only");\n};\nexport { none as build, none as runCodegen };\n';

interface BuildOptions {
  /** The source tree; default: the one that contains this file. */
  root?: string;
  /** The output folder, which is emptied first. */
  out: string;
  /** Whether to include native packages; default true. False for the npm package, which gets them when it is installed. */
  carries?: boolean;
}

/** Files under `core/` that are read at run time: pages, templates, and the plain JavaScript of threads and browsers. */
function dataFiles(root: string): string[] {
  const ignored = new Set([".md", ...CODE]);
  const isSetting = (path: string) => basename(path) === "tsconfig.json";
  const isRead = (path: string) => path.endsWith("-worker.js") || path.startsWith(join(root, CONSOLE) + sep);
  return filesBelow(join(root, "core")).filter(
    (path) => !isSetting(path) && (!ignored.has(extname(path)) || isRead(path)),
  );
}

/** The entry, which has no source file, and the replacement for the code that makes builds and generated files. */
function virtualModules(root: string): esbuild.Plugin {
  return {
    name: "virtual-modules",
    setup(build) {
      build.onResolve({ filter: /^penstock-entry$/ }, () => ({ path: "entry", namespace: "penstock" }));
      build.onLoad({ filter: /.*/, namespace: "penstock" }, () => ({
        contents: ENTRY,
        resolveDir: root,
        loader: "ts",
      }));
      build.onLoad({ filter: /[\\/]core[\\/]codegen[\\/](main|build)\.ts$/ }, () => ({
        contents: NO_SOURCES,
        loader: "js",
      }));
    },
  };
}

/**
 * Keeps `import.meta.url` correct: a source file that looks for a neighbour finds it at the same path below `out`. All chunks are
 * in `out` itself, so the path is relative to the chunk that contains the code.
 */
function sourceLocations(root: string): esbuild.Plugin {
  const core = join(root, "core") + sep;
  return {
    name: "source-places",
    setup(build) {
      build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        if (!path.startsWith(core)) return undefined;
        const source = await readFile(path, "utf8");
        if (!source.includes("import.meta.url") || HANDLES_BUILDS.test(source)) return undefined;
        const place = JSON.stringify(`./${relative(root, path).split(sep).join("/")}`);
        return {
          contents: source.replaceAll("import.meta.url", `new URL(${place}, import.meta.url).href`),
          loader: "ts",
        };
      });
    },
  };
}

/** The part of `package.json` that Node and the version command need. */
function packageFile({ name, version, license }: Self): string {
  const plugin = "./plugin.js";
  const entries = { imports: { "#plugin": plugin }, exports: { "./plugin": plugin } };
  return `${JSON.stringify({ name, version, license, private: true, type: "module", ...entries }, null, 2)}\n`;
}

/** Makes the build. Throws esbuild's errors, which name file and line. */
export async function build(options: BuildOptions): Promise<void> {
  const root = resolve(options.root ?? ROOT);
  const out = resolve(options.out);
  if (existsSync(out) && readdirSync(out).length > 0 && !existsSync(join(out, "penstock.js"))) {
    throw new Error(`${out} is not an earlier build: choose a new folder, or empty this one`);
  }
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  // Before the sources are read, so that editing one meanwhile makes the build stale.
  const digest = digestOfSources(root);
  const { metafile } = await esbuild.build({
    absWorkingDir: root,
    entryPoints: [
      { in: "penstock-entry", out: "penstock" },
      { in: join(root, "core/plugin/plugin.ts"), out: "plugin" },
    ],
    outdir: out,
    bundle: true,
    splitting: true,
    chunkNames: "chunk-[name]-[hash]",
    format: "esm",
    platform: "node",
    target: "node20",
    external: EXTERNAL,
    // Prefers the ESM builds of packages, because these can be tree-shaken.
    mainFields: ["module", "main"],
    banner: { js: REQUIRE_BANNER },
    // Names are kept: people read stack traces and logs.
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: "linked",
    logLevel: "silent",
    metafile: true,
    plugins: [virtualModules(root), sourceLocations(root)],
  });
  for (const path of dataFiles(root)) {
    const copy = join(out, relative(root, path));
    mkdirSync(dirname(copy), { recursive: true });
    cpSync(path, copy);
  }
  cpSync(join(root, "schemas"), join(out, "schemas"), { recursive: true });
  cpSync(join(root, "docs"), join(out, "docs"), { recursive: true, filter: (path) => !path.endsWith(".ts") });
  const swagger = join(root, "node_modules/swagger-ui-dist");
  for (const file of SWAGGER_FILES) cpSync(join(swagger, file), join(out, SWAGGER, file));
  for (const schema of ["service.schema.json", "evals.schema.json"])
    cpSync(join(root, "generated", schema), join(out, schema));
  const carried = options.carries === false ? [] : carryPackages(root, out);
  const packages = readPackages(root, [...packageFolders(root, Object.keys(metafile.inputs)), swagger, ...carried]);
  const self: Self = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  writeFileSync(join(out, "THIRD_PARTY_LICENSES.txt"), licenceText(packages));
  writeFileSync(join(out, "sbom.cdx.json"), `${JSON.stringify(billOfMaterials(self, packages), null, 2)}\n`);
  writeFileSync(join(out, "package.json"), packageFile(self));
  if (options.carries !== false) writeFileSync(join(out, STAMP), `${digest}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { out: { type: "string", default: join(ROOT, "dist") } } });
  const { out } = values;
  await build({ out });
  const files = filesBelow(out);
  const size = files.reduce((sum, path) => sum + statSync(path).size, 0) / 1024;
  console.log(`${out}: ${files.length} files, ${size.toFixed(0)} KiB; start it with: node ${join(out, "penstock.js")}`);
}
