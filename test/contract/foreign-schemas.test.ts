/** Schemas of tools that others wrote, servers of MCP and callers, on their way to the model, and providers that refuse some of them. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { failure, type Reply, says, type UpstreamRequest } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { serveStrict } from "../support/strict-providers.ts";

const TEXT = "/agents/assistant/text";
/** Right in other languages and without the flag `u`, but nothing that compiles here. */
const SLUG = {
  type: "object",
  properties: { title: { type: "string", pattern: "^[\\w-\\.]+$" }, size: { type: "integer", minimum: 1 } },
  required: ["title"],
};
const LISTED = [
  { name: "slug", description: "Makes a slug", inputSchema: SLUG },
  { name: "bare", inputSchema: { type: "object" } },
];
const SERVER = `
const replies = {
  initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "x", version: "1" } },
  "tools/list": { tools: ${JSON.stringify(LISTED)} },
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const result = replies[method] ?? { content: [{ type: "text", text: JSON.stringify(params?.arguments) }] };
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});`;

async function serve(t: TestContext, agent: object = {}, rest: object = {}) {
  const far = { command: process.execPath, args: ["-e", SERVER] };
  const mcp = { clients: { far }, servers: { main: { tools: ["far_bare"], workflows: ["w"] } } };
  const workflows = { w: { steps: [{ id: "a", andThen: { set: 1 } }] } };
  const tools = ["far_slug", "far_bare"];
  const served = await serveUpstream(t, { tools, memory: false, ...agent }, { mcp, workflows, ...rest });
  const { service } = served;
  await eventually(async () => {
    const list: Loose[] = await dataOf(service.get("/tools"));
    return list.find(({ name }) => name === "far_slug")?.status === "ready";
  }, "the list of the server");
  return served;
}

const toolsOf = ({ body }: UpstreamRequest): Loose => body.tools.map((tool: Loose) => tool.function);

test("POST /agents/:id/text and GET /tools: the schema of an MCP tool with a pattern that does not compile here is as its server wrote it", async (t) => {
  const { service, upstream } = await serve(t);
  await dataOf(service.post(TEXT, { input: "x" }));
  assert.deepEqual(toolsOf(upstream.requests[0]!)[0].parameters, SLUG);
  const tools: Loose[] = await dataOf(service.get("/tools"));
  assert.deepEqual(tools.find(({ name }) => name === "far_slug").parameters, SLUG);
  // What cannot be checked here is for the server to check.
  const input = { title: "?!" };
  const { result } = await dataOf(service.post("/tools/far_slug/execute", { input }));
  assert.equal(result, JSON.stringify(input));
  const lines = service.log.filter(({ tool }) => tool === "slug");
  assert.deepEqual(
    lines.map(({ level }) => level),
    ["debug"],
  );
  assert.match(String(lines[0]!.msg), /not checked here/);
});

test("POST /agents/:id/text: a tool with neither parameters nor a description goes to the provider with properties, and without a description", async (t) => {
  const { service, upstream } = await serve(t);
  await dataOf(service.post(TEXT, { input: "x" }));
  assert.deepEqual(toolsOf(upstream.requests[0]!)[1], {
    name: "far_bare",
    parameters: { type: "object", properties: {} },
  });
});

