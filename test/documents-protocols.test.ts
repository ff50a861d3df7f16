/** The commands and the manifests of docs/protocols.md and docs/protocols/mcp.md, run as they stand. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { ROOT } from "./support/command-line.ts";
import { block, FLAGSHIP, merge, shell } from "./support/documents.ts";
import { connect } from "./support/mcp-clients.ts";
import { startForeignServer } from "./support/mcp-server.ts";
import { startOpenAIUpstream } from "./support/openai-upstream.ts";
import { dataOf } from "./support/served-upstream.ts";
import { startService } from "./support/service.ts";
import { startTokenIssuer } from "./support/token-issuer.ts";
import { SECRET, token } from "./support/tokens.ts";

test("docs/protocols.md: the A2A commands: an agent's card, and a task that it answers", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const card = await shell(block("sh", "agent-card.json"), service.url);
  assert.equal(card.supportedInterfaces[0].url, `${service.url}/a2a/support`);
  const { result } = await shell(block("sh", '"messageId": "m-1"'), service.url);
  assert.equal(result.task.artifacts[0].artifactId, "answer");
  assert.match(result.task.artifacts[0].parts[0].text, /A-1002/);
});

test("docs/protocols.md: the command that answers what a task asks: the refund runs, and the task is completed", async (t) => {
  const call = { tool: "refund", input: { orderId: "A-1002", amount: 250 } };
  const asking = {
    tools: { refund: { approval: true } },
    providers: { demo: { replies: [{ when: ".", call }] } },
    agents: { support: { tools: ["refund"] } },
  };
  const service = await startService(t, merge(parse(FLAGSHIP), asking), { env: {} });
  const { result } = await shell(block("sh", '"messageId": "m-1"'), service.url);
  assert.equal(result.task.status.state, "TASK_STATE_INPUT_REQUIRED", JSON.stringify(result.task.status));
  const answered = await shell(block("sh", "$TASK").replace("$TASK", result.task.id), service.url);
  assert.equal(answered.result.task.status.state, "TASK_STATE_COMPLETED", JSON.stringify(answered));
});

test("docs/protocols.md: the WebSocket command gets its message back", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const command = block("sh", "/ws/ticker").replaceAll("ws://127.0.0.1:3141", service.url.replace("http", "ws"));
  assert.deepEqual(await shell(command, service.url), { hello: "there" });
});

test("docs/protocols.md: the MCP commands and the client's configuration: the same tool, with MCP and without", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const { id, result } = await shell(block("sh", "mcp-protocol-version"), service.url);
  assert.deepEqual([id, result.structuredContent.status], [1, "shipped"]);
  const { data } = await shell(block("sh", "/mcp/servers/main/tools"), service.url);
  assert.deepEqual(data.structuredContent, result.structuredContent);
  const { mcpServers } = JSON.parse(block("json", "mcpServers"));
  const client = await connect("2.4.0 current", mcpServers.desk.url.replace("http://127.0.0.1:3141", service.url));
  const names = (await client.tools()).map(({ name }) => name);
  assert.deepEqual(names, ["lookup_order", "agent_support", "workflow_refund", "workflow_refund_resume"]);
  await client.close();
});

test("docs/protocols/mcp.md: MCP clients, written into service.yaml: a server over HTTP and a command, both in use", async (t) => {
  const server = await startForeignServer(t, "current");
  const written = block("yaml", "manual_search").replace("http://127.0.0.1:9000/mcp", server.url);
  const script = join(ROOT, "test/fixtures/mcp/process.mjs");
  const manifest = merge(parse(FLAGSHIP), parse(written.replace("file-server.mjs", script)));
  const service = await startService(t, manifest, { env: {} });
  for (const tool of ["manual_search", "files_search"]) {
    const { result } = await dataOf(service.post(`/tools/${tool}/execute`, { input: { query: "tea" } }));
    assert.deepEqual(result, { found: "tea" });
  }
  const { result } = await dataOf(service.post("/tools/files_environment/execute", { input: {} }));
  assert.equal(JSON.parse(result).ROOT, "/srv/files");
  assert.deepEqual((await dataOf(service.get("/agents/writer"))).tools, ["manual_search"]);
});

test("docs/protocols/mcp.md: servers that are called on behalf of users, written into service.yaml: both see who asks", async (t) => {
  const issuer = await startTokenIssuer(t, "crm", "contacts.read");
  const notes = await startForeignServer(t, "current");
  const crm = await startForeignServer(t, "current", async (request) =>
    (await request.clone().text()).includes('"tools/call"') ? issuer.guard(request) : null,
  );
  const written = block("yaml", "tokenExchange:")
    .replace("https://notes.example.com/mcp", notes.url)
    .replace("https://crm.example.com/mcp", crm.url)
    .replace("https://login.example.com/token", issuer.url)
    .replace("clientId: desk", `clientId: ${JSON.stringify(issuer.client.id)}`);
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const manifest = { ...merge(parse(FLAGSHIP), parse(written)), auth };
  const service = await startService(t, manifest, { env: { CRM_CLIENT_SECRET: issuer.client.secret } });
  for (const tool of ["notes_whoami", "crm_whoami"]) {
    const headers = { authorization: `Bearer ${token({ sub: "ada" })}` };
    assert.equal((await dataOf(service.post(`/tools/${tool}/execute`, { input: {} }, headers))).result, "ada");
  }
});

test("docs/protocols/mcp.md: the time limit that progress extends, written into service.yaml, is taken", async (t) => {
  const server = await startForeignServer(t, "current");
  const written = block("yaml", "maxTimeout").replace("http://127.0.0.1:9000/mcp", server.url);
  const service = await startService(t, merge(parse(FLAGSHIP), parse(written)), { env: {} });
  const { result } = await dataOf(service.post("/tools/builder_steps/execute", { input: {} }));
  assert.equal(result, "all steps");
});

test("docs/protocols/mcp.md: the agent with texts of a server, written into service.yaml, has them in its instructions", async (t) => {
  const server = await startForeignServer(t, "current");
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const written = block("yaml", "house-style").replace("http://127.0.0.1:9000/mcp", server.url);
  const providers = { up: { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test" } };
  const manifest = merge(merge(parse(FLAGSHIP), parse(written.replace("demo/echo", "up/test"))), { providers });
  const service = await startService(t, manifest, { env: {} });
  const options = { context: { language: "English", page: 7 } };
  await dataOf(service.post("/agents/guide/text", { input: "Hello", options }));
  const { content } = upstream.requests[0]!.body.messages[0];
  assert.match(
    content,
    /^Answer from the manual\.\n\nFollow house-style in English\.\n\n<resource uri="manual:\/\/style">\n/,
  );
  assert.match(content, /First edition of manual:\/\/pages\/7\n<\/resource>$/);
});
