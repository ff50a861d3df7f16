/** `npm run build`: the bundle starts with plain node, serves, and loads plugins of both kinds as the sources do. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import module from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "../core/codegen/build.ts";
import { run, serve } from "./support/command-line.ts";
import { TRANSPORTS } from "./support/transports.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

// biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
const WAREHOUSE = "${WAREHOUSE:-http://127.0.0.1:9}";
const MANIFEST = `
name: Built
version: 1.0.0
server: { port: 0 }
store: sqlite:data/built.db
memory: { default: { semantic: { embedding: local/use } } }
plugins: [./plugins]
providers:
  demo: { use: scripted }
tools:
  shout: { use: shout }
  stock:
    description: Asks the warehouse
    http: { method: GET, url: "${WAREHOUSE}/stock" }
agents:
  echo: { name: Echo, description: Repeats, instructions: Repeat., model: demo/echo, memory: false }
routes: [{ use: refuse }]
`;

/** TypeScript with a type import, and a helper beside it. */
const SHOUT = `
import { defineTool, type ToolCallContext } from "#plugin";
import { louder } from "./helpers/louder.ts";
export default defineTool<{ text: string }>({
  description: "Shouts",
  parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  execute: ({ text }, _call: ToolCallContext) => ({ text: louder(text) }),
});
`;
const LOUDER = "export const louder = (text: string): string => text.toUpperCase();\n";

/** Throws the class that \`#plugin\` exports: the core knows it only when there is one copy of it. */
const REFUSE = `
import { ServiceError } from "#plugin";
const handle = () => { throw new ServiceError("conflict", "not now"); };
export default { kind: "route", method: "GET", path: "/refuse", handle };
`;

/** The server that the REST tool asks. */
const warehouse = createServer((request, reply) => {
  reply.setHeader("content-type", "application/json").end(JSON.stringify({ asked: request.url }));
});

let folder: string;
let out: string;
let user: string;

before(async () => {
  await once(warehouse.listen(0, "127.0.0.1"), "listening");
  folder = mkdtempSync(join(tmpdir(), "penstock-build-"));
  out = join(folder, "dist");
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  await build({ out });
  user = mkdtempSync(join(folder, "user-"));
  for (const place of ["plugins/tools/helpers", "plugins/routes"]) mkdirSync(join(user, place), { recursive: true });
  writeFileSync(join(user, "service.yaml"), MANIFEST);
  writeFileSync(join(user, "plugins/tools/shout.ts"), SHOUT);
  writeFileSync(join(user, "plugins/tools/helpers/louder.ts"), LOUDER);
  writeFileSync(join(user, "plugins/routes/refuse.mjs"), REFUSE);
  await start(user);
});

let server: ChildProcess;
let base: string;