test("POST /mcp/:serverId/mcp lists no pattern with a lookaround and no empty description, and ids are checked as before", async (t) => {
  const { service } = await serve(t);
  const { tools } = await dataOf(service.get("/mcp/servers/main/tools"));
  const text = JSON.stringify(tools);
  assert.match(text, /executionId/);
  assert.doesNotMatch(text, /\(\?[!=<]|"description":""/);
  const call = { arguments: { input: 1, options: { executionId: ".." } } };
  const { status, error } = await errorOf(service.post("/mcp/servers/main/tools/workflow_w", call));
  assert.equal(status, 400);
  assert.match(error, /executionId must be 1 to 128/);
});

const ASKED = { model: "assistant", input: "x", messages: [{ role: "user", content: "x" }] };
const DOORS: [path: string, tool: Loose, more?: object][] = [
  ["/v1/chat/completions", { type: "function", function: { name: "mine", parameters: SLUG } }],
  ["/v1/responses", { type: "function", name: "mine", parameters: SLUG, strict: false }],
  [
    "/agents/assistant/ag-ui",
    { name: "mine", description: "", parameters: SLUG },
    {
      threadId: "t",
      runId: "r",
      messages: [{ id: "m", role: "user", content: "x" }],
      state: {},
      context: [],
      forwardedProps: {},
    },
  ],
];
for (const [path, tool, more = {}] of DOORS)
  test(`POST ${path}: a caller's tool with a pattern that does not compile here reaches the model as it came`, async (t) => {
    const { service, upstream } = await serve(t);
    const reply = await service.post(path, { ...ASKED, ...more, tools: [tool] });
    assert.equal(reply.status, 200, await reply.text());
    const mine = toolsOf(upstream.requests[0]!).find(({ name }: Loose) => name === "mine");
    assert.deepEqual(mine.parameters, SLUG);
    assert.equal(mine.description, undefined);
  });

test("POST /v1/chat/completions: a caller's tool that is nested too deeply, or has a foreign $ref, is not checked either", async (t) => {
  const { service, upstream } = await serve(t);
  let deep: object = { type: "string" };
  for (let level = 0; level < 40; level++) deep = { type: "array", items: deep };
  const parameters = { type: "object", properties: { deep, other: { $ref: "https://example.com/schema.json" } } };
  const reply = await service.post("/v1/chat/completions", {
    ...ASKED,
    tools: [{ type: "function", function: { name: "mine", parameters } }],
  });
  assert.equal(reply.status, 200, await reply.text());
  assert.deepEqual(toolsOf(upstream.requests[0]!).at(-1).parameters, parameters);
});

/** A provider that takes no `pattern` in a tool. */
const withoutPatterns = (request: UpstreamRequest): Reply => {
  const index = (request.body.tools ?? []).findIndex((tool: Loose) => JSON.stringify(tool).includes('"pattern"'));
  if (index === -1) return says("Yes.");
  const { name } = request.body.tools[index].function;
  return failure(400, { message: `Invalid schema for function '${name}': 'pattern' is not permitted.` });
};

test("POST /agents/:id/text: a tool that the provider refuses is sent with a plain schema, and the next run knows that", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.fallback(withoutPatterns);
  assert.equal((await dataOf(service.post(TEXT, { input: "x" }))).text, "Yes.");
  assert.equal(upstream.requests.length, 2);
  assert.deepEqual(toolsOf(upstream.requests[1]!)[0].parameters, {
    type: "object",
    properties: { title: { type: "string" }, size: { type: "integer" } },
    required: ["title"],
  });
  assert.equal((await dataOf(service.post(TEXT, { input: "again" }))).text, "Yes.");
  assert.equal(upstream.requests.length, 3);
  const lines = service.log.filter(({ refused }) => refused === "tools");
  assert.deepEqual(
    lines.map(({ level, named }) => [level, named]),
    [["warn", ["far_slug"]]],
  );
});

test("POST /agents/:id/text: the error names the tool that the provider goes on to refuse, or the message", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.fallback(failure(400, { message: "tools.1.custom.input_schema: what the provider says" }));
  const { status, error } = await errorOf(service.post(TEXT, { input: "x" }));
  assert.deepEqual([status, error], [500, 'model provider failed: refused the request (tool "far_bare")']);
  assert.equal(upstream.requests.length, 2);
  upstream.fallback(failure(400, { message: "Invalid 'messages[1].content': secret words of somebody" }));
  const other = await errorOf(service.post(TEXT, { input: "x" }));
  assert.equal(other.error, "model provider failed: refused the request (messages[1].content)");
});

test("POST /agents/:id/text on the package of Anthropic: a tool without parameters is accepted", async (t) => {
  const { service, upstream } = await serveStrict(
    t,
    "Anthropic",
    { tools: ["ping"] },
    { tools: { ping: { client: true, description: " " } } },
  );
  upstream.says({ text: "Yes." });
  assert.equal((await dataOf(service.post(TEXT, { input: "x" }))).text, "Yes.");
  assert.deepEqual(upstream.refusals, []);
  const [tool] = upstream.requests[0].tools;
  assert.deepEqual([tool.description, tool.input_schema.properties], [undefined, {}]);
});
