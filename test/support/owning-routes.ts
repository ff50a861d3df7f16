/** For every row of the routes table: which object of a user it is about, or how it shows and makes such objects. */
import { ROUTES } from "../../core/api/routes/index.ts";
import { schemas } from "./schemas.ts";
import type { Loose } from "./served-upstream.ts";

/** Ids of what one user has. */
export interface Objects {
  conversation: string;
  /** Of a workflow that waits, and of one that is completed. */
  waiting: string;
  completed: string;
  message: string;
  /** A run that is completed. */
  run: string;
  trace: string;
  span: string;
  /** An open question whether a tool may run. */
  approval: string;
  /** A stored response of OpenAI's API. */
  response: string;
}

export interface OwningRequest {
  path: string;
  body?: Loose;
  headers?: Record<string, string>;
}

/**
 * `object`: is about one object, which does not exist for anybody else. `list`: shows the caller's own. `maker`: what comes
 * of it is the caller's, whoever has an object of the same id; `request` names the conversation of another where it can. `chat`: is about what answers in a conversation; `status` is that of the reply where
 * nothing does. `free`: nothing in it belongs to anybody.
 */
type OwningRow =
  | { kind: "object"; request(of: Objects): OwningRequest; status?: number }
  | {
      kind: "list";
      request(of: Objects): OwningRequest;
      ids(data: Loose, of: Objects): string[];
      owned(of: Objects): string[];
    }
  | { kind: "maker"; request(of: Objects): OwningRequest; status?: number }
  | { kind: "chat"; request(of: Pick<Objects, "conversation">): OwningRequest; status: 204 | 404 }
  | { kind: "free" };

const FREE: OwningRow = { kind: "free" };
const SCHEMA = { type: "object", properties: { n: { type: "number" } } };
const MESSAGE = { role: "user", content: "tea in the morning" };

const conversation = (rest: string, body?: Loose, status?: number): OwningRow => ({
  kind: "object",
  request: (of) => ({ path: `/api/memory/conversations/${of.conversation}${rest}`, body }),
  status,
});
const execution = (workflow: "asking" | "flow", rest: string, body?: Loose): OwningRow => ({
  kind: "object",
  request: ({ waiting, completed }) => ({
    path: `/workflows/${workflow}/executions/${workflow === "asking" ? waiting : completed}/${rest}`,
    body,
  }),
});
const run = (rest: string): OwningRow => ({
  kind: "object",
  request: (of) => ({ path: `/agents/assistant/runs/${of.run}${rest}` }),
});
const generation = (rest: string, more: Loose = {}): OwningRow => ({
  kind: "maker",
  request: (of) => ({
    path: `/agents/assistant/${rest}`,
    body: { input: "x", ...more, options: { memory: { conversationId: of.conversation } } },
  }),
});
const workflow = (rest: string): OwningRow => ({
  kind: "maker",
  request: () => ({ path: `/workflows/flow/${rest}`, body: { input: "x", options: {} } }),
});

