/** Tools of foreign MCP servers (`mcp.clients`): for agents, workflows and the API, while their servers come and go. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { boot } from "../../core/app/boot.ts";
import { eventually } from "../support/event-reader.ts";
import { type ForeignServer, startForeignServer } from "../support/mcp-server.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { silent } from "../support/providers.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const PROCESS = fileURLToPath(new URL("../fixtures/mcp/process.mjs", import.meta.url));
/** From the environment of the service. */
const MANUAL_KEY = `\${MANUAL_KEY}`;

const execute = (service: TestService, tool: string, input: object = {}) =>
  service.post(`/tools/${tool}/execute`, { input });
const resultOf = async (service: TestService, tool: string, input: object = {}) =>
  (await dataOf(execute(service, tool, input))).result;
const toolOf = async (service: TestService, name: string): Promise<Loose> =>
  (await dataOf(service.get("/tools"))).find((tool: Loose) => tool.name === name);
const ready = (service: TestService, name: string) =>
  eventually(async () => (await toolOf(service, name))?.status === "ready", `${name} is ready`);

const SERVERS = {
  "a server of the current revision": (t: Pick<TestContext, "after">) => startForeignServer(t, "current"),
  "a server with sessions": (t: Pick<TestContext, "after">) => startForeignServer(t, "sessions"),
  "a process": async () => null,
};

