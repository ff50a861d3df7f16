/** Progress of tools: of foreign MCP servers, to those who follow a run, and of our own tools to MCP clients. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { CLIENTS, connect } from "../support/mcp-clients.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

const ready = (service: TestService, name: string, headers: Record<string, string> = {}) =>
  eventually(async () => {
    const tools = await dataOf(service.get("/tools", headers));
    return tools.find((tool: Loose) => tool.name === name)?.status === "ready";
  }, `${name} is ready`);

for (const kind of ["current", "sessions"] as const) {
  test(`POST /agents/:id/stream and /chat: progress that a server of the kind ${kind} reports of a call is told, without the user's token`, async (t) => {
    const server = await startForeignServer(t, kind);
    const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
    const mcp = { clients: { docs: { url: server.url, auth: "forward" } } };
    const env = { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" };
    const { service, upstream } = await serveUpstream(t, { tools: ["docs_steps"] }, { auth, mcp }, { env });
    await ready(service, "docs_steps", { "x-console-access-key": env.SERVICE_CONSOLE_ACCESS_KEY });
    upstream.fallback(({ toolOutputs }) =>
      toolOutputs.length === 0 ? calls([{ name: "docs_steps", input: { count: 200 } }]) : says("Done"),
    );
    const ada = { authorization: `Bearer ${token({ sub: "ada" })}` };
    const send = async (path: string, body: object) => {
      const reply = await service.post(`/agents/assistant/${path}`, body, ada);
      assert.equal(reply.status, 200);
      return parseEvents(await reply.text()).flatMap(({ data }) => (data === "[DONE]" ? [] : [JSON.parse(data)]));
    };
    const parts = await send("stream", { input: "x" });
    const [told, ...more] = parts.filter(({ type }) => type === "tool-progress");
    assert.equal(more.at(-1)?.progress, 200, "the last report is never left out");
    const { toolCallId } = parts.find(({ type }) => type === "tool-call");
    const report = { toolCallId, toolName: "docs_steps", progress: 1, total: 200, message: "of Bearer ***" };
    assert.deepEqual(told, { type: "tool-progress", ...report });
    assert.ok(more.length < 100, `of 200 reports those within a second of another are left out: ${more.length}`);
    assert.equal(parts.find(({ type }) => type === "tool-result").output, "all steps");

    const message = { id: "m", role: "user", parts: [{ type: "text", text: "x" }] };
    const chunks = await send("chat", { messages: [message] });
    const { data, ...chunk } = chunks.find(({ type }) => type === "data-tool-progress");
    assert.deepEqual(chunk, { type: "data-tool-progress", id: data.toolCallId, transient: true });
    assert.deepEqual({ ...report, toolCallId: data.toolCallId }, data);
  });
}

test("mcp.clients.X.maxTimeout: progress gives a call its timeout again, up to the maximum; without it, progress gives no time", async (t) => {
  const server = await startForeignServer(t, "current");
  const client = (more: object) => ({ url: server.url, timeout: "2s", ...more });
  const clients = { patient: client({ maxTimeout: "60s" }), strict: client({}), capped: client({ maxTimeout: "3s" }) };
  const service = await startService(t, manifestWith({}, { mcp: { clients } }));
  for (const name of Object.keys(clients)) await ready(service, `${name}_steps`);
  const call = (name: string, count: number) =>
    service.post(`/tools/${name}_steps/execute`, { input: { count, pause: 600 } });
  const [patient, strict, capped] = await Promise.all([
    dataOf(call("patient", 5)),
    errorOf(call("strict", 5)),
    errorOf(call("capped", 1000)),
  ]);
  assert.equal(patient.result, "all steps");
  assert.deepEqual([strict.status, capped.status], [500, 500]);
  assert.match(strict.error, /timed out after 2s|did not answer in time/);
  assert.match(capped.error, /timed out after 3s|did not answer in time/);
});

const REPORTING = `export default { kind: "tool", name: "reporting", execute: async (_input, { progress }) => {
  progress?.({ progress: 1, total: 2, message: "half" });
  progress?.("nonsense");
  progress?.({ progress: 0.5 });
  progress?.({ progress: 1.5, total: 2, message: "within a second of another, with one after it" });
  progress?.({ progress: 2, total: 2, message: "all" });
  return { followed: progress !== undefined };
} };`;

describe("POST /mcp/:serverId/mcp: progress of our own tools", () => {
  for (const name of CLIENTS) {
    test(`the MCP client ${name} is told of the progress when it asks for it, and only then`, async (t) => {
      const manifest = manifestWith(
        {},
        { tools: { reporting: { use: "reporting" } }, mcp: { servers: { main: { tools: ["reporting"] } } } },
      );
      const service = await startService(t, manifest, {
        plugins: [pluginFolder(t, { "tools/reporting.mjs": REPORTING })],
      });
      const client = await connect(name, `${service.url}/mcp/main/mcp`);
      const told: Loose[] = [];
      const followed = await client.call("reporting", {}, undefined, (report) => told.push(report));
      assert.deepEqual(followed.structuredContent, { followed: true });
      assert.deepEqual(told, [
        { progress: 1, total: 2, message: "half" },
        { progress: 2, total: 2, message: "all" },
      ]);
      const alone = await client.call("reporting", {});
      assert.deepEqual(alone.structuredContent, { followed: false });
      await client.close();
    });
  }
});
