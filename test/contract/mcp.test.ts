/** What MCP servers expose, without an MCP client: `/mcp/servers` and below, and what `/mcp/:serverId/mcp` says to HTTP. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { inject } from "../support/inject.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

const AMOUNT = { type: "object", properties: { amount: { $ref: "#/$defs/Amount" } }, required: ["amount"] };
const WORKFLOWS = {
  expense: {
    name: "Expense",
    purpose: "Approve an expense",
    input: { ...AMOUNT, $defs: { Amount: { type: "number" } } },
    resume: { type: "object", properties: { approved: { type: "boolean" } } },
    steps: [{ id: "ask", andThen: { suspend: { reason: "Manager approval needed" } } }],
  },
  odd: {
    resume: { type: "object" },
    steps: [{ id: "ask", resumeSchema: { type: "string" }, andThen: { suspend: { reason: "A word" } } }],
  },
};
const SERVERS = {
  main: {
    name: "Desk",
    version: "3.2.1",
    description: "Sums",
    tools: ["whoami", "sum", "fail", "guarded", "say"],
    agents: ["assistant"],
    workflows: ["expense", "odd"],
  },
  "a.b": { tools: [] },
};
const serve = (t: Parameters<typeof startService>[0], rest: object = {}) =>
  startService(
    t,
    manifestWith(
      {},
      {
        tools: {
          whoami: { use: "whoami" },
          sum: { use: "add" },
          fail: { use: "fail" },
          guarded: { use: "add", approval: true },
          say: { http: { url: "http://127.0.0.1:1/" }, description: "Says" },
        },
        workflows: WORKFLOWS,
        mcp: { servers: SERVERS },
        ...rest,
      },
    ),
    { plugins: [FIXTURES] },
  );

describe("MCP servers over HTTP", () => {
  let service: TestService;
  const over: (() => unknown)[] = [];
  before(async () => {
    service = await serve({ after: (work) => void over.push(work as () => unknown) });
  });
  after(async () => {
    for (const work of over) await work();
  });
  const call = (tool: string, body: object = {}) => service.post(`/mcp/servers/main/tools/${tool}`, body);

  test("GET /mcp/servers lists them in the order of the manifest; one without a name is called by its id", async () => {
    const { servers } = await dataOf(service.get("/mcp/servers"));
    assert.deepEqual(servers, [
      { id: "main", name: "Desk", version: "3.2.1", description: "Sums", capabilities: { tools: {} }, tools: 10 },
      { id: "a.b", name: "a.b", version: "1.0.0", description: "", capabilities: { tools: {} }, tools: 0 },
    ]);
    assert.deepEqual(await dataOf(service.get("/mcp/servers/main")), servers[0]);
  });

  test("GET /mcp/servers/:serverId and what is below it: an unknown server is 404", async () => {
    for (const path of ["/mcp/servers/other", "/mcp/servers/other/tools", "/mcp/servers/toString"]) {
      const { status, error } = await errorOf(service.get(path));
      assert.equal(status, 404);
      assert.match(error, /^MCP server "\w+" does not exist$/);
    }
    assert.equal((await errorOf(service.post("/mcp/servers/other/tools/sum", {}))).status, 404);
  });

  test("GET /mcp/servers/:serverId/prompts, resources and resource-templates: empty lists, as of a server with tools alone", async () => {
    const lists = { prompts: "prompts", resources: "resources", "resource-templates": "resourceTemplates" };
    for (const [path, key] of Object.entries(lists)) {
      assert.deepEqual(await dataOf(service.get(`/mcp/servers/main/${path}`)), { [key]: [] });
      assert.equal((await errorOf(service.get(`/mcp/servers/other/${path}`))).status, 404);
    }
  });

  test("GET /mcp/servers/:serverId/tools: tools, agents and workflows, each with the schema of its arguments", async () => {
    const { server, tools } = await dataOf(service.get("/mcp/servers/main/tools"));
    assert.equal(server.id, "main");
    const types = tools.map(({ name, type }: Loose) => [name, type]);
    assert.deepEqual(types, [
      ["whoami", "tool"],
      ["sum", "tool"],
      ["fail", "tool"],
      ["guarded", "tool"],
      ["say", "tool"],
      ["agent_assistant", "agent"],
      ["workflow_expense", "workflow"],
      ["workflow_expense_resume", "workflow"],
      ["workflow_odd", "workflow"],
      ["workflow_odd_resume", "workflow"],
    ]);
    const definitions = Object.fromEntries(tools.map(({ name, definition }: Loose) => [name, definition]));
    for (const [name, definition] of Object.entries<Loose>(definitions)) {
      assert.equal(definition.name, name);
      assert.equal(definition.inputSchema.type, "object");
    }
    assert.equal(definitions.sum.description, "Adds two numbers");
    assert.deepEqual(definitions.sum.inputSchema.required, ["a", "b"]);
    assert.equal(definitions.agent_assistant.description, "Helps");
    const { input } = definitions.workflow_expense.inputSchema.properties;
    assert.deepEqual(input.properties.amount, { $ref: "#/properties/input/$defs/Amount" });
    assert.equal(definitions.workflow_expense_resume.inputSchema.properties.resumeData.type, "object");
    const { resumeData } = definitions.workflow_odd_resume.inputSchema.properties;
    assert.equal(resumeData.type, undefined, "a step of it wants something else than the workflow says");
  });

  test("POST /mcp/servers/:serverId/tools/:toolName gives what MCP clients get: text, and the object", async () => {
    assert.deepEqual(await dataOf(call("sum", { arguments: { a: 1, b: 2 } })), {
      content: [{ type: "text", text: '{"sum":3}' }],
      structuredContent: { sum: 3 },
    });
    const { content, structuredContent } = await dataOf(call("agent_assistant", { arguments: { prompt: "Tea?" } }));
    assert.deepEqual(content, [{ type: "text", text: "Tea?" }]);
    assert.equal(structuredContent.text, "Tea?");
  });

  test("POST /mcp/servers/:serverId/tools/:toolName: the context of the body reaches tools; no body is no arguments", async () => {
    const { structuredContent } = await dataOf(call("whoami", { arguments: { n: 1 }, context: { language: "pt" } }));
    assert.deepEqual([structuredContent.input, structuredContent.context], [{ n: 1 }, { language: "pt" }]);
    const bare = await fetch(`${service.url}/mcp/servers/main/tools/whoami`, { method: "POST" });
    assert.deepEqual((await dataOf(bare)).structuredContent.input, {});
  });

  test("POST /mcp/servers/:serverId/tools/:toolName runs a workflow to where it waits, and goes on with it", async () => {
    const begun = await dataOf(call("workflow_expense", { arguments: { input: { amount: 5 } } }));
    const { executionId, status } = begun.structuredContent;
    assert.equal(status, "suspended");
    assert.match(begun.content[1].text, /Manager approval needed\nTo go on, call workflow_expense_resume/);
    const resumed = await dataOf(
      call("workflow_expense_resume", { arguments: { executionId, resumeData: { approved: true }, stepId: "ask" } }),
    );
    assert.equal(resumed.structuredContent.status, "completed");
    assert.deepEqual(resumed.structuredContent.result, { amount: 5, approved: true });
  });

  for (const [what, tool, given, status, error] of [
    ["an unknown tool", "nope", {}, 404, 'MCP server "main" has no tool "nope"'],
    ["arguments that do not fit", "sum", { a: 1 }, 400, "input.b is required"],
    ["an agent without a prompt", "agent_assistant", {}, 400, "arguments.prompt is required"],
    ["a workflow without an input", "workflow_expense", {}, 400, "arguments.input is required"],
    ["an input that does not fit", "workflow_expense", { input: { amount: "x" } }, 400, "input.amount must be number"],
    ["no execution to resume", "workflow_expense_resume", {}, 400, "arguments.executionId is required"],
    ["a tool that fails", "fail", {}, 500, "the shop is closed"],
  ] as const) {
    test(`POST /mcp/servers/:serverId/tools/:toolName: ${what} is ${status}`, async () => {
      assert.deepEqual(await errorOf(call(tool, { arguments: given })), { status, error });
    });
  }

  test("POST /mcp/servers/:serverId/tools/:toolName: a tool that needs approval is 409, arguments that are no object 400", async () => {
    assert.equal((await errorOf(call("guarded", { arguments: { a: 1, b: 2 } }))).status, 409);
    assert.deepEqual(await errorOf(call("sum", { arguments: [1] })), {
      status: 400,
      error: "arguments must be object",
    });
  });

  const message = (body: unknown, headers: Record<string, string> = {}) =>
    service.post("/mcp/main/mcp", body, { accept: "application/json, text/event-stream", ...headers });

  test("POST /mcp/:serverId/mcp: what is no JSON-RPC is refused in its own form", async () => {
    const broken = await message("{");
    assert.equal(broken.status, 400);
    const { jsonrpc, id, error } = (await broken.json()) as Loose;
    assert.deepEqual([jsonrpc, id, error.code], ["2.0", null, -32700]);
    assert.match(error.message, /not valid JSON/);
    const other = await message({ hello: 1 });
    assert.equal(other.status, 400);
    assert.equal(((await other.json()) as Loose).jsonrpc, "2.0");
  });

  test("POST /mcp/:serverId/mcp takes `Accept: */*`, as HTTP libraries send it", async () => {
    for (const accept of ["*/*", "application/json, */*;q=0.5"]) {
      const reply = await message('{"jsonrpc":"2.0","id":1,"method":"tools/list"}', { accept });
      assert.equal(reply.status, 200, await reply.text());
    }
    const refused = await message('{"jsonrpc":"2.0","id":1,"method":"tools/list"}', { accept: "text/html" });
    assert.equal(refused.status, 406);
  });

  test("POST /mcp/:serverId/mcp: a notification is 202, a method that nobody knows an error of the protocol", async () => {
    const { status } = await message({ jsonrpc: "2.0", method: "notifications/initialized" });
    assert.equal(status, 202);
    const reply = await message({ jsonrpc: "2.0", id: "x", method: "prompts/list" });
    const text = await reply.text();
    assert.match(text, /"id":"x"/);
    assert.match(text, /"code":-32601/);
  });

  test("POST /mcp/:serverId/mcp: an unknown server and too large a body are refused with the envelope, another type with an error of JSON-RPC", async () => {
    assert.equal((await errorOf(service.post("/mcp/other/mcp", {}))).status, 404);
    const typed = await message("{}", { "content-type": "text/plain" });
    const error = { code: -32000, message: "content-type must be application/json, not text/plain" };
    assert.deepEqual([typed.status, await typed.json()], [415, { jsonrpc: "2.0", id: null, error }]);
    assert.equal((await errorOf(message(`"${"x".repeat(1024 * 1024)}"`))).status, 413);
  });

  test("POST /mcp/:serverId/mcp: a tool is answered in one piece, an agent, which may take long, by a stream", async () => {
    const ask = (name: string, given: object) => {
      const _meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
      };
      const params = { name, arguments: given, _meta };
      const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name };
      return message({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, headers);
    };
    const sum = await ask("sum", { a: 1, b: 2 });
    assert.match(sum.headers.get("content-type") ?? "", /^application\/json/);
    assert.deepEqual(((await sum.json()) as Loose).result.structuredContent, { sum: 3 });
    const agent = await ask("agent_assistant", { prompt: "Tea?" });
    assert.match(agent.headers.get("content-type") ?? "", /^text\/event-stream/);
    assert.match(await agent.text(), /"text":"Tea\?"/);
  });

  test("GET and DELETE /mcp/:serverId/mcp: 405, for there are no sessions", async () => {
    for (const method of ["GET", "DELETE"]) {
      const reply = await fetch(`${service.url}/mcp/main/mcp`, { method });
      assert.deepEqual([reply.status, reply.headers.get("allow")], [405, "POST"]);
      assert.equal(((await reply.json()) as Loose).jsonrpc, "2.0");
    }
  });
});

const LIST = { jsonrpc: "2.0", id: 1, method: "tools/list" };
const LINGER = { servers: { main: { tools: ["linger"] } } };
const ACCEPT = { accept: "application/json, text/event-stream" };

for (const transport of TRANSPORTS) {
  test(`POST /mcp/:serverId/mcp over ${transport}: pages of foreign origins are 403, of allowed ones and of the service itself not`, async (t) => {
    const cors = { origin: ["https://app.example"] };
    const publicUrl = "https://desk.example/base";
    const service = await serve(t, { server: { transport, cors, publicUrl } });
    const own = new URL(service.url).host;
    for (const [origin, host, status] of [
      ["https://app.example", own, 200],
      ["https://desk.example", own, 200],
      [`http://${own}`, own, 200],
      ["https://evil.example", own, 403],
      ["null", own, 403],
      ["not a url", own, 403],
      // A name of a stranger that was made to lead here.
      ["http://evil.example:3141", "evil.example:3141", 403],
    ] as const) {
      const headers = { ...ACCEPT, origin, host };
      const reply = await inject(service.dispatch, { path: "/mcp/main/mcp", headers, body: LIST });
      assert.equal(reply.status, status, `${origin} at ${host}`);
      if (status === 403) assert.match((reply.json() as Loose).error, /server\.(cors|allowedHosts)/);
    }
    const foreign = await service.post("/mcp/main/mcp", LIST, { ...ACCEPT, origin: "https://evil.example" });
    assert.deepEqual([foreign.status, foreign.headers.get("x-error-code")], [403, "forbidden"]);
    await foreign.text();
  });
}

