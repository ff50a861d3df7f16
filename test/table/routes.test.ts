/** What must hold for every row of the routes table, whatever it serves. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import type { Running } from "../../core/app/start.ts";
import { ApprovalRows } from "../../core/approvals/rows.ts";
import { createRouter } from "../../core/http/router.ts";
import { NOBODY } from "../../core/identity/principal.ts";
import { ResponseRows } from "../../core/openai/response-rows.ts";
import { unlessConflict } from "../../core/storage/store.ts";
import { validators } from "../../generated/all-validators.js";
import { inject } from "../support/inject.ts";
import { settledProject } from "../support/npm-registry.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";
import { recordOne, spanIdAt, traceIdAt } from "../support/spans.ts";
import { TRANSPORTS } from "../support/transports.ts";

const MEMORY = { default: { workingMemory: {}, semantic: { embedding: "local/hash" } } };
/** A model that takes its time, so that something runs. */
const PROVIDERS = { demo: { use: "scripted", models: { slow: { firstDelay: "60s" } } } };
const SLOW = { name: "Slow", instructions: "Wait.", model: "demo/slow", memory: false };
const WORKFLOWS = {
  flow: { steps: [{ id: "one", andThen: { set: { n: 1 } } }] },
  asking: { steps: [{ id: "ask", andThen: { suspend: { reason: "Approval needed" } } }] },
  slow: { steps: [{ id: "wait", andAgent: { agent: "slow", prompt: "Wait." } }] },
};
const WITH_MEMORY = manifestWith(
  { tools: ["sum"], memory: "default" },
  {
    tools: { sum: { use: "add" } },
    memory: MEMORY,
    providers: PROVIDERS,
    workflows: WORKFLOWS,
    mcp: { servers: { main: { tools: ["sum"] } } },
  },
);
const SERVER = { push: { enabled: true } };
const MANIFEST = { ...WITH_MEMORY, server: SERVER, agents: { ...(WITH_MEMORY.agents as object), slow: SLOW } };
const SCHEMA = { type: "object", properties: { n: { type: "number" } } };

interface Plain {
  /** Path with its parameters filled in. */
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  /** Default 200. */
  status?: number;
  /** What must be there first: a conversation of ada. */
  needs?: string;
  /** A line of the log in a known trace and span. */
  logs?: true;
  /** The same: an execution of a workflow that is completed, waits or runs. */
  execution?: [workflow: keyof typeof WORKFLOWS, id: string];
  /** The same: a kept run of an agent. */
  run?: [agent: string, id: string];
  /** The same: what answers in a chat, of `slow`. */
  chat?: string;
  /** The same: an open approval. */
  asks?: true;
  /** The same: a stored response that was in the background. */
  answered?: number;
  /** The same: a trace of long ago, and its span. */
  traced?: true;
}

/** A trace and a span that a line of the log is about. */
const LOGGED = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" };
const TRACED = Date.parse("2026-01-01T00:00:00Z");
const TRACE = traceIdAt(TRACED);
const SPAN = spanIdAt(TRACED);

const APPROVAL = {
  id: "0af7651916cd43dd8448eb211c80319c",
  toolName: "sum",
  input: { a: 1, b: 2 },
  kind: "direct",
  owner: "",
  key: "k",
  call: "k",
  consoleOnly: false,
  createdAt: 1,
  expiresAt: 4_000_000_000_000,
  status: "open",
} as const;

const responseId = (number: number) => `resp_${String(number).padStart(32, "0")}`;

const conversation = (id: string) => `/api/memory/conversations/${id}`;
const execution = (workflow: keyof typeof WORKFLOWS, id: string, rest: string): Plain => ({
  path: `/workflows/${workflow}/executions/${id}/${rest}`,
  execution: [workflow, id],
});
const MESSAGES = [{ role: "user", content: "x" }];

