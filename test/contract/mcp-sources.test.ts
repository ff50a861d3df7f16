/** Resources and prompts of foreign MCP servers in the instructions of agents (`agents.X.resources`, `agents.X.prompt`). */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { as, CONSOLE, serveApprovals } from "../support/approvals.ts";
import { eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { calls, says, stallsBeforeHead, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { SECRET, token } from "../support/tokens.ts";

const ready = (service: TestService, headers: Record<string, string> = {}) =>
  eventually(async () => {
    const tools = await dataOf(service.get("/tools", headers));
    return tools.some(({ name, status }: Loose) => name === "docs_search" && status === "ready");
  }, "the server");

async function writer(t: TestContext, agent: object, more: object = {}, options: object = {}) {
  const server = await startForeignServer(t, "current");
  const mcp = { clients: { docs: { url: server.url, timeout: "20s", ...more } } };
  const { service, upstream } = await serveUpstream(
    t,
    { instructions: "Write well.", ...agent },
    { mcp, ...options },
    {
      env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key" },
    },
  );
  await ready(service, { "x-console-access-key": "the-key" });
  const ask = (body: object = {}, headers: Record<string, string> = {}) =>
    service.post("/agents/assistant/text", { input: "x", ...body }, headers);
  const told = (): string => upstream.requests.at(-1)!.body.messages[0].content;
  return { server, service, upstream, ask, told };
}

const resource = (uri: string, more: object = {}) => ({ client: "docs", uri, ...more });

test("agents.X.resources and prompt: their texts follow the instructions, and a conversation has them once", async (t) => {
  const language = "{{ context.language }}";
  const { ask, told, upstream } = await writer(
    t,
    {
      memory: "default",
      prompt: { client: "docs", name: "house-style", arguments: { language } },
      resources: [resource("manual://style"), resource("manual://pages/{{ context.page }}")],
    },
    {},
    { memory: { default: {} } },
  );
  const options = { context: { language: "English", page: "a/../b c" }, conversationId: "c" };
  await dataOf(ask({ options }));
  const expected = [
    "Write well.",
    "Follow house-style in English.",
    '<resource uri="manual://style">\nFirst edition of manual://style\n</resource>',
    '<resource uri="manual://pages/a%2F..%2Fb%20c">\nFirst edition of manual://pages/a%2F..%2Fb%20c\n</resource>',
  ].join("\n\n");
  assert.equal(told(), expected);
  await dataOf(ask({ options }));
  assert.equal(told(), expected);
  assert.deepEqual(
    upstream.requests.at(-1)!.body.messages.map(({ role }: Loose) => role),
    ["system", "user", "assistant", "user"],
  );
});

test("agents.X.resources: a value that would lead elsewhere, or is none, is a 400 that names the place", async (t) => {
  const { ask } = await writer(t, { resources: [resource("manual://pages/{{ context.page }}")] });
  for (const [page, problem] of [
    ["..", 'it must not be ".."'],
    ["", 'it must not be ""'],
    [["a"], "it must be text, a number or a boolean, not a list"],
  ]) {
    const { status, error } = await errorOf(ask({ options: { context: { page } } }));
    assert.deepEqual([status, error], [400, `agents.assistant.resources[0].uri: ${problem}`]);
  }
});

test("agents.X.resources: a text is bounded by maxBytes, and read once for the runs of a minute", async (t) => {
  const { ask, told, server } = await writer(t, { resources: [resource("manual://long", { maxBytes: "1KiB" })] });
  await Promise.all([ask(), ask(), ask()].map(dataOf));
  await dataOf(ask());
  assert.ok(Buffer.byteLength(told()) < 1300, `${Buffer.byteLength(told())}`);
  assert.match(told(), /^Write well\.\n\n<resource uri="manual:\/\/long">\nlong long /);
  assert.equal((server.state as Loose).reads, 1);
});

test("agents.X.resources: a server without tools gives texts, and nothing is printed beside the log", async (t) => {
  const printed = t.mock.method(console, "debug", () => {});
  const server = await startForeignServer(t, "current");
  server.state.textsOnly = true;
  const mcp = { clients: { docs: { url: server.url } } };
  const { service, upstream } = await serveUpstream(t, { resources: [resource("manual://style")] }, { mcp });
  await dataOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.match(upstream.requests.at(-1)!.body.messages[0].content, /First edition of manual:\/\/style/);
  assert.equal(printed.mock.callCount(), 0);
});

test("agents.X.resources: what is not text is a clear failure, and a server that is away a 503", async (t) => {
  const { ask, server } = await writer(t, { resources: [resource("manual://picture")] });
  assert.deepEqual(await errorOf(ask()), {
    status: 500,
    error: 'resource "manual://picture" of MCP server "docs" cannot be read: MCP server "docs": it is not text',
  });
  await server.stop();
  // The first request after its end may meet the connection that was lost, the next one finds no server.
  await eventually(async () => {
    const { status, error } = await errorOf(ask());
    assert.match(error, /^resource "manual:\/\/picture" of MCP server "docs" cannot be read: /);
    return status === 503;
  }, "503");
});

test("agents.X.resources: with auth, the text is that which the user may read, and nobody is told that of another", async (t) => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const { ask, told } = await writer(
    t,
    { resources: [resource("manual://style")] },
    { auth: "forward" },
    {
      auth,
    },
  );
  for (const sub of ["ada", "bob", "ada"]) {
    await dataOf(ask({}, { authorization: `Bearer ${token({ sub, exp: 4_000_000_000 })}` }));
    assert.match(told(), new RegExp(`First edition of manual://style for ${sub}\n`));
  }
});

/** A durable agent that may pay, with a text that each user reads with the own token. It is served again and again on one store. */
async function durable(t: TestContext) {
  const [server, upstream] = [await startForeignServer(t, "current"), await startOpenAIUpstream()];
  t.after(() => upstream.close());
  upstream.fallback(({ toolOutputs }) =>
    toolOutputs.length > 0 ? says("paid") : calls([{ name: "pay", input: { amount: 5 } }]),
  );
  const agent = { model: "up/test-model", tools: ["pay", "docs_whoami"], durable: true };
  const manifest = {
    auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } },
    store: `sqlite:${join(await temporaryFolder(t), "test.db")}`,
    mcp: { clients: { docs: { url: server.url, auth: "forward" } } },
    providers: { up: { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0 } },
    agents: {
      clerk: { ...agent, instructions: "Pay.", resources: [resource("manual://style")] },
      chief: { model: "up/test-model", instructions: "Delegate.", subAgents: ["clerk"], durable: true },
    },
    workflows: { asks: { steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "x" } }] } },
  };
  let running: TestService | null = null;
  const start = async () => {
    await running?.kill();
    running = await serveApprovals(t, manifest);
    await ready(running, CONSOLE);
    return running;
  };
  /** What the model was told before the input, in each of its calls. */
  const told = () => upstream.requests.map(({ body }) => body.messages[0].content);
  return { start, server, upstream, told };
}

