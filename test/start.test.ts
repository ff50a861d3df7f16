/** A start from the sources: it serves, and it loads what a start needs and no more. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { build } from "esbuild";
import { CHECKOUT, ROOT, serve } from "./support/command-line.ts";
import { EXAMPLES, pluginFolder } from "./support/plugin-folder.ts";
import { programMissing } from "./support/programs.ts";

const MANIFEST = `
name: Outside
server: { port: 0 }
plugins: [./plugins]
tools: { greet: { use: greet } }
routes: [{ use: refuse }]
`;

/** TypeScript with types to strip, a helper beside it, and a fault that the core must know for its own. */
const GREET = `
import { defineTool } from "#plugin";
import { greeting } from "./helpers/greeting.ts";
export default defineTool<{ name: string }>({ execute: ({ name }) => ({ text: greeting(name) }) });
`;
const GREETING = `export const greeting = (name: string): string => "Hello " + name;\n`;
const REFUSE = `
import { defineRoute, ServiceError } from "#plugin";
const handle = (): never => { throw new ServiceError("conflict", "not now"); };
export default defineRoute({ method: "GET", path: "/refuse", handle });
`;

describe("penstock serve from its sources", () => {
  test("on a terminal penstock serve writes its log for people, and JSON with logs.format: json", {
    skip: programMissing("script"),
  }, async (t) => {
    for (const [format, expected] of [
      ["auto", /\d\d:\d\d:\d\d\.\d{3} DEBUG .*operation=tools\.list/],
      ["json", /\{"level":"debug","time":"[^"]+".*"operation":"tools\.list"/],
    ] as const) {
      const manifest = `{"name": "Terminal", "server": {"port": 0}, "logs": {"level": "debug", "format": "${format}"}}`;
      const cwd = pluginFolder(t, { "service.yaml": manifest });
      const command = `stty -opost; exec ${process.execPath} ${CHECKOUT} serve`;
      // It gives the command a terminal of its own.
      const { url, says } = await serve(t, ["script", "-qfec", command, "/dev/null"], { cwd, env: { NO_COLOR: "1" } });
      await fetch(`${url}/tools`);
      await says(expected);
    }
  });

  test("serves the flagship manifest: GET /agents, and / and /doc, which are loaded when asked for", async (t) => {
    // A copy, so that its store is not the reader's own.
    const cwd = pluginFolder(t, { "service.yaml": readFileSync(join(ROOT, "service.yaml"), "utf8") });
    symlinkSync(EXAMPLES, join(cwd, "plugins"));
    const { url, interrupt } = await serve(t, [process.execPath, CHECKOUT, "serve", "--port", "0"], { cwd });
    const agents = (await (await fetch(`${url}/agents`)).json()) as { data: { id: string }[] };
    assert.deepEqual(
      agents.data.map(({ id }) => id),
      ["support", "writer"],
    );
    const [page, document] = await Promise.all([fetch(`${url}/`), fetch(`${url}/doc`)]);
    assert.match(await page.text(), /<title>/);
    assert.equal(((await document.json()) as { openapi: string }).openapi.slice(0, 3), "3.1");
    assert.equal(await interrupt("SIGTERM"), 0);
  });

  test("loads TypeScript plugins of a folder without package.json, and knows the ServiceError they throw", async (t) => {
    const cwd = pluginFolder(t, {
      "service.yaml": MANIFEST,
      "plugins/tools/greet.ts": GREET,
      "plugins/tools/helpers/greeting.ts": GREETING,
      "plugins/routes/refuse.ts": REFUSE,
    });
    const { url } = await serve(t, [process.execPath, CHECKOUT, "serve"], { cwd });
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ input: { name: "Ada" } });
    const run = await fetch(`${url}/tools/greet/execute`, { method: "POST", headers, body });
    const { data } = (await run.json()) as { data: { result: unknown } };
    assert.deepEqual(data.result, { text: "Hello Ada" });
    const refused = await fetch(`${url}/refuse`);
    assert.deepEqual([refused.status, await refused.json()], [409, { success: false, error: "not now" }]);
  });

  test("penstock serve says where in a plugin the fault is: line numbers are those of the source", async (t) => {
    const cwd = pluginFolder(t, {
      "service.yaml": "name: Outside\nplugins: [./plugins]\n",
      "plugins/tools/late.ts": `import { defineTool } from "#plugin";\n\nthrow new Error("not today");\n\nexport default defineTool({ execute: () => 1 });\n`,
    });
    await assert.rejects(
      serve(t, [process.execPath, CHECKOUT, "serve", "--port", "0"], { cwd }),
      /late\.ts.*\(line 3\): not today/,
    );
  });
});