/** The plainest valid request of every row. A new row needs one here. */
const REQUESTS: Record<string, Plain> = {
  "docs.landing": { path: "/" },
  "docs.openapi": { path: "/doc" },
  "docs.explorer": { path: "/ui" },
  "docs.asset": { path: "/ui/swagger-ui.css" },
  "docs.consoleAsset": { path: "/console/main.js" },
  "docs.manual": { path: "/docs" },
  "docs.manualAsset": { path: "/docs/index.js" },
  "agents.list": { path: "/agents" },
  "agents.get": { path: "/agents/assistant" },
  "agents.generateText": { path: "/agents/assistant/text", body: { input: "x" } },
  "agents.stream": { path: "/agents/assistant/stream", body: { input: "x" } },
  "agents.chat": { path: "/agents/assistant/chat", body: { input: "x" } },
  "agents.generateObject": { path: "/agents/assistant/object", body: { input: "x", schema: SCHEMA } },
  "agents.streamObject": { path: "/agents/assistant/stream-object", body: { input: "x", schema: SCHEMA } },
  "agui.run": { path: "/agents/assistant/ag-ui", body: { threadId: "t1", runId: "run-1", messages: MESSAGES } },
  "agui.capabilities": { path: "/agents/assistant/ag-ui" },
  "agents.history": { path: "/agents/assistant/history" },
  "runs.list": { path: "/agents/assistant/runs", run: ["assistant", "listed"] },
  "runs.get": { path: "/agents/assistant/runs/known", run: ["assistant", "known"] },
  "runs.attach": { path: "/agents/assistant/runs/attached/stream", run: ["assistant", "attached"] },
  "runs.cancel": { path: "/agents/slow/runs/cancelled/cancel", run: ["slow", "cancelled"] },
  "runs.attachChat": { path: "/agents/assistant/chat/quiet/stream?userId=ada", status: 204 },
  "runs.cancelChat": { path: "/agents/slow/chat/busy/cancel", body: { userId: "ada" }, chat: "busy" },
  "workflows.list": { path: "/workflows" },
  "workflows.get": { path: "/workflows/flow" },
  "workflows.listExecutions": { path: "/workflows/executions", execution: ["flow", "listed"] },
  "workflows.execute": { path: "/workflows/flow/execute", body: { input: "x" } },
  "workflows.stream": { path: "/workflows/flow/stream", body: { input: "x" } },
  "workflows.attach": execution("flow", "attached", "stream"),
  "workflows.suspend": { ...execution("slow", "suspended", "suspend"), body: {} },
  "workflows.resume": { ...execution("asking", "resumed", "resume"), body: {} },
  "workflows.replay": { ...execution("flow", "replayed", "replay"), body: { stepId: "one" } },
  "workflows.cancel": { ...execution("asking", "cancelled", "cancel"), body: {} },
  "workflows.getState": execution("asking", "known", "state"),
  "tools.list": { path: "/tools" },
  "tools.execute": { path: "/tools/sum/execute", body: { input: { a: 1, b: 2 } } },
  "approvals.list": { path: "/approvals" },
  "approvals.answer": { path: `/approvals/${APPROVAL.id}`, body: { approved: true }, asks: true },
  "memory.listConversations": { path: "/api/memory/conversations" },
  "memory.createConversation": { path: "/api/memory/conversations", body: { userId: "ada" }, status: 201 },
  "memory.getConversation": { path: conversation("got"), needs: "got" },
  "memory.updateConversation": { path: conversation("titled"), body: { title: "x" }, needs: "titled" },
  "memory.deleteConversation": { path: conversation("deleted"), needs: "deleted" },
  "memory.cloneConversation": { path: `${conversation("cloned")}/clone`, body: {}, status: 201, needs: "cloned" },
  "memory.listMessages": { path: `${conversation("read")}/messages`, needs: "read" },
  "memory.saveMessages": {
    path: "/api/memory/save-messages",
    body: { userId: "ada", conversationId: "saved", messages: MESSAGES },
    needs: "saved",
  },
  "memory.deleteMessages": {
    path: "/api/memory/messages/delete",
    body: { userId: "ada", conversationId: "emptied", messageIds: ["m"] },
    needs: "emptied",
  },
  "memory.getWorkingMemory": { path: `${conversation("noted")}/working-memory`, needs: "noted" },
  "memory.updateWorkingMemory": {
    path: `${conversation("note")}/working-memory`,
    body: { content: "x" },
    needs: "note",
  },
  "memory.search": { path: "/api/memory/search?searchQuery=x" },
  "a2a.call": { path: "/a2a/assistant", body: { jsonrpc: "2.0", id: 1, method: "ListTasks", params: {} } },
  "a2a.card": { path: "/agents/assistant/card" },
  "a2a.firstCard": { path: "/.well-known/agent-card.json" },
  "a2a.knownCard": { path: "/.well-known/assistant/agent-card.json" },
  "a2a.ownCard": { path: "/a2a/assistant/.well-known/agent-card.json" },
  "a2a.keys": { path: "/.well-known/jwks.json" },
  "openai.listModels": { path: "/v1/models" },
  "openai.getModel": { path: "/v1/models/assistant" },
  "openai.completeChat": { path: "/v1/chat/completions", body: { model: "assistant", messages: MESSAGES } },
  "openai.createResponse": { path: "/v1/responses", body: { model: "assistant", input: "x" } },
  "openai.embed": { path: "/v1/embeddings", body: { model: "local/hash", input: "x" } },
  "openai.compactResponse": { path: "/v1/responses/compact", body: { model: "assistant", input: "x" } },
  "openai.countInput": { path: "/v1/responses/input_tokens", body: { model: "assistant", input: "x" } },
  "openai.getResponse": { path: `/v1/responses/${responseId(1)}`, answered: 1 },
  "openai.deleteResponse": { path: `/v1/responses/${responseId(2)}`, answered: 2 },
  "openai.cancelResponse": { path: `/v1/responses/${responseId(3)}/cancel`, answered: 3 },
  "openai.listInputItems": { path: `/v1/responses/${responseId(4)}/input_items`, answered: 4 },
  "mcp.listServers": { path: "/mcp/servers" },
  "mcp.getServer": { path: "/mcp/servers/main" },
  "mcp.listTools": { path: "/mcp/servers/main/tools" },
  "mcp.listPrompts": { path: "/mcp/servers/main/prompts" },
  "mcp.listResources": { path: "/mcp/servers/main/resources" },
  "mcp.listResourceTemplates": { path: "/mcp/servers/main/resource-templates" },
  "mcp.invokeTool": { path: "/mcp/servers/main/tools/sum", body: { arguments: { a: 1, b: 2 } } },
  "mcp.post": {
    path: "/mcp/main/mcp",
    body: { jsonrpc: "2.0", id: 1, method: "tools/list" },
    headers: { accept: "application/json, text/event-stream" },
  },
  "mcp.listen": { path: "/mcp/main/mcp", status: 405 },
  "mcp.endSession": { path: "/mcp/main/mcp", status: 405 },
  "observability.status": { path: "/observability/status" },
  "inventory.routes": { path: "/observability/routes" },
  "inventory.manifest": { path: "/observability/manifest" },
  "inventory.limits": { path: "/observability/limits" },
  "observability.listTraces": { path: `/observability/traces?to=${new Date(TRACED).toISOString()}`, traced: true },
  "observability.getTrace": { path: `/observability/traces/${TRACE}`, traced: true },
  "observability.getSpan": { path: `/observability/spans/${SPAN}`, traced: true },
  "observability.memoryUsers": { path: "/observability/memory/users" },
  "observability.memoryConversations": { path: "/observability/memory/conversations" },
  "observability.memoryMessages": { path: "/observability/memory/conversations/shown/messages", needs: "shown" },
  "observability.workingMemory": {
    path: "/observability/memory/working-memory?scope=conversation&conversationId=known",
    needs: "known",
  },
  "platform.health": { path: "/healthz" },
  "platform.readiness": { path: "/readyz" },
  "platform.metrics": { path: "/metrics" },
  "updates.list": { path: "/updates" },
  "updates.install": { path: "/updates", body: {} },
  "updates.installOne": { path: "/updates/tiny" },
  "manifest.reload": { path: "/reload" },
  "commands.run": { path: "/observability/commands", body: { command: "executions list" } },
  "observability.setup": { path: "/setup-observability", body: { publicKey: "pk", secretKey: "sk" } },
  "logs.list": { path: "/api/logs?level=error" },
  "observability.logs": { path: "/observability/logs?severityText=ERROR" },
  "observability.traceLogs": { path: `/observability/traces/${LOGGED.traceId}/logs`, logs: true },
  "observability.spanLogs": { path: `/observability/spans/${LOGGED.spanId}/logs`, logs: true },
};

