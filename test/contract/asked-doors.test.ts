/** Runs that ask a person where their client cannot answer: the model says so, and the run goes on by itself when it is answered. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { beforeEach, describe, type TestContext, test } from "node:test";
import {
  AUTH,
  approvalManifest,
  as,
  CONSOLE,
  PAY_PLUGIN,
  PAYS,
  ran,
  restarts,
  serveApprovals,
} from "../support/approvals.ts";
import { calls, failure, says, type UpstreamRequest } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { reload } from "../support/reload.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { temporaryFolder } from "../support/storage.ts";

beforeEach(() => void ran.splice(0));

const WAITS = "The call waits for a person's approval. It runs by itself once it is approved.";
const DELEGATE = { agentId: "clerk", task: "pay 5" };
const MANIFEST = {
  memory: { default: {} },
  providers: {
    demo: {
      use: "scripted",
      replies: [{ when: "delegate", call: { tool: "delegate_task", input: DELEGATE } }, ...PAYS],
    },
  },
  agents: {
    clerk: { model: "demo/echo", tools: ["pay"] },
    chief: { model: "demo/echo", subAgents: ["clerk"] },
  },
  routes: [{ use: "desk" }],
  mcp: { servers: { main: { agents: ["clerk"] } } },
};
const ROUTE = {
  "routes/desk.mjs": `export default { kind: "route", name: "desk", method: "POST", path: "/desk", body: { type: "object" },
    handle: ({ body }, call) => call.agents.generateText(body.agent, { input: body.input }) };`,
};
const served = (t: TestContext, manifest: object = MANIFEST) =>
  serveApprovals(t, manifest as Record<string, unknown>, { plugins: [pluginFolder(t, ROUTE)] });

const asks = (service: TestService): Promise<Loose[]> => dataOf(service.get("/approvals"));
const decide = (service: TestService, id: string, body: object = { approved: true }) =>
  dataOf(service.post(`/approvals/${id}`, body));
const runOf = (service: TestService, { runId, agentId = "clerk" }: Loose): Promise<Loose> =>
  dataOf(service.get(`/agents/${agentId}/runs/${runId}`));
async function comesTo(service: TestService, run: Loose, status: string): Promise<Loose> {
  let found: Loose;
  await until(async () => {
    found = await runOf(service, run);
    return found.status === status;
  }, `the status ${status}`);
  return found;
}

const CHAT = { model: "clerk", messages: [{ role: "user", content: "pay 5" }] };
const RESPONSE = { model: "clerk", input: "pay 5" };
const MCP = { accept: "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18" };
const eventsOf = async (reply: Response): Promise<Loose[]> =>
  parseEvents(await reply.text()).flatMap(({ data }) => (data === "[DONE]" ? [] : [JSON.parse(data)]));
async function overMcp(service: TestService, given: object): Promise<Loose> {
  const params = { name: "agent_clerk", arguments: given };
  const reply = await service.post("/mcp/main/mcp", { jsonrpc: "2.0", id: 1, method: "tools/call", params }, MCP);
  return (await eventsOf(reply)).at(-1).result;
}
async function overSocket(service: TestService, body: object, headers = {}) {
  const socket = await openSocket(`${service.url}/v1/responses`, { headers });
  return {
    close: () => socket.close(),
    async create(more: object = {}): Promise<Loose> {
      socket.send({ type: "response.create", ...body, ...more });
      for (;;) {
        const event = await socket.next();
        if (event.type === "response.completed" || event.type === "error") return event.response ?? event;
      }
    },
  };
}
const textIn = ({ output }: Loose): string =>
  output
    .filter(({ type }: Loose) => type === "message")
    .map(({ content }: Loose) => content[0].text)
    .join("|");

/** Asks; gives what the client reads. */
const DOORS: Readonly<Record<string, (service: TestService) => Promise<string>>> = {
  "POST /v1/chat/completions": async (service) => {
    const reply = await service.post("/v1/chat/completions", CHAT);
    const { choices, id } = (await reply.json()) as Loose;
    assert.equal(id, `chatcmpl-${reply.headers.get("x-run-id")}`);
    assert.equal(choices[0].finish_reason, "stop");
    return choices[0].message.content;
  },
  "POST /v1/chat/completions as a stream": async (service) => {
    const chunks = await eventsOf(await service.post("/v1/chat/completions", { ...CHAT, stream: true }));
    assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
    return chunks.map(({ choices }) => choices[0].delta.content ?? "").join("");
  },
  "POST /v1/chat/completions as a stream with an Idempotency-Key": async (service) => {
    const key = { "idempotency-key": "one" };
    const chunks = await eventsOf(await service.post("/v1/chat/completions", { ...CHAT, stream: true }, key));
    assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
    return chunks.map(({ choices }) => choices[0].delta.content ?? "").join("");
  },
  "POST /v1/responses": async (service) => {
    const reply = await service.post("/v1/responses", RESPONSE);
    const response = (await reply.json()) as Loose;
    assert.deepEqual([response.id, response.status], [`resp_${reply.headers.get("x-run-id")}`, "completed"]);
    return textIn(response);
  },
  "POST /v1/responses as a stream": async (service) => {
    const events = await eventsOf(await service.post("/v1/responses", { ...RESPONSE, stream: true }));
    assert.equal(events.at(-1).type, "response.completed");
    return textIn(events.at(-1).response);
  },
  "WS /v1/responses": async (service) => {
    const socket = await overSocket(service, RESPONSE);
    const response = await socket.create();
    await socket.close();
    return textIn(response);
  },
  "an agent at POST /mcp/:serverId/mcp": async (service) => {
    const { content, structuredContent, isError } = await overMcp(service, { prompt: "pay 5" });
    const { runId, approvals, finishReason } = structuredContent;
    assert.deepEqual([isError, finishReason], [undefined, "stop"]);
    assert.ok(content[1].text.includes(runId) && content[1].text.includes(approvals[0].approvalId), content[1].text);
    return content[0].text;
  },
  "an agent at POST /mcp/servers/:serverId/tools/:toolName": async (service) => {
    const reply = await service.post("/mcp/servers/main/tools/agent_clerk", { arguments: { prompt: "pay 5" } });
    return ((await reply.json()) as Loose).data.content[0].text;
  },
  "a sub-agent at POST /agents/:id/text": async (service) => {
    const reply = await service.post("/agents/chief/text", { input: "delegate" });
    const { text, finishReason, runId } = await dataOf(reply.clone());
    const [{ approvalId }] = await asks(service);
    assert.deepEqual(
      [finishReason, reply.headers.get("x-run-id"), reply.headers.get("x-approval-id")],
      ["stop", runId, approvalId],
    );
    return text;
  },
  "a sub-agent at POST /v1/chat/completions": async (service) => {
    const messages = [{ role: "user", content: "delegate" }];
    const reply = await service.post("/v1/chat/completions", { model: "chief", messages });
    return ((await reply.json()) as Loose).choices[0].message.content;
  },
  "a sub-agent at POST /agents/:id/chat": async (service) => {
    const chunks = await eventsOf(await service.post("/agents/chief/chat", { input: "delegate" }));
    assert.equal(chunks.at(-1).finishReason, "stop");
    return chunks.map(({ type, delta }) => (type === "text-delta" ? delta : "")).join("");
  },
};