/** Starts the build from a folder that is not its own. */
async function start(cwd: string): Promise<void> {
  server = spawn(process.execPath, [join(out, "penstock.js"), "serve", "--config", "service.yaml", "--port", "0"], {
    cwd,
    env: { PATH: process.env.PATH, WAREHOUSE: `http://127.0.0.1:${(warehouse.address() as AddressInfo).port}` },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  base = await new Promise<string>((resolve, reject) => {
    const read = (text: string) => {
      output += text;
      const url = /http:\/\/[^\s:]+:\d+/.exec(output)?.[0];
      if (url !== undefined) resolve(url);
    };
    server.stdout?.setEncoding("utf8").on("data", read);
    server.stderr?.setEncoding("utf8").on("data", read);
    server.once("exit", (code) => reject(new Error(`ended with ${code}\n${output}`)));
  });
}

after(async () => {
  if (server?.exitCode === null) {
    server.kill("SIGTERM");
    const [code] = await once(server, "exit");
    assert.equal(code, 0);
  }
  warehouse.close();
  rmSync(folder, { recursive: true, force: true });
});

async function post(path: string, body: unknown): Promise<{ status: number; json: Record<string, unknown> }> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(base + path, { method: "POST", headers, body: JSON.stringify(body) });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

test("GET /healthz and GET /agents answer from the build, started with plain node outside the project", async () => {
  assert.equal((await fetch(`${base}/healthz`)).status, 200);
  const list = (await (await fetch(`${base}/agents`)).json()) as { data: { id: string }[] };
  assert.deepEqual(
    list.data.map(({ id }) => id),
    ["echo"],
  );
});

test("POST /agents/:id/text runs a built-in provider of the build", async () => {
  const { status, json } = await post("/agents/echo/text", { input: "hello there" });
  assert.equal(status, 200);
  assert.equal((json.data as { text: string }).text, "hello there");
});

test("POST /a2a/:id and the SDK that it loads answer from the build", async () => {
  const message = { messageId: "m", role: "ROLE_USER", parts: [{ text: "hello there" }] };
  const { json } = await post("/a2a/echo", { jsonrpc: "2.0", id: 1, method: "SendMessage", params: { message } });
  const { task } = json.result as { task: { status: { state: string } } };
  assert.equal(task.status.state, "TASK_STATE_COMPLETED");
});

test("POST /tools/:name/execute runs a user's TypeScript plugin with its helper", async () => {
  const { status, json } = await post("/tools/shout/execute", { input: { text: "hello" } });
  assert.equal(status, 200, JSON.stringify(json));
  assert.deepEqual((json.data as { result: unknown }).result, { text: "HELLO" });
});

test("POST /tools/:name/execute sends the request of a REST tool from the build", async () => {
  const { status, json } = await post("/tools/stock/execute", { input: {} });
  assert.equal(status, 200, JSON.stringify(json));
  assert.deepEqual((json.data as { result: unknown }).result, { asked: "/stock" });
});

test("a ServiceError that a user's plugin throws is the class that the build's core knows", async () => {
  const response = await fetch(`${base}/refuse`);
  assert.deepEqual(await response.json(), { success: false, error: "not now" });
  assert.equal(response.status, 409);
});

test("GET /api/memory/search finds a paraphrase: SQLite and the encoder's thread run from the build", async () => {
  const content = "I forgot my login credentials and cannot sign in";
  assert.equal((await post("/api/memory/conversations", { conversationId: "c", userId: "ada" })).status, 201);
  const messages = [{ role: "user", content }];
  assert.equal((await post("/api/memory/save-messages", { conversationId: "c", userId: "ada", messages })).status, 200);
  const query = "searchQuery=How+do+I+reset+my+password%3F&threshold=0.5";
  const { data } = (await (await fetch(`${base}/api/memory/search?${query}`)).json()) as {
    data: { results: { message: { content: string } }[] };
  };
  assert.deepEqual(
    data.results.map(({ message }) => message.content),
    [content],
  );
});

test("GET /doc, GET /docs, GET /ui and GET / find their files in the build", async () => {
  for (const path of ["/doc", "/docs", "/docs/tutorial.md", "/ui", "/"]) {
    const response = await fetch(base + path);
    assert.equal(response.status, 200, path);
    assert.ok((await response.text()).length > 200, path);
  }
});

test("a build that is copied to a folder without packages serves over uWebSockets.js where that loads, with SQLite, TypeScript plugins and /ui", async (t) => {
  const bare = mkdtempSync(join(tmpdir(), "penstock-copied-"));
  t.after(() => rmSync(bare, { recursive: true, force: true }));
  cpSync(out, join(bare, "dist"), { recursive: true });
  mkdirSync(join(bare, "plugins/tools/helpers"), { recursive: true });
  writeFileSync(join(bare, "plugins/tools/shout.ts"), SHOUT);
  writeFileSync(join(bare, "plugins/tools/helpers/louder.ts"), LOUDER);
  const manifest = MANIFEST.replace(/^memory: .*\n/m, "memory: { default: {} }\n").replace(/^routes: .*\n/m, "");
  writeFileSync(join(bare, "service.yaml"), manifest);
  const copy = await serve(t, [process.execPath, "dist/penstock.js", "serve"], { cwd: bare });
  const [transport = ""] = TRANSPORTS;
  assert.match(copy.stdout(), new RegExp(`store sqlite:data/built\\.db, .* transport ${transport};`));
  const body = JSON.stringify({ input: { text: "hello" } });
  const headers = { "content-type": "application/json" };
  const shouted = await fetch(`${copy.url}/tools/shout/execute`, { method: "POST", headers, body });
  assert.match(await shouted.text(), /HELLO/);
  assert.equal((await fetch(`${copy.url}/ui`)).status, 200);
  assert.equal(await copy.interrupt("SIGTERM"), 0);
});

test("penstock check of a build without the encoder's packages says how to install them", async () => {
  const bare = mkdtempSync(join(tmpdir(), "penstock-bare-"));
  try {
    cpSync(out, join(bare, "dist"), { recursive: true });
    const semantic = "name: Bare\nmemory: { default: { semantic: { embedding: local/use } } }\n";
    writeFileSync(join(bare, "service.yaml"), semantic);
    const { status, stderr } = spawnSync(process.execPath, ["dist/penstock.js", "check"], {
      cwd: bare,
      encoding: "utf8",
    });
    assert.equal(status, 1, stderr);
    const expected =
      /^service\.yaml:2:\d+ {2}memory\.default\.semantic\.embedding: local\/use needs .*npm install @energetic-ai/m;
    assert.match(stderr, expected);
  } finally {
    rmSync(bare, { recursive: true, force: true });
  }
});

test("penstock client of a build takes openapi-typescript from above the manifest's folder, and has its own templates", () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(out, "penstock.js"), "client", "--out", "-"], {
    cwd: user,
    encoding: "utf8",
    maxBuffer: 16 * 1024 * 1024,
  });
  assert.deepEqual([status, stderr], [0, ""]);
  assert.match(stdout, /^import createFetchClient from "openapi-fetch";$/m);
  assert.match(stdout, /^ {2}"shout": \{ input: components\["schemas"\]/m);
  assert.match(stdout, /^export function createClient\(/m);
});

test("npm run prepare removes what uWebSockets.js brings for other systems and makes a build, which node core/penstock.js serve runs while it is that of the sources", async (t) => {
  const checkout = mkdtempSync(join(tmpdir(), "penstock-checkout-"));
  t.after(() => rmSync(checkout, { recursive: true, force: true }));
  for (const part of ["core", "docs", "generated", "schemas", "package.json", "package-lock.json"])
    cpSync(join(ROOT, part), join(checkout, part), { recursive: true });
  const installed = join(checkout, "node_modules");
  mkdirSync(join(installed, "uWebSockets.js"), { recursive: true });
  for (const name of readdirSync(join(ROOT, "node_modules")).filter((each) => each !== "uWebSockets.js"))
    symlinkSync(join(ROOT, "node_modules", name), join(installed, name));
  const system = `${process.platform}_${process.arch}`;
  const loadable = [`uws_${system}_115.node`, `uws_${system}_137.node`];
  for (const name of ["uws.js", ...loadable, `uws_${system}_93.node`, "uws_haiku_x64_115.node"])
    writeFileSync(join(installed, "uWebSockets.js", name), "");
  const { name, version, license } = JSON.parse(
    readFileSync(join(ROOT, "node_modules/uWebSockets.js/package.json"), "utf8"),
  );
  writeFileSync(join(installed, "uWebSockets.js/package.json"), JSON.stringify({ name, version, license }));
  const edited = join(checkout, "core/lib/counted.ts");
  const time = new Date("2026-01-02T03:04:05Z");
  utimesSync(edited, time, time);
  // As npm runs it at the end of an installation.
  const prepare = () => run("npm", ["run", "--silent", "prepare"], { cwd: checkout, hang: 200_000 });
  const prepared = await prepare();
  assert.equal(prepared.code, 0, prepared.stderr);
  assert.match(prepared.stdout, /^removed 2 binaries of uWebSockets\.js for other systems: 0 MiB\n.*dist: \d+ files, /);
  assert.deepEqual(readdirSync(join(installed, "uWebSockets.js")).sort(), ["package.json", "uws.js", ...loadable]);
  assert.deepEqual(await prepare(), { code: 0, stdout: "", stderr: "" }, "all of it is done");
  // What it says is not among the sources: it tells which of the two runs.
  writeFileSync(join(checkout, "dist/penstock.js"), 'console.log("the build runs");\n');
  const starts = async (command: string) => {
    const { stdout, stderr } = await run(process.execPath, ["core/penstock.js", command, "--config", "none.yaml"], {
      cwd: checkout,
    });
    if (stdout === "the build runs\n") return "build";
    assert.equal(stderr, "none.yaml:1:1  there is no such file: penstock init makes a project\n");
    return "sources";
  };
  assert.deepEqual([await starts("serve"), await starts("check")], ["build", "sources"]);
  // As large as before, but from another time: one that was brought back from an older version.
  utimesSync(edited, time, new Date(time.getTime() - 86_400_000));
  assert.equal(await starts("serve"), "sources");
  utimesSync(edited, time, time);
  assert.equal(await starts("serve"), "build");
  const added = join(checkout, "core/lib/added.ts");
  writeFileSync(added, "");
  assert.equal(await starts("serve"), "sources");
  rmSync(added);
  assert.equal(await starts("serve"), "build");
});

test("npm run prepare does nothing where package.json is and the sources are not, as in a layer of a Docker image", async (t) => {
  const bare = mkdtempSync(join(tmpdir(), "penstock-layer-"));
  t.after(() => rmSync(bare, { recursive: true, force: true }));
  cpSync(join(ROOT, "package.json"), join(bare, "package.json"));
  const prepared = await run("npm", ["run", "--silent", "prepare"], { cwd: bare });
  assert.deepEqual(prepared, { code: 0, stdout: "", stderr: "" });
  assert.deepEqual(readdirSync(bare), ["package.json"]);
});

test("a start of the build keeps V8's code beside it where Node can, and starts where nobody may write", async (t) => {
  const own = mkdtempSync(join(folder, "cached-"));
  cpSync(out, join(own, "dist"), { recursive: true });
  rmSync(join(own, "dist/compile-cache"), { recursive: true, force: true });
  writeFileSync(join(own, "service.yaml"), "name: Cached\nserver: { port: 0 }\n");
  const starts = async () => {
    const service = await serve(t, [process.execPath, "dist/penstock.js", "serve"], { cwd: own });
    assert.equal((await fetch(`${service.url}/healthz`)).status, 200);
    assert.equal(await service.interrupt("SIGTERM"), 0);
  };
  await starts();
  const cache = join(own, "dist/compile-cache");
  const canCompile = "enableCompileCache" in module;
  assert.equal(existsSync(cache), canCompile);
  if (canCompile) await starts();
  rmSync(cache, { recursive: true, force: true });
  // Also root cannot make a folder there.
  writeFileSync(cache, "");
  await starts();
  assert.equal(statSync(cache).size, 0);
});

test("a build refuses a folder that holds something else", async () => {
  const other = mkdtempSync(join(folder, "other-"));
  writeFileSync(join(other, "notes.txt"), "mine");
  await assert.rejects(build({ out: other }), /is not an earlier build/);
});