for (const [kind, start] of Object.entries(SERVERS)) {
  describe(`tools of mcp.clients, ${kind}`, () => {
    const over: (() => unknown)[] = [];
    const context = { after: (work: unknown) => void over.push(work as () => unknown) };
    let server: ForeignServer | null;
    let service: TestService;
    before(async () => {
      server = await start(context);
      const docs =
        server === null
          ? { command: process.execPath, args: [PROCESS], env: { MANUAL_KEY } }
          : { url: server.url, headers: { "x-manual-key": MANUAL_KEY } };
      const workflows = {
        look: { steps: [{ id: "find", andThen: { tool: "docs_search", input: { query: "{{ input.what }}" } } }] },
      };
      const mcp = { clients: { docs }, servers: { again: { tools: ["docs_search"] } } };
      service = await startService(context, manifestWith({ tools: ["docs_search"] }, { workflows, mcp }), {
        env: { ...process.env, MANUAL_KEY: "a-secret-of-the-manual", OURS: "not theirs" },
      });
      await ready(service, "docs_search");
    });
    after(async () => {
      for (const work of over) await work();
    });

    test("GET /tools and GET /agents show them with the descriptions and schemas of their server", async () => {
      const { description, tags, parameters, status, agents } = await toolOf(service, "docs_search");
      assert.deepEqual([description, tags, status], ["Searches the manual", ["docs"], "ready"]);
      assert.deepEqual(parameters.required, ["query"]);
      assert.deepEqual(agents, [{ id: "assistant", name: "Assistant" }]);
      const [assistant] = await dataOf(service.get("/agents"));
      assert.deepEqual(assistant.tools, [{ name: "docs_search", description: "Searches the manual", parameters }]);
      assert.ok(await toolOf(service, "docs_read_me"), "a name takes characters that models take");
    });

    test("POST /tools/:name/execute gives the object of the result, or its text, or what else there is", async () => {
      assert.deepEqual(await resultOf(service, "docs_search", { query: "tea" }), { found: "tea" });
      assert.equal(await resultOf(service, "docs_read_me"), "Plain text");
      assert.deepEqual(await resultOf(service, "docs_picture"), {
        type: "content",
        value: [{ type: "image-data", data: "AAAA", mediaType: "image/png" }],
      });
    });

    test("POST /tools/:name/execute: a server that asks its client for a person's answer is told, and so is the caller, that nobody can answer", async () => {
      const { status, error } = await errorOf(execute(service, "docs_asks"));
      assert.equal(status, 500);
      // A server of the current revision knows it from the request, and says so itself.
      assert.match(
        error,
        /elicitation\/create: the server asks for a person or a model, and here is none|elicitation\/create\): the request's client capabilities/,
      );
    });

    test("POST /tools/:name/execute checks the input by the schema of the server", async () => {
      assert.deepEqual(await errorOf(execute(service, "docs_search", { query: 1, more: 2 })), {
        status: 400,
        error: "input.more is not a known key; input.query must be string",
      });
    });

    test("POST /tools/:name/execute: a result that is a failure is 500 with what the tool said", async () => {
      const { status, error } = await errorOf(execute(service, "docs_broken"));
      assert.deepEqual([status, error], [500, "the manual is closed"]);
    });

    test("POST /tools/:name/execute: a tool that its server does not have is 404", async () => {
      assert.equal((await errorOf(execute(service, "docs_nothing"))).status, 404);
    });

    test("a step of a workflow runs them, and MCP servers of our own pass them on", async () => {
      const { result } = await dataOf(service.post("/workflows/look/execute", { input: { what: "kettle" } }));
      assert.deepEqual(result, { found: "kettle" });
      const { tools } = await dataOf(service.get("/mcp/servers/again/tools"));
      assert.deepEqual(tools[0].definition.inputSchema.required, ["query"]);
      const body = { arguments: { query: "tea" } };
      const { structuredContent } = await dataOf(service.post("/mcp/servers/again/tools/docs_search", body));
      assert.deepEqual(structuredContent, { found: "tea" });
    });

    test("POST /tools/:name/execute: a client that leaves stops the call at the MCP server", async () => {
      if (server === null) return;
      const leave = new AbortController();
      const init = { method: "POST", headers: { "content-type": "application/json" }, body: '{"input":{}}' };
      const call = fetch(`${service.url}/tools/docs_wait/execute`, { ...init, signal: leave.signal }).catch(() => null);
      await eventually(() => server!.state.waiting, "the call");
      leave.abort();
      await call;
      await eventually(() => server!.state.stopped, "the end of the call");
    });

    test("a tool that comes later is there once the server has told so", async () => {
      assert.equal(await toolOf(service, "docs_grown"), undefined);
      assert.equal(await resultOf(service, "docs_grow"), "grown");
      await ready(service, "docs_grown");
      assert.equal(await resultOf(service, "docs_grown"), "I am new");
    });

    test("what the server gets of us is what the manifest gives it, and the log shows no secret", async () => {
      if (server === null) {
        const environment = JSON.parse((await resultOf(service, "docs_environment")) as string);
        assert.equal(environment.MANUAL_KEY, "a-secret-of-the-manual");
        assert.equal(environment.OURS, undefined);
        const line = service.log.find(({ stderr }) => /^manual: ready as \d+$/.test(String(stderr)));
        assert.equal(line?.mcpClient, "docs");
      } else {
        const headers = JSON.parse((await resultOf(service, "docs_headers")) as string);
        assert.equal(headers["x-manual-key"], "a-secret-of-the-manual");
      }
      assert.ok(!JSON.stringify(service.log).includes("a-secret"));
    });

    test("an answer that is too large is a failure of the tool, and the next call works", async () => {
      assert.equal((await errorOf(execute(service, "docs_huge"))).status, 500);
      assert.deepEqual(await resultOf(service, "docs_search", { query: "tea" }), { found: "tea" });
    });

    test("a server that dies is unavailable, and is there again when it has come back", async () => {
      if (server === null) {
        assert.equal((await errorOf(execute(service, "docs_die"))).status, 500);
        assert.equal((await toolOf(service, "docs_search")).status, "unavailable");
      } else {
        await server.stop();
        // The call that meets the end of the connection may have reached the server: that one is no 503.
        const search = async () => errorOf(execute(service, "docs_search", { query: "tea" }));
        await eventually(async () => (await search()).status === 503, "the loss is known");
        assert.match((await search()).error, /^MCP server "docs" is not available: ECONNREFUSED$/);
        assert.equal((await toolOf(service, "docs_search")).status, "unavailable");
        assert.equal((await service.get("/readyz")).status, 200);
        await server.start();
        await ready(service, "docs_search");
      }
      assert.deepEqual(await resultOf(service, "docs_search", { query: "tea" }), { found: "tea" });
    });

    test("a server that has forgotten its session is asked again in a new one", async () => {
      if (server === null) return;
      await server.stop();
      await server.start();
      assert.deepEqual(await resultOf(service, "docs_search", { query: "tea" }), { found: "tea" });
    });

    test("the end of the service is the end of the process", async () => {
      if (server !== null) return;
      const pids = service.log.flatMap(({ stderr }) => /as (\d+)$/.exec(String(stderr))?.[1] ?? []);
      await service.stop();
      for (const pid of pids) assert.throws(() => process.kill(Number(pid), 0), /ESRCH/);
    });
  });
}

test("a model is told of a tool what its server says, and what the tool gave; one that fails is told to it", async (t) => {
  const server = await startForeignServer(t, "current");
  const mcp = { clients: { docs: { url: server.url } } };
  const { service, upstream } = await serveUpstream(t, { tools: ["docs_search", "docs_broken"] }, { mcp });
  await ready(service as TestService, "docs_search");
  upstream.replies(
    calls([{ name: "docs_search", input: { query: "tea" } }]),
    calls([{ name: "docs_broken" }]),
    says("Done"),
  );
  const { toolResults, text } = await dataOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.deepEqual([toolResults[0].output, text], [{ found: "tea" }, "Done"]);
  const [first, , last] = upstream.requests.map(({ body }: Loose) => body);
  assert.deepEqual(first.tools[0].function.parameters.required, ["query"]);
  assert.match(JSON.stringify(last.messages.at(-1)), /the manual is closed/);
});

/** A server whose tool does not answer as the protocol has it. */
const WRONG = `
const replies = {
  initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "x", version: "1" } },
  "tools/list": { tools: [{ name: "odd", inputSchema: { type: "object" } }] },
  "tools/call": { content: "no list" },
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result: replies[method] }));
});`;

