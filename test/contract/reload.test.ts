/** `POST /reload`: the manifest is read again and swapped in between two requests; what runs ends on what it began with. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { startReceiver } from "../support/otlp-receiver.ts";
import { changesOf, metric, says, saysSlowly, textOf } from "../support/reload.ts";
import { manifestWith, startService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

for (const transport of TRANSPORTS) {
  const serve = (t: TestContext, rest: Record<string, unknown> = {}) => startService(t, withServer(rest));
  const withServer = (rest: Record<string, unknown> = {}) =>
    manifestWith({}, { ...rest, server: { transport, ...(rest.server as object) } });

  describe(`POST /reload over ${transport}`, () => {
    test("serves agents and models as the manifest has them now, and names what has changed", async (t) => {
      const service = await serve(t, says("old"));
      assert.equal(await textOf(service), "old");
      const next = withServer(says("new"));
      const agents = next.agents as Record<string, object>;
      const changed = await changesOf(service, { ...next, agents: { ...agents, second: agents.assistant } });
      assert.deepEqual(changed, ["changed providers.demo.replies", "added agents.second"]);
      assert.equal(await textOf(service), "new");
      assert.equal(await textOf(service, "second"), "new");
      const line = service.log.find(({ msg }) => msg === "reloaded");
      assert.deepEqual(line?.changes, [
        { path: "providers.demo.replies", change: "changed" },
        { path: "agents.second", change: "added" },
      ]);
      assert.deepEqual(await changesOf(service, withServer(says("new"))), ["removed agents.second"]);
      assert.equal((await service.post("/agents/second/text", { input: "hello" })).status, 404);
    });

    test("changes tools, workflows, routes, CORS, limits, MCP servers and the level of the log", async (t) => {
      const service = await serve(t);
      const next = withServer({
        tools: { sum: { use: "add" } },
        workflows: { twice: { steps: [{ id: "a", andThen: { set: "{{ input.n * 2 }}" } }] } },
        routes: [{ use: "hello" }],
        mcp: { servers: { inside: { name: "Inside", version: "1.0.0", tools: ["sum"] } } },
        server: { cors: { origin: "https://shop.example" }, limits: { body: "2KiB", connections: 500, stall: "10s" } },
        logs: { level: "warn" },
      });
      await changesOf(service, next);
      const tool = await service.post("/tools/sum/execute", { input: { a: 1, b: 2 } });
      assert.equal(tool.status, 200, await tool.text());
      const execution = await service.post("/workflows/twice/execute", { input: { n: 4 } });
      assert.equal(((await execution.json()) as { data: { result: unknown } }).data.result, 8);
      const listed = (await (await service.get("/workflows")).json()) as { data: { id: string }[] };
      assert.deepEqual(
        listed.data.map(({ id }) => id),
        ["twice"],
      );
      const cors = await service.get("/agents", { origin: "https://shop.example" });
      assert.equal(cors.headers.get("access-control-allow-origin"), "https://shop.example");
      const large = await service.post("/agents/assistant/text", { input: "x".repeat(3_000) });
      assert.equal(large.status, 413);
      const servers = (await (await service.get("/mcp/servers")).json()) as { data: { servers?: unknown[] } };
      assert.match(JSON.stringify(servers), /"inside"/);
      assert.equal(service.logger.level, "warn");
      await changesOf(service, withServer());
      assert.equal((await service.post("/tools/sum/execute", { input: { a: 1, b: 2 } })).status, 404);
      assert.equal((await service.post("/workflows/twice/execute", { input: { n: 4 } })).status, 404);
    });

    test("a stream that runs ends on what it began with, and what comes after begins on the new", async (t) => {
      const service = await serve(t, saysSlowly("the old answer"));
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, { input: "hello" });
      await reader.until(() => reader.text.includes("text-delta"));
      await changesOf(service, withServer(says("new")));
      assert.equal(await textOf(service), "new");
      await reader.end();
      const text = reader.events.map(({ delta = "" }) => delta as string).join("");
      assert.equal(text, "the old answer");
      assert.equal(reader.events.at(-1)!.type, "finish");
    });

    test("WebSockets stay open and go on", async (t) => {
      const service = await serve(t);
      const socket = await openSocket(`${service.url.replace("http", "ws")}/ws/logs`);
      await changesOf(service, withServer(says("new")));
      await changesOf(service, withServer(says("newer")));
      socket.waiting.length = 0;
      service.logger.warn("said after the reload");
      await eventually(() => socket.waiting.some((text) => text.includes("said after the reload")), "the line");
      assert.equal(socket.socket.readyState, socket.socket.OPEN);
      socket.socket.terminate();
    });
  });
}

describe("POST /reload", () => {
  test("an execution that runs keeps its definition and its tools; one that was suspended goes on with its own steps", async (t) => {
    const steps = (text: string) => [
      { id: "slow", andAgent: { agent: "assistant", prompt: "hello" } },
      { id: "last", andThen: { set: { text, said: "{{ data.text }}" } } },
    ];
    const asking = (text: string) => [
      { id: "ask", andThen: { suspend: { reason: "sure?" } } },
      { id: "last", andThen: { set: text } },
    ];
    const manifest = (text: string) =>
      manifestWith(
        {},
        { ...saysSlowly(text), workflows: { run: { steps: steps(text) }, ask: { steps: asking(text) } } },
      );
    const service = await startService(t, manifest("before"));
    const execute = async (id: string, options: object) =>
      (await (await service.post(`/workflows/${id}/execute`, { input: {}, options })).json()) as {
        data: { result: unknown };
      };
    await execute("ask", { executionId: "asked" });
    const running = execute("run", { executionId: "ran" });
    await eventually(
      async () => (await service.get("/workflows/run/executions/ran/state")).status === 200,
      "the begin",
    );
    await changesOf(service, manifest("after"));
    const { data } = await running;
    assert.deepEqual(data.result, { text: "before", said: "before" });
    const resumed = await service.post("/workflows/ask/executions/asked/resume", { resumeData: {} });
    assert.equal(((await resumed.json()) as { data: { result: unknown } }).data.result, "before");
    assert.deepEqual((await execute("run", {})).data.result, { text: "after", said: "after" });
  });

  test("keeps conversations, histories, traces, the log and what was counted", async (t) => {
    const manifest = (text: string) => manifestWith({ memory: "chat" }, { ...says(text), memory: { chat: {} } });
    const service = await startService(t, manifest("one"));
    const say = async () =>
      service.post("/agents/assistant/text", {
        input: "hello",
        options: { memory: { userId: "u", conversationId: "c" } },
      });
    await (await say()).text();
    const counted = await metric(service, "penstock_agent_runs_total", { agent: "assistant" });
    const routes = await metric(service, "penstock_http_requests_total", { route: "/agents/:id/text" });
    assert.equal(counted, 1);
    await changesOf(service, manifest("two"));
    await (await say()).text();
    const messages = await (await service.get("/api/memory/conversations/c/messages?agentId=assistant")).text();
    assert.equal(messages.match(/"role":"assistant"/g)?.length, 2);
    const history = (await (await service.get("/agents/assistant/history")).json()) as { data: { total: number } };
    assert.equal(history.data.total, 2);
    const traces = await (await service.get("/observability/traces?spans=false")).text();
    assert.equal(traces.match(/"invoke_agent Assistant"/g)?.length, 2);
    assert.equal(await metric(service, "penstock_agent_runs_total", { agent: "assistant" }), 2);
    assert.equal(await metric(service, "penstock_http_requests_total", { route: "/agents/:id/text" }), routes + 1);
  });

  test("adds a collector of spans and takes it away, and its counters go on", async (t) => {
    const receiver = await startReceiver();
    t.after(() => receiver.close());
    const service = await startService(t, manifestWith());
    const sending = manifestWith({}, { observability: { otlp: { endpoint: receiver.url } } });
    await changesOf(service, sending);
    await textOf(service);
    // What is replaced sends what it has before it ends.
    await changesOf(service, manifestWith());
    await eventually(() => receiver.received.length > 0, "the spans");
    const sent = () => metric(service, "penstock_otlp_spans_sent_total");
    await eventually(async () => (await sent()) > 0, "the count");
    const before = await sent();
    await changesOf(service, sending);
    await textOf(service);
    await changesOf(service, manifestWith());
    await eventually(async () => (await sent()) > before, "more");
  });

  test("keeps the connection to an MCP server whose settings stay, and opens and closes the others", async (t) => {
    const [kept, other] = [await startForeignServer(t, "current"), await startForeignServer(t, "current")];
    const manifest = (clients: object, text = "") => manifestWith({}, { ...says(text), mcp: { clients } });
    const service = await startService(t, manifest({ first: { url: kept.url } }));
    const connected = () =>
      service.log.filter(({ msg }) => msg === "MCP server connected").map((line) => line.mcpClient);
    await eventually(() => connected().length === 1, "the first");
    const tools = async () => (await (await service.get("/tools")).json()) as { data: { name: string }[] };
    const names = (await tools()).data.map(({ name }) => name);
    assert.ok(names.length > 0);
    await changesOf(service, manifest({ first: { url: kept.url } }, "other"));
    assert.deepEqual(
      (await tools()).data.map(({ name }) => name),
      names,
    );
    await changesOf(service, manifest({ first: { url: kept.url }, second: { url: other.url } }));
    await eventually(() => connected().length === 2, "the second");
    assert.deepEqual(connected(), ["first", "second"]);
    await changesOf(service, manifest({ second: { url: other.url } }));
    assert.ok((await tools()).data.every(({ name }) => name.startsWith("second_")));
  });
});