test("POST /mcp/:serverId/mcp: without a token it is the 401 of every route, before anything is read", async (t) => {
  const service = await serve(t, { auth: { mode: "legacy", provider: { use: "jwt", secret: SECRET } } });
  for (const method of ["POST", "GET", "DELETE"]) {
    const reply = await fetch(`${service.url}/mcp/other/mcp`, { method, body: method === "POST" ? "{" : null });
    assert.equal(reply.status, 401);
    assert.match(reply.headers.get("www-authenticate") ?? "", /^Bearer /);
    assert.deepEqual(Object.keys((await reply.json()) as object), ["success", "error"]);
  }
});

test("POST /mcp/:serverId/mcp: a call that runs when the service ends is told so by an error of the protocol", async (t) => {
  const service = await serve(t, {
    server: { limits: { drain: "100ms" } },
    tools: { linger: { use: "linger" } },
    mcp: LINGER,
  });
  const params = { name: "linger", arguments: { takes: 60_000 } };
  const reply = await service.post("/mcp/main/mcp", { ...LIST, method: "tools/call", params }, ACCEPT);
  assert.equal(reply.status, 200);
  const [text] = await Promise.all([reply.text(), service.stop()]);
  assert.match(text, /"id":1,"error":\{"code":-32603,"message":"the server is stopping"\}/);
});