/** Loaded when first needed. Each costs a start that does not need it a millisecond or two, a package up to a hundred. */
const LATE = [
  "core/a2a/endpoint.ts",
  "core/api/pages/documentation.ts",
  "core/codegen/main.ts",
  "core/http/openapi.ts",
  "core/mcp/connection.ts",
  "core/platform/environment-file.ts",
  "core/platform/updates.ts",
  "core/mcp/endpoint.ts",
  "core/observability/metrics/exposition.ts",
  "core/observability/otlp/collector.ts",
  "core/observability/otlp/span-queue.ts",
  "core/storage/postgres-store.ts",
  "core/storage/sqlite-store.ts",
  "core/transport/node.ts",
  "core/models/openai-compatible/embedding-model.ts",
  "core/models/openai-compatible/language-model.ts",
  "core/models/openai-compatible/upstream.ts",
];
const LATE_PACKAGES = [
  "@a2a-js/sdk",
  "@a2a-js/sdk/compat/v0_3/server",
  "@a2a-js/sdk/errors",
  "@a2a-js/sdk/server",
  "@keyv/postgres",
  "@keyv/sqlite",
  "@modelcontextprotocol/client",
  "@modelcontextprotocol/server",
  "jose",
  "prom-client",
  "tsx/cjs/api",
  "tsx/esm/api",
  "uWebSockets.js",
  "undici",
];

/** What a start loads of packages. A name more is felt in every start: prefer to load it where it is used. */
const PACKAGES = [
  "@ai-sdk/provider",
  "@marcbachmann/cel-js",
  "ajv-formats",
  "ajv-formats/dist/formats.js",
  "ajv/dist/2020.js",
  "keyv", // `host.keyv` gives one at once.
  "pino",
  "yaml",
];

describe("what a start loads", () => {
  const plugins = readdirSync(join(ROOT, "plugins"), { recursive: true, encoding: "utf8" })
    .filter((path) => /^[^/]+\/[^/]+\.ts$/.test(path))
    .map((path) => `plugins/${path}`);
  const start = ["core/command/main.ts", "core/command/serve.ts", ...plugins];
  let early: Reached;
  let all: Reached;
  let modules: Inputs;

  before(async () => {
    const result = await build({
      absWorkingDir: ROOT,
      entryPoints: start,
      outdir: join(ROOT, "nowhere"),
      bundle: true,
      write: false,
      metafile: true,
      splitting: true,
      format: "esm",
      platform: "node",
      packages: "external",
      logLevel: "silent",
    });
    modules = result.metafile.inputs;
    early = reach(modules, start, ["import-statement"]);
    all = reach(modules, start, ["import-statement", "dynamic-import"]);
  });

  test("files that few starts need are imported where they are needed, not by serve or a plugin", () => {
    assert.deepEqual(
      LATE.filter((file) => !all.files.has(file)),
      [],
      "nothing imports these: has one been renamed?",
    );
    assert.deepEqual(
      LATE.filter((file) => early.files.has(file)),
      [],
    );
  });

  test("what a start loads of packages is what every start needs", () => {
    assert.deepEqual([...early.packages].sort(), PACKAGES);
    assert.deepEqual(
      LATE_PACKAGES.filter((name) => !all.packages.has(name)),
      [],
      "nothing imports these any more",
    );
  });

  test("nothing imports node:http, whose getters load fetch, by its name", () => {
    const inputs = [...all.files].filter((file) => modules[file]!.imports.some(({ path }) => path === "node:http"));
    assert.deepEqual(inputs, []);
    assert.ok(early.files.has("core/transport/node-http.ts"), "what is imported in its place");
  });

  test("validators of what only tests check are not loaded at all", () => {
    assert.ok(early.files.has("generated/validators.js"));
    assert.ok(!all.files.has("generated/all-validators.js"));
  });
});

interface Reached {
  files: Set<string>;
  packages: Set<string>;
}

type Inputs = Awaited<ReturnType<typeof build<{ metafile: true }>>>["metafile"]["inputs"];

/** Everything that `from` leads to by imports of these kinds. */
function reach(inputs: Inputs, from: readonly string[], kinds: readonly string[]): Reached {
  const files = new Set(from);
  const packages = new Set<string>();
  for (const file of files) {
    for (const { path, kind, external } of inputs[file]!.imports) {
      if (!kinds.includes(kind)) continue;
      if (external !== true) files.add(path);
      else if (!path.startsWith("node:")) packages.add(path);
    }
  }
  return { files, packages };
}