test("an answer that the protocol does not know is a failure of the tool, in a line that names the server", async (t) => {
  const clients = { wrong: { command: process.execPath, args: ["-e", WRONG] } };
  const service = await startService(t, manifestWith({ tools: ["wrong_odd"] }, { mcp: { clients } }));
  await ready(service, "wrong_odd");
  const { status, error } = await errorOf(execute(service, "wrong_odd"));
  assert.equal(status, 500);
  assert.match(error, /^MCP server "wrong": Invalid result for tools\/call: .*expected array, received string[^\n]*$/);
  assert.equal((await toolOf(service, "wrong_odd")).status, "ready");
});

test("servers that do not answer hold up neither the start nor the end, and their tools are 503", async (t) => {
  let given = 0;
  const silent = createServer((socket) => socket.on("close", () => given++));
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => silent.close());
  const port = (silent.address() as AddressInfo).port;
  const gone = await startForeignServer(t, "current");
  await gone.stop();
  const clients = {
    silent: { url: `http://127.0.0.1:${port}/mcp` },
    gone: { url: gone.url },
    missing: { command: "no-such-command-anywhere" },
  };
  const service = await startService(t, manifestWith({ tools: ["silent_x", "gone_x"] }, { mcp: { clients } }));
  assert.equal((await service.get("/readyz")).status, 200);
  assert.equal(given, 0, "the start waited until the silent server was given up");
  const { parameters, status } = await toolOf(service, "silent_x");
  assert.deepEqual([parameters, status], [{ type: "object" }, "unavailable"]);
  for (const name of ["gone_x", "gone_never_named", "missing_x"]) {
    const refused = await execute(service, name);
    assert.equal(refused.headers.get("retry-after"), "1");
    const { status, error } = await errorOf(refused);
    assert.equal(status, 503);
    assert.match(
      error,
      /^MCP server "(gone|missing)" is not available: (ECONNREFUSED|cannot run no-such-command-anywhere: ENOENT)$/,
    );
  }
  const began = performance.now();
  await service.stop();
  assert.ok(performance.now() - began < 9_000, "the end waited until the silent server was given up");
});

test("penstock check connects to no MCP server and runs no command of one", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "penstock-mcp-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const clients = { touch: { command: "touch", args: ["touched"] } };
  const config = join(folder, "service.yaml");
  await writeFile(config, JSON.stringify(manifestWith({ tools: ["touch_x"] }, { mcp: { clients } })));
  const booted = await boot({ config, plugins: [], env: {}, logger: silent });
  assert.deepEqual(booted.issues, []);
  await booted.close();
  assert.deepEqual(await readdir(folder), ["service.yaml"]);
});

/** An MCP server without the SDK, which would not send a malformed tool. */
async function rawServer(t: TestContext, tools: readonly unknown[]): Promise<string> {
  const RESULTS: Record<string, object> = {
    initialize: {
      protocolVersion: "2025-06-18",
      capabilities: { tools: {} },
      serverInfo: { name: "raw", version: "1" },
    },
    "tools/list": { tools },
    "tools/call": { content: [{ type: "text", text: "done" }] },
  };
  const server = createHttpServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    if (request.method !== "POST") return response.writeHead(405).end();
    const { id, method } = JSON.parse(body);
    if (id === undefined) return response.writeHead(202).end();
    const result = RESULTS[method];
    const answer = result === undefined ? { error: { code: -32601, message: "no such method" } } : { result };
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => new Promise((resolve) => server.close(resolve).closeAllConnections()));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}

test("mcp.clients: a malformed tool is left out with a warning that names it, and the others of its server work", async (t) => {
  const inputSchema = { type: "object" };
  const url = await rawServer(t, [
    { name: "bad_schema", inputSchema: "none" },
    { name: "bad_type", inputSchema: { type: "array" } },
    { name: 7, inputSchema },
    "no tool at all",
    { name: "", inputSchema },
    { name: "bad_description", description: 1, inputSchema },
    { name: "good", description: "Works", inputSchema },
    { name: "good", description: "Comes second", inputSchema },
  ]);
  const service = await startService(t, manifestWith({}, { mcp: { clients: { docs: { url } } } }));
  await ready(service, "docs_good");
  assert.equal(await resultOf(service, "docs_good"), "done");
  const tools: Loose[] = await dataOf(service.get("/tools"));
  assert.deepEqual(
    tools.filter(({ name }) => name.startsWith("docs_")).map(({ name, description }) => [name, description]),
    [["docs_good", "Works"]],
  );
  const left = () => service.log.filter(({ msg }) => String(msg).includes("is left out"));
  assert.deepEqual(
    left().map(({ tool }) => tool),
    ["bad_schema", "bad_type", "(no name)", "(no name)", "", "bad_description", "good"],
  );
  assert.match(String(left()[1]!.msg), /its inputSchema is not a schema of type "object"/);
});