test("POST /mcp/:serverId/mcp: a call of an agent whose client leaves ends, and is no error in the log", async (t) => {
  const service = await serve(t, {
    providers: { demo: { use: "scripted", firstDelay: "60s" } },
    mcp: { servers: { main: { agents: ["assistant"] } } },
  });
  const isAt = (status: string) => async () => (await dataOf(service.get("/agents/assistant"))).status === status;
  const leaving = new AbortController();
  const params = { name: "agent_assistant", arguments: { prompt: "x" } };
  const body = JSON.stringify({ ...LIST, method: "tools/call", params });
  const headers = { ...ACCEPT, "content-type": "application/json" };
  const call = fetch(`${service.url}/mcp/main/mcp`, { method: "POST", headers, body, signal: leaving.signal });
  call.then((reply) => reply.text()).catch(() => {});
  await eventually(isAt("working"), "the call has begun");
  leaving.abort();
  await eventually(isAt("idle"), "the call has ended");
  await new Promise(setImmediate);
  assert.deepEqual(
    service.log.filter(({ level }) => level === "error"),
    [],
  );
});

test("POST /mcp/:serverId/mcp: tools/call with a name that is no text is refused, and is no error of the service", async (t) => {
  const service = await serve(t, { mcp: { servers: { main: { agents: ["assistant"] } } } });
  for (const name of [{ toString: 1 }, ["a"], 7, null]) {
    const params = { name, arguments: {} };
    const reply = await service.post("/mcp/main/mcp", { ...LIST, method: "tools/call", params }, ACCEPT);
    assert.ok(reply.status < 500, `${JSON.stringify(name)}: ${reply.status}`);
    assert.match(await reply.text(), /"code":-32602/);
  }
});