const ADA = as("ada");
const OF_ADA = 'Pay.\n\n<resource uri="manual://style">\nFirst edition of manual://style for ada\n</resource>';

async function approve(service: TestService) {
  const [{ approvalId }] = await dataOf(service.get("/approvals", CONSOLE));
  await dataOf(service.post(`/approvals/${approvalId}`, { approved: true }, CONSOLE));
}

async function endOf(service: TestService, path: string): Promise<Loose> {
  let state: Loose;
  await eventually(async () => {
    state = await dataOf(service.get(path, path.startsWith("/agents") ? ADA : CONSOLE));
    return !["running", "waiting", "suspended"].includes(state.status);
  }, "the end");
  return state;
}

test("agents.X.resources: with auth, a kept run and an andAgent step go on after an approval with the text that they have begun with", async (t) => {
  const { start, server, told } = await durable(t);
  const first = await start();
  const reply = await first.post("/agents/clerk/text", { input: "x" }, ADA);
  assert.equal((await dataOf(reply)).approvals.length, 1);
  // What is read from now on is another text, and nobody is there to read it for.
  server.state.edition = "Second";
  await approve(first);
  const run = await endOf(first, `/agents/clerk/runs/${reply.headers.get("x-run-id")}`);
  assert.deepEqual([run.status, run.output, run.error], ["completed", "paid", undefined]);
  const { executionId } = await dataOf(first.post("/workflows/asks/execute", { input: {} }, ADA));
  const second = await start();
  await approve(second);
  const { status, error } = await endOf(second, `/workflows/asks/executions/${executionId}/state`);
  assert.deepEqual([status, error], ["completed", undefined]);
  assert.deepEqual(told(), [OF_ADA, OF_ADA, OF_ADA, OF_ADA]);
});

test("agents.X.resources: with auth, a run and the sub-agent of a run whose process dies in the middle of the first answer go on with the text that they have begun with", async (t) => {
  const { start, server, upstream, told } = await durable(t);
  const first = await start();
  const delegates = calls([{ name: "delegate_task", input: { agentId: "clerk", task: "x" } }]);
  upstream.replies(stallsBeforeHead(), delegates, stallsBeforeHead());
  const begin = async (agent: string, asked: number) => {
    const body = { input: "x", options: { background: true, runId: agent } };
    assert.equal((await first.post(`/agents/${agent}/text`, body, ADA)).status, 202);
    await eventually(() => upstream.requests.length === asked, `request ${asked} to the model`);
  };
  await begin("clerk", 1);
  await begin("chief", 3);
  // What comes later is on disk later.
  assert.equal((await first.post("/agents/chief/text", { input: "y", options: { maxSteps: 1 } }, ADA)).status, 200);
  server.state.edition = "Second";
  const before = told().length;
  upstream.fallback(({ toolOutputs }) => says(toolOutputs.join() || "done"));

  const second = await start();
  const [clerk, chief] = [
    await endOf(second, "/agents/clerk/runs/clerk"),
    await endOf(second, "/agents/chief/runs/chief"),
  ];
  assert.deepEqual([clerk.status, clerk.output, clerk.error], ["completed", "done", undefined]);
  assert.equal(chief.status, "completed");
  const again = told().slice(before);
  assert.equal(again.filter((text) => text.startsWith("Pay.")).length, 2);
  for (const text of again) if (text.startsWith("Pay.")) assert.equal(text, OF_ADA);
});

test("mcp.clients.X.auth: after an approval a tool of such a client fails with the reason, of which the model is told", async (t) => {
  const { start, upstream } = await durable(t);
  const service = await start();
  await dataOf(service.post("/agents/clerk/text", { input: "x" }, ADA));
  upstream.replies(calls([{ name: "docs_whoami" }]), says("sorry"));
  const before = upstream.requests.length;
  await approve(service);
  await eventually(() => upstream.requests.length === before + 2, "the answer");
  assert.match(
    upstream.requests.at(-1)!.toolOutputs.at(-1)!,
    /called with the token of the user who asks, and there is none here/,
  );
});