for (const [name, ask] of Object.entries(DOORS))
  describe(`${name}, for an agent whose tool needs approval`, () => {
    const agentId = name.startsWith("a sub-agent") ? "chief" : "clerk";

    test("its model says that it waits; the run waits, also for the next process, and goes on by itself when it is answered", async (t) => {
      const start = await restarts(t, MANIFEST, [pluginFolder(t, ROUTE)]);
      const first = await start();
      assert.match(await ask(first), /waits for a person's approval/);
      const [{ approvalId, runId, input }, ...more] = await asks(first);
      assert.deepEqual([input, more, ran], [{ amount: 5 }, [], []]);
      assert.equal((await runOf(first, { runId, agentId })).status, "waiting");
      const second = await start();
      await decide(second, approvalId);
      const { output, usage } = await comesTo(second, { runId, agentId }, "completed");
      assert.match(JSON.stringify(output), /paid/);
      assert.ok(usage.totalTokens > 0);
      assert.deepEqual(ran, [5], "once");
      const { entries } = await dataOf(second.get(`/agents/${agentId}/history`));
      assert.deepEqual(
        entries.map(({ id, status }: Loose) => [id, status]),
        [[runId, "completed"]],
      );
    });

    test("a no is told to the model of the run that asked", async (t) => {
      const service = await served(t);
      await ask(service);
      const [{ approvalId, runId }] = await asks(service);
      await decide(service, approvalId, { approved: false, reason: "too much" });
      assert.match(JSON.stringify((await comesTo(service, { runId, agentId }, "completed")).output), /too much/);
      assert.deepEqual(ran, []);
    });
  });

test("POST /reload between question and answer of a run at POST /v1/responses, after which the tool needs no approval: the run goes on with what was asked", async (t) => {
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  const service = await served(t, { ...MANIFEST, store });
  const { id } = (await (await service.post("/v1/responses", RESPONSE)).json()) as Loose;
  const [{ approvalId, runId }] = await asks(service);
  assert.equal((await reload(service, approvalManifest({ ...MANIFEST, store, pay: { approval: false } }))).status, 200);
  await decide(service, approvalId);
  await comesTo(service, { runId }, "completed");
  assert.deepEqual([ran, id], [[5], `resp_${runId}`]);
});

test("a custom route that calls an agent: its result names run and approval, and the run goes on by itself in the next process", async (t) => {
  const start = await restarts(t, MANIFEST, [pluginFolder(t, ROUTE)]);
  const reply = await (await start()).post("/desk", { agent: "clerk", input: "pay 5" });
  const { finishReason, runId, approvals } = await dataOf(reply.clone());
  assert.deepEqual([finishReason, reply.headers.get("x-run-id")], ["tool-calls", runId]);
  const second = await start();
  await decide(second, approvals[0].approvalId);
  assert.match((await comesTo(second, { runId }, "completed")).output, /paid/);
  assert.deepEqual(ran, [5]);
});

describe("GET /v1/responses/:id of a response whose run asks a person", () => {
  const own = "include[]=penstock:tool_call";
  const read = async (service: TestService, id: string): Promise<Loose> =>
    (await service.get(`/v1/responses/${id}?${own}`)).json();
  const ask = async (service: TestService, more: object = {}): Promise<Loose> =>
    (await service.post("/v1/responses", { ...RESPONSE, ...more })).json();
  const ends = async (service: TestService, id: string) => {
    let response: Loose;
    await until(async () => {
      response = await read(service, id);
      return textIn(response).includes("paid") || response.status !== "completed";
    }, "the end of the response");
    return response;
  };

  test("once it is answered it has the result of the call and what the model said then, in the next process too", async (t) => {
    const start = await restarts(t, MANIFEST, [pluginFolder(t, ROUTE)]);
    const first = await start();
    const { id, usage } = await ask(first);
    assert.equal(textIn(await read(first, id)), `"${WAITS}"`);
    const [{ approvalId }] = await asks(first);
    const second = await start();
    await decide(second, approvalId);
    const response = await ends(second, id);
    const [call] = response.output;
    assert.deepEqual([response.status, call.status, call.output.paid], ["completed", "completed", 5]);
    assert.equal(textIn(response).split("|").length, 2, "what was said before stays");
    assert.ok(response.usage.total_tokens > usage.total_tokens);
    assert.deepEqual(await read(second, id), response);
  });

  test("one whose run is cancelled is cancelled, and DELETE cancels a run that waits", async (t) => {
    const service = await served(t);
    const { id } = await ask(service);
    const [{ runId }] = await asks(service);
    await dataOf(service.post(`/agents/clerk/runs/${runId}/cancel`, {}));
    assert.equal((await read(service, id)).status, "cancelled");
    const other = await ask(service);
    const [asked] = await asks(service);
    assert.equal((await fetch(`${service.url}/v1/responses/${other.id}`, { method: "DELETE" })).status, 200);
    assert.equal((await runOf(service, asked)).status, "cancelled");
    assert.deepEqual(await asks(service), []);
  });

  test("in the background it is in progress until the run has ended, and its stream goes on with the answer", async (t) => {
    const service = await served(t);
    const { id, status } = await ask(service, { background: true });
    const reading = service.get(`/v1/responses/${id}?stream=true`).then(eventsOf);
    let asked: Loose;
    await until(async () => {
      [asked] = await asks(service);
      return asked !== undefined && (await runOf(service, asked)).status === "waiting";
    }, "the question");
    assert.deepEqual([status, (await read(service, id)).status], ["in_progress", "in_progress"]);
    await decide(service, asked.approvalId);
    const events = await reading;
    assert.equal(events.at(-1).type, "response.completed");
    assert.match(textIn(events.at(-1).response), /^[^|]*paid[^|]*$/, "nobody was told to wait");
    assert.equal((await read(service, id)).status, "completed");
  });

  test("it belongs to its user, whose console may answer", async (t) => {
    const service = await served(t, { ...MANIFEST, auth: AUTH });
    const reply = await service.post("/v1/responses", RESPONSE, as("ada"));
    const { id } = (await reply.json()) as Loose;
    const [{ approvalId }] = await dataOf(service.get("/approvals", as("ada")));
    assert.equal((await service.post(`/approvals/${approvalId}`, { approved: true }, as("bob"))).status, 404);
    await dataOf(service.post(`/approvals/${approvalId}`, { approved: true }, CONSOLE));
    await until(
      async () =>
        textIn((await (await service.get(`/v1/responses/${id}`, as("ada"))).json()) as Loose).includes("paid"),
      "the end",
    );
    assert.equal((await service.get(`/v1/responses/${id}`, as("bob"))).status, 404);
  });
});

describe("what the model reads", () => {
  /** Calls `pay` where its user says so, and else says what it reads. */
  const answer = ({ lastUserText, toolOutputs, body }: UpstreamRequest) =>
    lastUserText.startsWith("pay") && toolOutputs.length === 0
      ? calls([{ name: "pay", id: "c1", input: { amount: 5 } }])
      : says(body.tool_choice === "none" ? "A person was asked." : "Done.");
  async function serve(t: TestContext, more: Record<string, unknown> = {}) {
    const clerk = { model: "up/test-model", tools: ["pay"], memory: "chats" };
    const { service, upstream } = await serveUpstream(
      t,
      { memory: false },
      {
        tools: { pay: { use: "pay", approval: true } },
        memory: { chats: {} },
        agents: { clerk },
        mcp: { servers: { main: { agents: ["clerk"] } } },
        ...more,
      },
      { plugins: [pluginFolder(t, PAY_PLUGIN)] },
    );
    upstream.fallback(answer);
    return { service, upstream };
  }
  const toldLast = ({ requests }: { readonly requests: readonly UpstreamRequest[] }): Loose[] =>
    requests.at(-1)!.body.messages;
  const results = (messages: Loose[]) => messages.filter(({ role }) => role === "tool").map(({ content }) => content);

  for (const way of ["POST /v1/responses", "WS /v1/responses"])
    test(`${way} with previous_response_id: that the call waits, and its result once it was answered`, async (t) => {
      const { service, upstream } = await serve(t);
      const socket = await overSocket(service, { model: "clerk" });
      const create = async (body: object): Promise<Loose> =>
        way.startsWith("WS")
          ? socket.create(body)
          : (await service.post("/v1/responses", { model: "clerk", ...body })).json();
      const { id } = await create({ input: "pay 5" });
      assert.deepEqual(results(toldLast(upstream)), [WAITS]);
      await create({ input: "and now?", previous_response_id: id });
      assert.deepEqual(results(toldLast(upstream)), [WAITS]);
      const [asked] = await asks(service);
      assert.equal(asked.status, "open", "the client cannot answer, so it has not said something else instead");
      await decide(service, asked.approvalId);
      await comesTo(service, asked, "completed");
      await create({ input: "and now?", previous_response_id: id });
      assert.match(results(toldLast(upstream)).join(), /"paid":5/);
      await socket.close();
    });

  test("POST /mcp/:serverId/mcp: the next message of the conversation leaves the question open, and reads its result once it was answered", async (t) => {
    const { service, upstream } = await serve(t);
    const say = (prompt: string) => overMcp(service, { prompt, conversationId: "c" });
    await say("pay 5");
    await say("and now?");
    assert.deepEqual(results(toldLast(upstream)), [WAITS]);
    const [asked] = await asks(service);
    await decide(service, asked.approvalId);
    await comesTo(service, asked, "completed");
    await say("and now?");
    assert.match(results(toldLast(upstream)).join(), /"paid":5/);
    assert.deepEqual(ran, [5]);
  });

  test("POST /v1/chat/completions: once that it waits, without a further call; then the result alone", async (t) => {
    const { service, upstream } = await serve(t);
    await service.post("/v1/chat/completions", CHAT);
    assert.equal(upstream.requests.length, 2);
    assert.equal(upstream.requests[1]!.body.tool_choice, "none");
    const [asked] = await asks(service);
    await decide(service, asked.approvalId);
    await comesTo(service, asked, "completed");
    assert.equal(upstream.requests.length, 3);
    assert.equal(toldLast(upstream).at(-1).role, "tool");
    assert.match(results(toldLast(upstream)).join(), /"paid":5/);
  });

  test("POST /v1/chat/completions: a model that calls all the same runs nothing", async (t) => {
    const { service, upstream } = await serve(t);
    const call = { name: "pay", input: { amount: 5 } };
    upstream.replies(calls([{ ...call, id: "c1" }]), calls([{ ...call, id: "c2" }]));
    const reply = await service.post("/v1/chat/completions", CHAT);
    assert.equal(reply.status, 200);
    assert.equal((await asks(service)).length, 1);
    const [asked] = await asks(service);
    await decide(service, asked.approvalId);
    await comesTo(service, asked, "completed");
    assert.deepEqual(ran, [5]);
  });

  test("POST /v1/chat/completions: where the model cannot say that it waits, the run waits all the same", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([{ name: "pay", id: "c1", input: { amount: 5 } }]), failure(500));
    const reply = await service.post("/v1/chat/completions", CHAT);
    assert.equal(reply.status, 200);
    const [asked] = await asks(service);
    assert.equal(reply.headers.get("x-approval-id"), asked.approvalId);
    await decide(service, asked.approvalId);
    await comesTo(service, asked, "completed");
    assert.deepEqual(ran, [5]);
  });

  test("POST /v1/chat/completions with response_format: what the model says of it is in that form", async (t) => {
    const { service, upstream } = await serve(t);
    const schema = { type: "object", properties: { note: { type: "string" } }, required: ["note"] };
    const format = { type: "json_schema", json_schema: { name: "n", schema } };
    upstream.replies(calls([{ name: "pay", id: "c1", input: { amount: 5 } }]), says('{"note":"asked"}'));
    const reply = await service.post("/v1/chat/completions", { ...CHAT, response_format: format });
    assert.equal(((await reply.json()) as Loose).choices[0].message.content, '{"note":"asked"}');
    const [asked] = await asks(service);
    upstream.replies(says('{"note":"paid"}'));
    await decide(service, asked.approvalId);
    assert.deepEqual((await comesTo(service, asked, "completed")).output, { note: "paid" });
  });

  test("GET /agents/:id/runs/:runId: the usage has what the model said of the wait, too", async (t) => {
    const { service } = await serve(t);
    await service.post("/v1/chat/completions", CHAT);
    const [asked] = await asks(service);
    await decide(service, asked.approvalId);
    assert.equal((await comesTo(service, asked, "completed")).usage.totalTokens, 45, "three calls of 15");
  });
});
