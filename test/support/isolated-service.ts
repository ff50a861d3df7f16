/** A service whose stored objects belong to users, those who ask it, and everything that a user may have there. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { type InjectedReply, inject } from "./inject.ts";
import { type Objects, OWNING_ROWS, type OwningRequest } from "./owning-routes.ts";
import { until } from "./probe.ts";
import type { Loose } from "./served-upstream.ts";
import { manifestWith, startService, type TestService } from "./service.ts";
import { record } from "./spans.ts";
import { SECRET, token } from "./tokens.ts";

const MEMORY = { default: { workingMemory: {}, semantic: { embedding: "local/hash" } } };
/** Fails, and is logged. */
const NOTE = { id: "note", andTap: { tool: "sum", input: {} } };
const WORKFLOWS = {
  flow: { steps: [{ id: "one", andThen: { set: { n: 1 } } }] },
  asking: { steps: [NOTE, { id: "ask", andThen: { suspend: { reason: "Approval needed" } } }] },
  writing: { steps: [{ id: "write", andAgent: { agent: "assistant", prompt: "Write." } }] },
};
/** The routes of the console are moved to users: they show the caller's own then. */
const AUTH = { mode: "authNext", provider: { use: "jwt", secret: SECRET }, consoleRoutes: [] };

const MANIFEST = manifestWith(
  { tools: ["sum"], memory: "default" },
  {
    // Each test leaves a question open.
    server: { limits: { approvals: 10_000 } },
    tools: { sum: { use: "add" }, gated: { use: "add", approval: true } },
    memory: MEMORY,
    providers: {
      demo: { use: "scripted", replies: [{ when: ".", object: { n: 1 } }] },
      // Says half of what it was told, and then nothing for long.
      talk: { use: "scripted", chunks: 2, delay: "60s" },
    },
    workflows: WORKFLOWS,
    mcp: { servers: { main: { agents: ["assistant"], workflows: ["asking"] } } },
  },
);
const TALKER = { name: "Talker", instructions: "Talk.", model: "talk/echo", memory: false };

export const serve = (test: Pick<TestContext, "after">, store: string, auth: object = {}) =>
  startService(
    test,
    { ...MANIFEST, agents: { ...(MANIFEST.agents as object), talker: TALKER }, store, auth: { ...AUTH, ...auth } },
    { env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" } },
  );

export type Headers = Record<string, string>;
export const ada: Headers = { authorization: `Bearer ${token({ sub: "ada" })}` };
export const bob: Headers = { authorization: `Bearer ${token({ sub: "bob" })}` };
export const nobody: Headers = {};
export const developer: Headers = { "x-service-dev": "true" };
export const console_: Headers = { "x-console-access-key": "the-key-of-the-console" };

const methodOf = (operation: string) => ROUTES.find((row) => row.operation === operation)!.method;
export const send = (service: TestService, operation: string, headers: Headers, request: OwningRequest) =>
  inject(service.dispatch, { method: methodOf(operation), ...request, headers: { ...headers, ...request.headers } });
export const dataOf = (reply: InjectedReply): Loose => {
  assert.ok(reply.status < 300, reply.text());
  return (reply.json() as Loose).data;
};

/** Whether it may end or change the object that it is about, so that another test needs another one. */
export const usesUp = (operation: string): boolean =>
  OWNING_ROWS[operation]!.kind === "object" && methodOf(operation) !== "GET";

/** Of the token. */
const userOf = ({ authorization }: Headers): string | undefined =>
  authorization && JSON.parse(Buffer.from(authorization.split(".")[1]!, "base64url").toString()).sub;

let count = 0;
/** Of the next ids that nobody has. */
export const next = (): string => String(count++);

/** Everything that a user may have. Two who are given the same name have the same ids. */
export async function objectsOf(
  service: TestService,
  headers: Headers,
  user: object = {},
  name = next(),
): Promise<Objects> {
  const { id: trace, root } = record(service.service.traces.sink, { userId: userOf(headers) });
  const ids = { waiting: `w-${name}`, completed: `f-${name}`, message: `m-${name}`, run: `r-${name}` };
  const of = { conversation: `c-${name}`, ...ids, trace, span: root.spanId };
  const make = async (path: string, body: object) =>
    dataOf(await inject(service.dispatch, { method: "POST", path, headers, body }));
  const { conversation: conversationId } = of;
  await make("/api/memory/conversations", { conversationId, title: "private", ...user });
  const messages = [{ id: of.message, role: "user", content: `tea for ${conversationId}` }];
  await make("/api/memory/save-messages", { conversationId, messages, ...user });
  await make(`/api/memory/conversations/${conversationId}/working-memory`, { content: "likes tea" });
  await make("/agents/assistant/text", { input: "x", options: { memory: { conversationId, ...user } } });
  await make("/workflows/asking/execute", { input: "x", options: { executionId: of.waiting, ...user } });
  await make("/workflows/flow/execute", { input: "x", options: { executionId: of.completed, ...user } });
  const options = { runId: of.run, background: true, memory: { ...user } };
  await make("/agents/assistant/text", { input: "x", options });
  await until(async () => {
    const reply = await inject(service.dispatch, { path: `/agents/assistant/runs/${of.run}`, headers });
    return reply.status === 200 && (reply.json() as Loose).data.status === "completed";
  }, "the end of a run");
  // The same question would be asked once.
  const input = { a: count++, b: 1 };
  const asked = await inject(service.dispatch, {
    method: "POST",
    path: "/tools/gated/execute",
    headers,
    body: { input },
  });
  assert.equal(asked.status, 409, asked.text());
  return { ...of, approval: String(asked.headers["x-approval-id"]), response: await responseOf(service, headers) };
}

/** One that was in the background, and has ended. */
async function responseOf({ dispatch }: TestService, headers: Headers): Promise<string> {
  const body = { model: "assistant", input: "x", background: true };
  const begun = await inject(dispatch, { method: "POST", path: "/v1/responses", headers, body });
  assert.equal(begun.status, 200, begun.text());
  const { id } = begun.json() as Loose;
  for (let status = "in_progress"; status === "in_progress"; ) {
    const seen = await inject(dispatch, { path: `/v1/responses/${id}`, headers });
    status = (seen.json() as Loose).status;
  }
  return id;
}

/** All that can be seen of them. */
export async function lookAt(service: TestService, headers: Headers, of: Objects): Promise<string[]> {
  const { conversation, waiting, completed, trace, span, response } = of;
  const paths = [
    `/api/memory/conversations/${conversation}`,
    `/api/memory/conversations/${conversation}/messages`,
    `/api/memory/conversations/${conversation}/working-memory`,
    `/workflows/asking/executions/${waiting}/state`,
    `/workflows/flow/executions/${completed}/state`,
    `/observability/traces/${trace}`,
    `/observability/spans/${span}`,
    `/v1/responses/${response}`,
  ];
  return Promise.all(
    paths.map(async (path) => {
      const reply = await inject(service.dispatch, { path, headers });
      assert.equal(reply.status, 200, reply.text());
      return reply.text();
    }),
  );
}

/** A chat whose client has left in the middle of the answer, which goes on. */
export async function leaveChat(service: TestService, headers: Headers, conversationId: string): Promise<void> {
  const client = new AbortController();
  const body = { input: "one two", options: { resumableStream: true, conversationId } };
  const onChunk = (chunk: Buffer) => {
    if (chunk.includes("text-delta")) client.abort();
  };
  const request = { method: "POST", path: "/agents/talker/chat", headers, body, onChunk, signal: client.signal };
  await assert.rejects(inject(service.dispatch, request), /abort/);
}