export const OWNING_ROWS: Record<string, OwningRow> = {
  "docs.landing": FREE,
  "docs.openapi": FREE,
  "docs.explorer": FREE,
  "docs.asset": FREE,
  "docs.manual": FREE,
  "docs.manualAsset": FREE,
  "docs.consoleAsset": FREE,
  "agents.list": FREE,
  "agents.get": FREE,
  "agents.generateText": generation("text"),
  "agents.stream": generation("stream"),
  "agents.chat": generation("chat"),
  "agents.generateObject": generation("object", { schema: SCHEMA }),
  "agents.streamObject": generation("stream-object", { schema: SCHEMA }),
  "agui.run": {
    kind: "maker",
    request: (of) => ({
      path: "/agents/assistant/ag-ui",
      body: { threadId: of.conversation, runId: "run-1", messages: [{ id: "u1", role: "user", content: "x" }] },
    }),
  },
  "agui.capabilities": FREE,
  "agents.history": {
    kind: "list",
    request: () => ({ path: "/agents/assistant/history?limit=100" }),
    ids: ({ entries }) => entries.map((entry: Loose) => entry.conversationId ?? ""),
    owned: (of) => [of.conversation],
  },
  "runs.list": {
    kind: "list",
    request: () => ({ path: "/agents/assistant/runs?limit=500" }),
    ids: (list) => list.map(({ runId }: Loose) => runId),
    owned: (of) => [of.run],
  },
  "runs.get": run(""),
  "runs.attach": run("/stream"),
  // Its owner learns that it has ended.
  "runs.cancel": { ...run("/cancel"), status: 400 } as OwningRow,
  "runs.attachChat": {
    kind: "chat",
    request: (of) => ({ path: `/agents/talker/chat/${of.conversation}/stream` }),
    status: 204,
  },
  "runs.cancelChat": {
    kind: "chat",
    request: (of) => ({ path: `/agents/talker/chat/${of.conversation}/cancel`, body: {} }),
    status: 404,
  },
  "workflows.list": FREE,
  "workflows.get": FREE,
  "workflows.listExecutions": {
    kind: "list",
    request: () => ({ path: "/workflows/executions?limit=500" }),
    ids: (list) => list.map(({ id }: Loose) => id),
    owned: (of) => [of.waiting, of.completed],
  },
  "workflows.execute": workflow("execute"),
  "workflows.stream": workflow("stream"),
  "workflows.attach": execution("flow", "stream"),
  // Who may not see it learns nothing of its state; its owner learns that it does not run.
  "workflows.suspend": { ...execution("asking", "suspend", {}), status: 400 } as OwningRow,
  "workflows.resume": execution("asking", "resume", {}),
  "workflows.replay": execution("flow", "replay", { stepId: "one" }),
  "workflows.cancel": execution("asking", "cancel", {}),
  "workflows.getState": execution("flow", "state"),
  "approvals.list": {
    kind: "list",
    request: () => ({ path: "/approvals?limit=100" }),
    ids: (list) => list.map(({ approvalId }: Loose) => approvalId),
    owned: (of) => [of.approval],
  },
  "approvals.answer": {
    kind: "object",
    request: (of) => ({ path: `/approvals/${of.approval}`, body: { approved: true } }),
  },
  "tools.list": FREE,
  "tools.execute": FREE,
  "memory.listConversations": {
    kind: "list",
    request: () => ({ path: "/api/memory/conversations?limit=200" }),
    ids: ({ conversations }) => conversations.map(({ id }: Loose) => id),
    owned: (of) => [of.conversation],
  },
  "memory.createConversation": {
    kind: "maker",
    request: () => ({ path: "/api/memory/conversations", body: { title: "x" } }),
    status: 201,
  },
  "memory.getConversation": conversation(""),
  "memory.updateConversation": conversation("", { title: "changed" }),
  "memory.deleteConversation": conversation(""),
  "memory.cloneConversation": conversation("/clone", {}, 201),
  "memory.listMessages": conversation("/messages"),
  "memory.saveMessages": {
    kind: "object",
    request: (of) => ({
      path: "/api/memory/save-messages",
      body: { conversationId: of.conversation, messages: [MESSAGE] },
    }),
  },
  "memory.deleteMessages": {
    kind: "object",
    request: (of) => ({
      path: "/api/memory/messages/delete",
      body: { conversationId: of.conversation, messageIds: [of.message] },
    }),
  },
  "memory.getWorkingMemory": conversation("/working-memory"),
  "memory.updateWorkingMemory": conversation("/working-memory", { content: "overwritten" }),
  "memory.search": {
    kind: "list",
    request: (of) => ({ path: `/api/memory/search?searchQuery=tea+for+${of.conversation}&threshold=0&limit=50` }),
    ids: ({ results }) => results.map(({ conversationId }: Loose) => conversationId),
    owned: (of) => [of.conversation],
  },
  // Whose tasks are is in the tests of A2A.
  "a2a.call": {
    kind: "maker",
    request: ({ conversation: contextId }) => {
      const message = { messageId: "x", role: "ROLE_USER", parts: [{ text: "x" }], contextId };
      return {
        path: "/a2a/assistant",
        body: { jsonrpc: "2.0", id: 1, method: "SendMessage", params: { message } },
      };
    },
  },
  "a2a.card": FREE,
  "a2a.firstCard": FREE,
  "a2a.knownCard": FREE,
  "a2a.ownCard": FREE,
  "a2a.keys": FREE,
  "openai.listModels": FREE,
  "openai.getModel": FREE,
  "openai.embed": FREE,
  "openai.createResponse": {
    kind: "maker",
    request: () => ({ path: "/v1/responses", body: { model: "assistant", input: "x" } }),
  },
  // It makes nothing, and reads a response only where it is told so: contract/openai-compact has whose.
  "openai.compactResponse": FREE,
  "openai.countInput": FREE,
  "openai.getResponse": { kind: "object", request: (of) => ({ path: `/v1/responses/${of.response}` }) },
  "openai.deleteResponse": { kind: "object", request: (of) => ({ path: `/v1/responses/${of.response}` }) },
  "openai.cancelResponse": {
    kind: "object",
    request: (of) => ({ path: `/v1/responses/${of.response}/cancel` }),
  },
  "openai.listInputItems": {
    kind: "object",
    request: (of) => ({ path: `/v1/responses/${of.response}/input_items` }),
  },
  // It has no conversation: all that it reads and writes is in the request.
  "openai.completeChat": {
    kind: "maker",
    request: () => ({
      path: "/v1/chat/completions",
      body: { model: "assistant", messages: [{ role: "user", content: "x" }] },
    }),
  },
  "mcp.listServers": FREE,
  "mcp.getServer": FREE,
  "mcp.listTools": FREE,
  "mcp.listPrompts": FREE,
  "mcp.listResources": FREE,
  "mcp.listResourceTemplates": FREE,
  "mcp.invokeTool": {
    kind: "object",
    request: (of) => ({
      path: "/mcp/servers/main/tools/workflow_asking_resume",
      body: { arguments: { executionId: of.waiting } },
    }),
  },
  "mcp.post": {
    kind: "maker",
    request: (of) => ({
      path: "/mcp/main/mcp",
      headers: { accept: "application/json, text/event-stream" },
      body: {
        jsonrpc: "2.0",
        id: 1,
        method: "tools/call",
        params: { name: "agent_assistant", arguments: { prompt: "x", conversationId: of.conversation } },
      },
    }),
  },
  "mcp.listen": FREE,
  "mcp.endSession": FREE,
  "observability.status": FREE,
  "inventory.routes": FREE,
  "inventory.manifest": FREE,
  "inventory.limits": FREE,
  "observability.listTraces": {
    kind: "list",
    request: () => ({ path: "/observability/traces?limit=200" }),
    ids: ({ traces }) => traces.map(({ traceId }: Loose) => traceId),
    owned: (of) => [of.trace],
  },
  "observability.getTrace": { kind: "object", request: (of) => ({ path: `/observability/traces/${of.trace}` }) },
  "observability.getSpan": { kind: "object", request: (of) => ({ path: `/observability/spans/${of.span}` }) },
  "observability.memoryUsers": {
    kind: "list",
    request: () => ({ path: "/observability/memory/users?limit=200" }),
    ids: ({ users }) => users.map(({ userId }: Loose) => userId),
    owned: () => [],
  },
  "observability.memoryConversations": {
    kind: "list",
    request: () => ({ path: "/observability/memory/conversations?limit=200" }),
    ids: ({ conversations }) => conversations.map(({ id }: Loose) => id),
    owned: (of) => [of.conversation],
  },
  "observability.memoryMessages": {
    kind: "object",
    request: (of) => ({ path: `/observability/memory/conversations/${of.conversation}/messages` }),
  },
  "observability.workingMemory": {
    kind: "object",
    request: (of) => ({
      path: `/observability/memory/working-memory?scope=conversation&conversationId=${of.conversation}`,
    }),
  },
  "platform.health": FREE,
  "platform.metrics": FREE,
  "platform.readiness": FREE,
  "updates.list": FREE,
  "manifest.reload": FREE,
  "commands.run": FREE,
  "updates.install": FREE,
  "updates.installOne": FREE,
  "observability.setup": FREE,
  "logs.list": {
    kind: "list",
    request: () => ({ path: "/api/logs?level=warn&limit=1000" }),
    ids: (entries) => entries.map(({ executionId }: Loose) => executionId),
    owned: (of) => [of.waiting],
  },
  "observability.logs": {
    kind: "list",
    request: () => ({ path: "/observability/logs?severityText=WARN&limit=1000" }),
    ids: ({ logs }) => logs.map(({ attributes }: Loose) => attributes.executionId),
    owned: (of) => [of.waiting],
  },
  // Traces are their users', and who does not see a trace does not learn of its lines.
  "observability.traceLogs": FREE,
  "observability.spanLogs": FREE,
};