const GROUPS = ["execution", "management", "docs", "discovery", "observability", "updates", "probe", "custom"];
const UNUSED_METHOD = "PUT";
/** What says something else each time it is asked. */
const CHANGING = /\/(?:history|metrics|status|routes|limits)$/;

type Served = Pick<Running, "dispatch" | "logger" | "service">;

async function prepare(
  { dispatch, logger, service }: Served,
  { needs, execution, run, chat, logs, traced, asks, answered }: Plain,
): Promise<void> {
  if (asks === true) await unlessConflict(new ApprovalRows(service.store, () => 1).create(APPROVAL, null));
  if (answered !== undefined) {
    const resource = { id: responseId(answered), status: "completed", background: true, output: [] } as Loose;
    const record = { resource, owner: "", createdAt: 1, input: [], chain: [] };
    await unlessConflict(new ResponseRows(service.store).write(resource.id, undefined, record));
  }
  if (logs === true) logger.warn(LOGGED, "this");
  if (traced && (await inject(dispatch, { path: `/observability/traces/${TRACE}` })).status === 404) {
    recordOne(service.traces.sink, { id: TRACE, spanId: SPAN, start: TRACED });
  }
  if (needs !== undefined) {
    const body = { userId: "ada", conversationId: needs };
    await inject(dispatch, { method: "POST", path: "/api/memory/conversations", body });
  }
  if (run !== undefined) {
    const [agent, runId] = run;
    const body = { input: "x", options: { runId, background: true } };
    const reply = await inject(dispatch, { method: "POST", path: `/agents/${agent}/text`, body });
    assert.ok(reply.status === 202 || reply.status === 409, reply.text());
  }
  if (chat !== undefined) {
    const options = { resumableStream: true, userId: "ada", conversationId: chat };
    inject(dispatch, { method: "POST", path: "/agents/slow/chat", body: { input: "x", options } }).catch(() => {});
    const path = "/agents/slow/runs?status=running";
    for (let tries = 0; (await inject(dispatch, { path })).text().indexOf(`"${chat}"`) === -1; tries++) {
      assert.ok(tries < 6_000, `nothing answers in ${chat}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  if (execution !== undefined) {
    const [workflow, executionId] = execution;
    const body = { input: "x", options: { executionId } };
    const running = inject(dispatch, { method: "POST", path: `/workflows/${workflow}/execute`, body });
    if (workflow !== "slow") await running;
    else running.catch(() => {});
    const path = `/workflows/${workflow}/executions/${executionId}/state`;
    for (let tries = 0; (await inject(dispatch, { path })).status !== 200; tries++) {
      assert.ok(tries < 6_000, `${workflow} does not run`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

const shapeOf = ({ method, path }: { method: string; path: string }) => `${method} ${path.replace(/:[^/]+/g, ":")}`;

function serve(t: TestContext, rest: object = {}) {
  const { folder, env } = settledProject(t);
  return startService(t, { ...MANIFEST, updates: { install: true }, ...rest }, { project: folder, env });
}

describe("every row of the routes table", () => {
  test("every row of the routes table is there: the contract's rows of this version, and no others", () => {
    const rows = ROUTES.map(({ method, path }) => `${method} ${path}`);
    assert.deepEqual(rows.toSorted(), [
      "DELETE /api/memory/conversations/:conversationId",
      "DELETE /mcp/:serverId/mcp",
      "DELETE /v1/responses/:id",
      "GET /",
      "GET /.well-known/:id/agent-card.json",
      "GET /.well-known/agent-card.json",
      "GET /.well-known/jwks.json",
      "GET /a2a/:id/.well-known/agent-card.json",
      "GET /agents",
      "GET /agents/:id",
      "GET /agents/:id/ag-ui",
      "GET /agents/:id/card",
      "GET /agents/:id/chat/:conversationId/stream",
      "GET /agents/:id/history",
      "GET /agents/:id/runs",
      "GET /agents/:id/runs/:runId",
      "GET /agents/:id/runs/:runId/stream",
      "GET /api/logs",
      "GET /api/memory/conversations",
      "GET /api/memory/conversations/:conversationId",
      "GET /api/memory/conversations/:conversationId/messages",
      "GET /api/memory/conversations/:conversationId/working-memory",
      "GET /api/memory/search",
      "GET /approvals",
      "GET /console/:asset",
      "GET /doc",
      "GET /docs",
      "GET /docs/:asset",
      "GET /healthz",
      "GET /mcp/:serverId/mcp",
      "GET /mcp/servers",
      "GET /mcp/servers/:serverId",
      "GET /mcp/servers/:serverId/prompts",
      "GET /mcp/servers/:serverId/resource-templates",
      "GET /mcp/servers/:serverId/resources",
      "GET /mcp/servers/:serverId/tools",
      "GET /metrics",
      "GET /observability/limits",
      "GET /observability/logs",
      "GET /observability/manifest",
      "GET /observability/memory/conversations",
      "GET /observability/memory/conversations/:conversationId/messages",
      "GET /observability/memory/users",
      "GET /observability/memory/working-memory",
      "GET /observability/routes",
      "GET /observability/spans/:spanId",
      "GET /observability/spans/:spanId/logs",
      "GET /observability/status",
      "GET /observability/traces",
      "GET /observability/traces/:traceId",
      "GET /observability/traces/:traceId/logs",
      "GET /readyz",
      "GET /tools",
      "GET /ui",
      "GET /ui/:asset",
      "GET /updates",
      "GET /v1/models",
      "GET /v1/models/:id",
      "GET /v1/responses/:id",
      "GET /v1/responses/:id/input_items",
      "GET /workflows",
      "GET /workflows/:id",
      "GET /workflows/:id/executions/:executionId/state",
      "GET /workflows/:id/executions/:executionId/stream",
      "GET /workflows/executions",
      "PATCH /api/memory/conversations/:conversationId",
      "POST /a2a/:id",
      "POST /agents/:id/ag-ui",
      "POST /agents/:id/chat",
      "POST /agents/:id/chat/:conversationId/cancel",
      "POST /agents/:id/object",
      "POST /agents/:id/runs/:runId/cancel",
      "POST /agents/:id/stream",
      "POST /agents/:id/stream-object",
      "POST /agents/:id/text",
      "POST /api/memory/conversations",
      "POST /api/memory/conversations/:conversationId/clone",
      "POST /api/memory/conversations/:conversationId/working-memory",
      "POST /api/memory/messages/delete",
      "POST /api/memory/save-messages",
      "POST /approvals/:approvalId",
      "POST /mcp/:serverId/mcp",
      "POST /mcp/servers/:serverId/tools/:toolName",
      "POST /observability/commands",
      "POST /reload",
      "POST /setup-observability",
      "POST /tools/:name/execute",
      "POST /updates",
      "POST /updates/:packageName",
      "POST /v1/chat/completions",
      "POST /v1/embeddings",
      "POST /v1/responses",
      "POST /v1/responses/:id/cancel",
      "POST /v1/responses/compact",
      "POST /v1/responses/input_tokens",
      "POST /workflows/:id/execute",
      "POST /workflows/:id/executions/:executionId/cancel",
      "POST /workflows/:id/executions/:executionId/replay",
      "POST /workflows/:id/executions/:executionId/resume",
      "POST /workflows/:id/executions/:executionId/suspend",
      "POST /workflows/:id/stream",
    ]);
  });

  test("every row of the routes table has a method and path of its own, whatever its parameters are called", () => {
    const shapes = ROUTES.map(shapeOf);
    assert.deepEqual(shapes, [...new Set(shapes)]);
  });

  test("every row of the routes table has an operation of its own, written resource.verb", () => {
    const operations = ROUTES.map(({ operation }) => operation);
    assert.deepEqual(operations, [...new Set(operations)]);
    for (const operation of operations) assert.match(operation, /^[a-z][a-z0-9]*\.[a-z][A-Za-z]*$/);
  });

  for (const route of ROUTES) {
    const { method, operation, path, group, summary, output, query, body } = route;

    test(`${method} ${path} has a known group, a summary, an output and known schemas`, () => {
      assert.ok(GROUPS.includes(group), group);
      assert.match(summary, /^[A-Z].*[^.]$/, "a summary is a line without a full stop");
      const [kind] = ["json", "bare", "events", "page", "raw", "envelope"].filter((each) => each in output);
      assert.ok(kind !== undefined);
      const named = kind === "page" || kind === "raw" ? undefined : (Object.values(output)[0] as string | null);
      const schemas = [query, body, named].filter((schema) => typeof schema === "string");
      for (const schema of schemas) assert.ok(Object.hasOwn(validators, schema!), schema);
      if (method === "GET") assert.equal(body, undefined);
    });

    test(`${method} ${path} is a path of literals and named parameters, no name twice`, () => {
      assert.match(path, /^\/(?:(?::[a-z][A-Za-z]*|[.a-z0-9-]+|input_items|input_tokens)(?:\/(?=.))?)*$/);
      const names = path.match(/:[^/]+/g) ?? [];
      assert.equal(new Set(names).size, names.length);
    });

    test(`${method} ${path} reads each of its path parameters`, async (t) => {
      const names = [...path.matchAll(/:([^/]+)/g)].map((match) => match[1]!);
      const { service } = await startService(t, MANIFEST);
      const read = new Set<string>();
      const params = new Proxy({}, { get: (_, name) => read.add(String(name)) && "unknown" }) as Record<string, string>;
      try {
        const call = { service, user: null, caller: NOBODY, headers: {} };
        await route.handle({ params, query: {}, body: REQUESTS[operation]?.body } as never, call as never);
      } catch {
        // An unknown agent, tool or asset: reading the parameter is what counts.
      }
      assert.deepEqual([...read], names);
    });

    test(`${method} ${path} answers its plainest request, in the form that its row states`, async (t) => {
      const request = REQUESTS[operation];
      assert.ok(request !== undefined, `add a plain request for ${operation}`);
      const service = await serve(t);
      await prepare(service, request);
      const { path: target, body: sent, headers } = request;
      const reply = await inject(service.dispatch, { method, path: target, body: sent, headers });
      assert.equal(reply.status, request.status ?? 200, reply.text().slice(0, 200));
      const type = reply.headers["content-type"]!;
      if ("json" in output) {
        const { success, data, ...rest } = reply.json() as Loose;
        assert.equal(success, true);
        assert.deepEqual(rest, {});
        const validate = validators[output.json] as Loose;
        assert.ok(validate(data), JSON.stringify(validate.errors));
      } else if ("events" in output && reply.status === 204) {
        assert.equal(output.mayBeEmpty, true);
        assert.equal(reply.body.length, 0);
      } else if ("events" in output) {
        const validate = validators[output.events] as Loose;
        assert.match(type, /^text\/event-stream/);
        const events = parseEvents(reply.text()).filter(({ data }) => data !== output.last);
        assert.ok(events.length > 0);
        for (const { data } of events) assert.ok(validate(JSON.parse(data)), data);
      } else if ("bare" in output) {
        assert.equal(type, output.type);
        if (output.bare !== null) assert.ok((validators[output.bare] as Loose)(reply.json()));
      } else if ("envelope" in output) {
        const validate = validators[output.envelope] as Loose;
        assert.ok(validate(reply.json()), JSON.stringify(validate.errors));
      } else if ("raw" in output && output.raw.length === 0) {
        // It only fails: the status is in its request above, and GET /doc describes the body.
        assert.ok(reply.status >= 400);
      } else if ("raw" in output) {
        assert.ok(output.raw.includes(type), type);
      } else assert.ok(reply.body.length > 0);
    });
  }
});

for (const transport of TRANSPORTS) {
  test(`every row of the routes table answers over ${transport} with the bytes that it answers in the process, and refuses other methods`, async (t) => {
    const service = await serve(t, { server: { ...SERVER, transport } });
    for (const { method, operation, path: pattern } of ROUTES) {
      const { path, body, headers, status = 200 } = REQUESTS[operation]!;
      await prepare(service, REQUESTS[operation]!);
      const init = { method, body: body === undefined ? undefined : JSON.stringify(body) };
      const reply = await fetch(service.url + path, {
        ...init,
        headers: { "content-type": "application/json", ...headers },
      });
      const bytes = Buffer.from(await reply.arrayBuffer());
      assert.equal(reply.status, status, `${method} ${path}`);
      if (method === "GET" && !CHANGING.test(pattern)) {
        const injected = await inject(service.dispatch, { path });
        assert.ok(bytes.equals(injected.body), path);
      }
      const other = await fetch(service.url + path, { method: UNUSED_METHOD });
      assert.equal(other.status, 405, `${UNUSED_METHOD} ${path}`);
      assert.match(other.headers.get("allow") ?? "", new RegExp(`\\b${method}\\b`));
      await other.text();
    }
  });
}

describe("the router", () => {
  const row = (method: string, path: string) => ({ method, path });
  const router = createRouter([
    row("GET", "/"),
    row("GET", "/items/:id"),
    row("GET", "/items/:id/parts/:part"),
    row("POST", "/items/:id/parts"),
    row("GET", "/items/all"),
    row("GET", "/items/all/parts"),
    row("DELETE", "/items/:item"),
    row("GET", "/:kind/all/:part"),
  ]);
  const found = (path: string) => {
    const match = router.find(path);
    return match === null ? null : [[...match.endpoint.methods.values()].map((route) => route.path), match.values];
  };

  const CASES: [title: string, path: string, expected: unknown][] = [
    ["the root", "/", [["/"], []]],
    ["a literal beats a parameter, whatever stands first in the table", "/items/all", [["/items/all"], []]],
    ["a parameter takes what is no literal", "/items/all2", [["/items/:id", "/items/:item"], ["all2"]]],
    [
      "methods of one shape share an endpoint, whatever the parameter is called",
      "/items/7",
      [["/items/:id", "/items/:item"], ["7"]],
    ],
    [
      "a literal that leads nowhere is given up for the parameter",
      "/items/all/parts/9",
      [["/items/:id/parts/:part"], ["all", "9"]],
    ],
    ["a literal deep down beats a parameter higher up", "/items/all/parts", [["/items/all/parts"], []]],
    ["a parameter in the first place", "/x/all/9", [["/:kind/all/:part"], ["x", "9"]]],
    ["what was tried in vain leaves no values behind", "/items/all/9", [["/:kind/all/:part"], ["items", "9"]]],
    ["values stay percent-encoded", "/items/a%2Fb", [["/items/:id", "/items/:item"], ["a%2Fb"]]],
    ["a parameter is never empty", "/items/", null],
    ["a trailing slash is another path", "/items/all/", null],
    ["a double slash is another path", "//items/all", null],
    ["an empty segment in the middle", "/items//parts", null],
    ["case matters", "/Items/all", null],
    ["a path beyond the table", "/items/1/parts/2/more", null],
    ["names of Object.prototype are no routes", "/constructor", null],
  ];
  for (const [title, path, expected] of CASES) {
    test(`${title}: ${path}`, () => assert.deepEqual(found(path), expected));
  }

  test("Allow names the methods, HEAD with GET, and OPTIONS", () => {
    assert.equal(router.find("/items/7")!.endpoint.allow, "DELETE, GET, HEAD, OPTIONS");
    assert.equal(router.find("/items/7/parts")!.endpoint.allow, "OPTIONS, POST");
  });

  test("two rows of one method and shape are refused when it is built", () => {
    assert.throws(() => createRouter([row("GET", "/a/:x"), row("GET", "/a/:y")]), /two routes for GET \/a\/:y/);
  });
});