test("POST /mcp/:serverId/mcp: a header that repeats an argument must fit it, where the schema asks for one", async (t) => {
  const plugin = {
    kind: "tool",
    name: "place",
    parameters: { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } },
  };
  const source = `export default { ...${JSON.stringify(plugin)}, execute: ({ region }) => region };`;
  const files = { "package.json": JSON.stringify({ type: "module" }), "tools/place.js": source };
  const service = await startService(
    t,
    manifestWith({}, { tools: { place: { use: "place" } }, mcp: { servers: { main: { tools: ["place"] } } } }),
    { plugins: [pluginFolder(t, files)] },
  );
  const meta = { protocolVersion: "2026-07-28", clientCapabilities: {} };
  const _meta = Object.fromEntries(
    Object.entries(meta).map(([key, value]) => [`io.modelcontextprotocol/${key}`, value]),
  );
  const params = { name: "place", arguments: { region: "north" }, _meta };
  const said = { ...ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "place" };
  const call = (headers: Record<string, string>) =>
    service.post("/mcp/main/mcp", { ...LIST, method: "tools/call", params }, { ...said, ...headers });
  const fits = await call({ "mcp-param-region": "north" });
  assert.match(await fits.text(), /"text":"north"/);
  for (const wrong of [{}, { "mcp-param-region": "south" }, { "mcp-param-region": "=?base64?bm9ydGg?=" }]) {
    const refused = await call(wrong as Record<string, string>);
    assert.equal(refused.status, 400, JSON.stringify(wrong));
    assert.match(await refused.text(), /"code":-32020/);
  }
});