type Path = (string | number)[];

/** Where the query and the body of a route take a `userId`, as their schemas say. */
export function aliasesOf(operation: string): { query: boolean; body: Path[] } {
  const route = ROUTES.find((row) => row.operation === operation)!;
  const inQuery = route.query === undefined ? [] : namedUserId(schemas[route.query]!, []);
  return { query: inQuery.length > 0, body: route.body === undefined ? [] : namedUserId(schemas[route.body]!, []) };
}

/** Items of lists are meant by their first one. What is the caller's own matter (metadata, context) has no such schema. */
function namedUserId(schema: Loose, at: Path): Path[] {
  if (typeof schema !== "object" || schema === null || at.length > 6) return [];
  const found: Path[] = [];
  if (typeof schema.$ref === "string") found.push(...namedUserId(schemas[schema.$ref.split("/").at(-1)!]!, at));
  for (const [name, property] of Object.entries((schema.properties ?? {}) as Loose)) {
    if (name === "userId") found.push([...at, name]);
    else found.push(...namedUserId(property, [...at, name]));
  }
  if (schema.items !== undefined) found.push(...namedUserId(schema.items, [...at, 0]));
  for (const key of ["allOf", "anyOf", "oneOf"]) {
    for (const part of schema[key] ?? []) found.push(...namedUserId(part, at));
  }
  return [...new Map(found.map((path) => [path.join("."), path])).values()];
}

/** A copy of a body that names a user at a place. */
export function naming(body: Loose, path: Path, userId: string): Loose {
  const copy = structuredClone(body);
  let at = copy;
  for (const key of path.slice(0, -1)) {
    at[key] ??= {};
    at = at[key];
  }
  at[path.at(-1)!] = userId;
  return copy;
}
