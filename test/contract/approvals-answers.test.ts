/** What was asked decides: an answer is good for its question alone, whatever the manifest says by then and whatever a client claims. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, beforeEach, describe, type TestContext, test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
import { AUTH, as, CONSOLE, ran } from "../support/approvals.ts";
import { calls, type OpenAIUpstream, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { reload } from "../support/reload.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const tool = (name: string) => `export default { kind: "tool", name: "${name}",
  parameters: { type: "object", properties: { amount: { type: "number" } }, required: ["amount"], additionalProperties: false },
  execute: ({ amount }, { context }) => { globalThis.penstockPaid.push(["${name}", amount, context]); return { paid: amount }; } };`;
const PLUGINS = { "tools/pay.mjs": tool("pay"), "tools/note.mjs": tool("note") };

const ABOVE = "{{ input.amount > 5000 }}";
/** What the manifest says after the question, under which the call would run. */
const LATER = { "a rule that is false for the call": { approval: ABOVE }, "no approval at all": { approval: false } };

interface Served {
  service: TestService;
  upstream: OpenAIUpstream;
  /** Reads the manifest again, with this for the tool `pay`. */
  becomes(pay: object): Promise<void>;
}

/** The model calls the tools that the last text names (`pay 5`), and else says what the tools gave. */
async function serve(
  t: Pick<TestContext, "after">,
  pay: object = { approval: true },
  rest: object = {},
): Promise<Served> {
  const agent = { model: "up/test-model", tools: ["pay", "note", "sometimes"] };
  const parts = {
    tools: { note: { use: "note" }, sometimes: { use: "pay", approval: ABOVE } },
    memory: { chats: {} },
    agents: {
      clerk: { ...agent, memory: false },
      friend: { ...agent, memory: "chats" },
      kept: { ...agent, memory: false, durable: true },
      chief: { model: "up/test-model", memory: false, subAgents: ["clerk"] },
    },
    workflows: {
      pays: { steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: "{{ input.amount }}" } } }] },
      asks: { steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "pay {{ input.amount }}" } }] },
    },
    ...rest,
  };
  const withPay = (settings: object) => ({ ...parts, tools: { ...parts.tools, pay: { use: "pay", ...settings } } });
  const plugins = [pluginFolder(t as TestContext, PLUGINS)];
  const env = { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" };
  const { service, upstream } = await serveUpstream(t, { memory: false }, withPay(pay), { plugins, env });
  upstream.fallback(({ lastUserText, toolOutputs }) => {
    const wanted = [...lastUserText.matchAll(/\b(pay|note|sometimes) (\d+)/g)];
    if (toolOutputs.length > 0 || wanted.length === 0) return says(`told: ${toolOutputs.join(" | ")}`);
    return calls(
      wanted.map(([, name, amount], index) => ({
        id: `c${index + 1}`,
        name: name!,
        input: { amount: Number(amount) },
      })),
    );
  });
  const providers = {
    demo: { use: "scripted" },
    up: { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0 },
  };
  const base = manifestWith({ model: "up/test-model", memory: false }) as Loose;
  return {
    service,
    upstream,
    async becomes(settings) {
      const next = withPay(settings);
      const agents = { ...base.agents, ...next.agents };
      const outcome = await reload(service, { ...base, ...next, providers, agents });
      assert.equal(outcome.status, 200, outcome.error);
    },
  };
}

const open = (service: TestService, headers = {}): Promise<Loose[]> => dataOf(service.get("/approvals", headers));
const decide = (service: TestService, id: string, body: object, headers = {}) =>
  dataOf(service.post(`/approvals/${id}`, body, headers));
const item = async (service: TestService, id: string, headers = {}): Promise<Loose> => {
  for (const status of ["open", "approved", "denied", "expired"])
    for (const each of await dataOf(service.get(`/approvals?status=${status}`, headers)))
      if (each.approvalId === id) return each;
  assert.fail("no such approval");
};

type Fields = Record<string, unknown>;
const user = (text: string) => ({ role: "user", parts: [{ type: "text", text }] });
const answered = (name: string, input: object, approval: object, more: Fields = {}) => ({
  type: `tool-${name}`,
  toolCallId: "c1",
  state: "approval-responded",
  input,
  approval,
  ...more,
});
const answerMessages = (parts: object[]) => [
  user("pay 5"),
  { id: "a1", role: "assistant", parts: [{ type: "step-start" }, ...parts] },
];

/** The same as the AI SDK's own loop has it. */
const modelMessages = (toolName: string, approvalId: string, answer: object) => [
  { role: "user", content: "pay 5" },
  {
    role: "assistant",
    content: [
      { type: "tool-call", toolCallId: "c1", toolName, input: { amount: 5 } },
      { type: "tool-approval-request", approvalId, toolCallId: "c1" },
    ],
  },
  { role: "tool", content: [{ type: "tool-approval-response", approvalId, ...answer }] },
];

beforeEach(() => void ran.splice(0));

/** The ways in which a call waits: each asks for `pay 5`, and says how it goes on after the answer. */
const WAYS: Record<string, (service: TestService) => Promise<(id: string) => Promise<unknown>>> = {
  async "POST /workflows/:id/execute"(service) {
    const { executionId } = await dataOf(service.post("/workflows/pays/execute", { input: { amount: 5 } }));
    return () => ended(service, `/workflows/pays/executions/${executionId}/state`);
  },
  async "POST /workflows/:id/execute with andAgent"(service) {
    const { executionId } = await dataOf(service.post("/workflows/asks/execute", { input: { amount: 5 } }));
    return () => ended(service, `/workflows/asks/executions/${executionId}/state`);
  },
  async "POST /a2a/:id"(service) {
    const peer = new A2aCaller(service);
    const { id } = await peer.send("clerk", said("pay 5"));
    return () => peer.when("clerk", id, "TASK_STATE_COMPLETED");
  },
  async "POST /agents/:id/text of a durable agent"(service) {
    const reply = await service.post("/agents/kept/text", { input: "pay 5" });
    const runId = reply.headers.get("x-run-id");
    return () => ended(service, `/agents/kept/runs/${runId}`);
  },
  async "POST /agents/:id/chat"(service) {
    await (await service.post("/agents/clerk/chat", { input: "pay 5" })).text();
    return async (id) => {
      const messages = answerMessages([answered("pay", { amount: 5 }, { id, approved: false })]);
      return (await service.post("/agents/clerk/chat", { messages })).text();
    };
  },
  async "POST /tools/:name/execute"(service) {
    const call = (headers = {}) => service.post("/tools/pay/execute", { input: { amount: 5 } }, headers);
    assert.equal((await call()).status, 409);
    return async (id) => assert.equal((await call({ "x-approval-id": id })).status, 409);
  },
};

async function ended(service: TestService, path: string): Promise<Loose> {
  let state: Loose;
  await until(async () => {
    state = await dataOf(service.get(path));
    return !["running", "suspended", "waiting"].includes(state.status);
  }, "the end");
  return state;
}

describe("an answer decides, and the rule is not evaluated again", () => {
  const over: (() => unknown)[] = [];
  let served: Served;
  before(async () => {
    const test = { after: (end: () => unknown) => void over.push(end) } as never;
    served = await serve(test, {}, { store: `sqlite:${join(await temporaryFolder(test), "test.db")}` });
  });
  after(async () => {
    for (const end of over.reverse()) await end();
  });

  for (const [what, rule] of Object.entries(LATER))
    for (const [way, ask] of Object.entries(WAYS))
      test(`${way}: a call that was denied does not run, when a reload has made it ${what}`, async () => {
        const { service, becomes } = served;
        await becomes({ approval: true });
        const goOn = await ask(service);
        const [{ approvalId }] = await open(service);
        await becomes(rule);
        await decide(service, approvalId, { approved: false, reason: "too much" });
        await goOn(approvalId);
        assert.deepEqual(ran, []);
        assert.equal((await item(service, approvalId)).status, "denied");
      });

  for (const [what, rule] of Object.entries(LATER))
    for (const workflow of ["pays", "asks"])
      test(`POST /workflows/:id/executions/:executionId/resume of "${workflow}": a call whose question is open waits, when a reload has made it ${what}`, async () => {
        const { service, becomes } = served;
        await becomes({ approval: true });
        const { executionId } = await dataOf(service.post(`/workflows/${workflow}/execute`, { input: { amount: 6 } }));
        const [{ approvalId }] = await open(service);
        await becomes(rule);
        const again = await dataOf(service.post(`/workflows/${workflow}/executions/${executionId}/resume`, {}));
        assert.deepEqual([again.status, again.suspension.suspendData.approvalId], ["suspended", approvalId]);
        await decide(service, approvalId, { approved: true });
        await ended(service, `/workflows/${workflow}/executions/${executionId}/state`);
        assert.deepEqual(
          ran.map(([, amount]) => amount),
          [6],
        );
      });

  test("POST /tools/:name/execute: an approval that a request brings for another tool does not stop one that is free", async () => {
    const { service, becomes } = served;
    await becomes({ approval: true });
    const asked = await service.post("/tools/pay/execute", { input: { amount: 7 } });
    const headers = { "x-approval-id": asked.headers.get("x-approval-id")! };
    await dataOf(service.post("/tools/note/execute", { input: { amount: 7 } }, headers));
    await dataOf(service.post("/tools/sometimes/execute", { input: { amount: 7 } }, headers));
    assert.equal(ran.length, 2);
  });
});

test("POST /agents/:id/chat: a call that was asked for in one context does not run with a no that comes in another", async (t) => {
  const { service } = await serve(t, { approval: "{{ context.large == true }}" });
  const options = { context: { large: true } };
  await (await service.post("/agents/clerk/chat", { input: "pay 5", options })).text();
  const [{ approvalId }] = await open(service);
  const messages = answerMessages([answered("pay", { amount: 5 }, { id: approvalId, approved: false })]);
  const elsewhere = { context: { large: false } };
  const reply = await (await service.post("/agents/clerk/chat", { messages, options: elsewhere })).text();
  assert.match(reply, /"tool-output-denied"/);
  assert.deepEqual(ran, []);
  assert.equal((await item(service, approvalId)).status, "denied");
});

describe("an answer that names no question of this call", () => {
  const over: (() => unknown)[] = [];
  let service: TestService;
  let upstream: OpenAIUpstream;
  /** Ids of approvals that exist, and are good for something else. */
  const foreign: Record<string, string> = {};
  const NEVER = "0123456789abcdef0123456789abcdef";
  before(async () => {
    const test = { after: (end: () => unknown) => void over.push(end) } as never;
    ({ service, upstream } = await serve(test, { approval: true }, { auth: AUTH }));
    const ask = async (name: string, amount: number, who: string) => {
      const input = `${name} ${amount}`;
      await (await service.post("/agents/clerk/chat", { input }, as(who))).text();
      const [asked] = (await open(service, as(who))).filter((each) => each.input.amount === amount);
      return asked.approvalId as string;
    };
    foreign["another user's"] = await ask("pay", 5, "bob");
    foreign["another input's"] = await ask("pay", 4, "ada");
    foreign["another tool's"] = await ask("sometimes", 6000, "ada");
    for (const id of Object.values(foreign)) await decide(service, id, { approved: true }, CONSOLE);
    await until(() => ran.length === 3 && upstream.requests.length === 6, "the runs that asked");
    foreign["never given"] = NEVER;
  });
  after(async () => {
    for (const end of over) await end();
  });

  const INPUT = { amount: 5 };
  const ui = (name: string, approval: object) => answerMessages([answered(name, INPUT, approval)]);
  const post = (path: string, body: object) => service.post(path, body, as("ada"));
  const DOORS: Record<string, (name: string, id: string, approved: boolean) => Promise<Response>> = {
    "POST /agents/:id/text": (name, id, approved) => post("/agents/clerk/text", { input: ui(name, { id, approved }) }),
    "POST /agents/:id/stream": (name, id, approved) =>
      post("/agents/clerk/stream", { input: ui(name, { id, approved }) }),
    "POST /agents/:id/chat": (name, id, approved) =>
      post("/agents/clerk/chat", { messages: ui(name, { id, approved }) }),
    "POST /agents/:id/chat with the part of a dynamic tool": (name, id, approved) => {
      const part = answered(name, INPUT, { id, approved }, { type: "dynamic-tool", toolName: name });
      return post("/agents/clerk/chat", { messages: answerMessages([part]) });
    },
    "POST /agents/:id/chat with a part that still asks": (name, id) => {
      const part = answered(name, INPUT, { id }, { state: "approval-requested" });
      return post("/agents/clerk/chat", { messages: answerMessages([part]) });
    },
    "POST /agents/:id/text of a durable agent": (name, id, approved) =>
      post("/agents/kept/text", { input: ui(name, { id, approved }) }),
    "POST /agents/:id/text with model messages": (name, id, approved) =>
      post("/agents/clerk/text", { input: modelMessages(name, id, { approved }) }),
    "POST /agents/:id/ag-ui": (name, id, approved) => {
      const call = { id: "c1", type: "function", function: { name, arguments: JSON.stringify(INPUT) } };
      const messages = [
        { id: "u1", role: "user", content: "pay 5" },
        { id: "a1", role: "assistant", toolCalls: [call] },
      ];
      const resume = [{ interruptId: id, status: "resolved", payload: { approved } }];
      return post("/agents/clerk/ag-ui", { threadId: "t", runId: "r", messages, resume });
    },
  };

  for (const [door, send] of Object.entries(DOORS))
    test(`${door}: it admits nothing, of any tool: the request is 200 and the model reads that it is not approved`, async () => {
      for (const [which, id] of Object.entries(foreign))
        for (const name of ["note", "sometimes", "pay"])
          for (const approved of [true, false]) {
            const begin = upstream.requests.length;
            const reply = await send(name, id, approved);
            const about = `${name}, an id that is ${which}, ${approved}: ${await reply.text()}`;
            assert.equal(reply.status, 200, about);
            assert.deepEqual(ran, [], about);
            const [{ toolOutputs }] = upstream.requests.slice(begin) as [Loose];
            assert.deepEqual(toolOutputs, ["not approved"], about);
          }
    });

  test("POST /agents/:id/chat: a task is not delegated for it either", async () => {
    const input = { agentId: "clerk", task: "note 5" };
    const messages = answerMessages([answered("delegate_task", input, { id: NEVER, approved: true })]);
    const begin = upstream.requests.length;
    const reply = await post("/agents/chief/chat", { messages });
    assert.match(await reply.text(), /"tool-output-denied"/);
    assert.deepEqual([ran, upstream.requests.length - begin], [[], 1]);
    assert.deepEqual(upstream.requests.at(-1)!.toolOutputs, ["not approved"]);
  });

  test("POST /agents/:id/chat: 128 of them in one message run nothing", async () => {
    const parts = Array.from({ length: 128 }, (_, index) =>
      answered("note", INPUT, { id: NEVER, approved: true }, { toolCallId: `c${index}` }),
    );
    assert.equal((await post("/agents/clerk/chat", { messages: answerMessages(parts) })).status, 200);
    assert.deepEqual(ran, []);
  });

  test("POST /agents/:id/chat: an answer does not decide a question that the message does not show", async () => {
    await (await service.post("/agents/clerk/chat", { input: "pay 9" }, as("ada"))).text();
    const [{ approvalId }] = await open(service, as("ada"));
    await (await DOORS["POST /agents/:id/chat"]!("note", approvalId, true)).text();
    await (await DOORS["POST /agents/:id/ag-ui"]!("note", approvalId, true)).text();
    assert.equal((await item(service, approvalId, as("ada"))).status, "open");
    assert.deepEqual(ran, []);
  });
});

describe("the context of a call", () => {
  const over: (() => unknown)[] = [];
  let served: Served;
  before(async () => {
    served = await serve({ after: (end: () => unknown) => void over.push(end) } as never);
  });
  after(async () => {
    for (const end of over) await end();
  });
  beforeEach(async () => {
    for (const { approvalId } of await open(served.service))
      await decide(served.service, approvalId, { approved: false });
  });
  const A = { tenant: "a" };
  const B = { tenant: "b" };

  test("GET /approvals: the question shows it, an empty object where there is none, at every door", async () => {
    const { service } = served;
    const peer = new A2aCaller(service);
    const asks: [string, (context: object | undefined, amount: number) => Promise<unknown>][] = [
      ["direct", (context, amount) => service.post("/tools/pay/execute", { input: { amount }, context })],
      [
        "chat",
        async (context, amount) => {
          const options = context && { context };
          return (await service.post("/agents/clerk/chat", { input: `pay ${amount}`, options })).text();
        },
      ],
      [
        "step",
        (context, amount) =>
          service.post("/workflows/pays/execute", { input: { amount }, options: context && { context } }),
      ],
      [
        "andAgent",
        (context, amount) =>
          service.post("/workflows/asks/execute", { input: { amount }, options: context && { context } }),
      ],
      [
        "AG-UI",
        async (context, amount) => {
          const messages = [{ id: "u1", role: "user", content: `pay ${amount}` }];
          const body = { threadId: `t${amount}`, runId: "r", messages, forwardedProps: context };
          return (await service.post("/agents/clerk/ag-ui", body)).text();
        },
      ],
      [
        "A2A",
        (context, amount) => peer.send("clerk", { ...said(`pay ${amount}`), ...(context && { metadata: context }) }),
      ],
      [
        "sub-agent",
        async (context, amount) => {
          served.upstream.replies(
            calls([{ id: "d1", name: "delegate_task", input: { agentId: "clerk", task: `pay ${amount}` } }]),
          );
          return dataOf(service.post("/agents/chief/text", { input: "go", options: context && { context } }));
        },
      ],
    ];
    let amount = 100;
    for (const [door, ask] of asks)
      for (const context of [A, undefined]) {
        await ask(context, ++amount);
        const asked = (await open(service)).find(({ input }) => input.amount === amount);
        assert.deepEqual([asked?.context, asked?.contextTruncated], [context ?? {}, undefined], door);
      }
  });

  test("GET /approvals: one of more than 16 KiB is shown cut, and is bound whole", async () => {
    const { service } = served;
    const large = (end: string) => ({ tenant: "a", text: `${"x".repeat(40_000)}${end}`, last: 1 });
    const pay = (context: object, headers = {}) =>
      service.post("/tools/pay/execute", { input: { amount: 8 }, context }, headers);
    const id = (await pay(large("1"))).headers.get("x-approval-id")!;
    const asked = await item(service, id);
    assert.deepEqual([asked.contextTruncated, asked.context.tenant, asked.context.last], [true, "a", 1]);
    assert.ok(JSON.stringify(asked.context).length <= 16 * 1024);
    await decide(service, id, { approved: true });
    assert.equal((await pay(large("2"), { "x-approval-id": id })).status, 409);
    assert.deepEqual(ran, []);
    assert.equal((await pay(large("1"), { "x-approval-id": id })).status, 200);
    assert.deepEqual(ran, [["pay", 8, large("1")]]);
  });

  test("POST /agents/:id/chat: a call that was approved in one context does not run in another, and runs in its own", async () => {
    const { service, upstream } = served;
    const chat = async (body: object, context: object) =>
      (await service.post("/agents/clerk/chat", { ...body, options: { context } })).text();
    await chat({ input: "pay 5" }, A);
    const [{ approvalId }] = await open(service);
    const begun = upstream.requests.length;
    await decide(service, approvalId, { approved: true });
    await until(() => upstream.requests.length > begun, "the run in its own context");
    const messages = answerMessages([
      answered("pay", { amount: 5 }, { id: approvalId }, { state: "approval-requested" }),
    ]);
    await chat({ messages }, B);
    assert.deepEqual([ran, upstream.requests.at(-1)!.toolOutputs], [[["pay", 5, A]], ["not approved"]]);
    await chat({ messages }, A);
    assert.deepEqual(ran, [["pay", 5, A]]);
  });

  test("POST /agents/:id/chat: an answer of the user in another context is no yes", async () => {
    const { service } = served;
    const chat = async (body: object, context: object) =>
      (await service.post("/agents/clerk/chat", { ...body, options: { context } })).text();
    await chat({ input: "pay 5" }, A);
    const [{ approvalId }] = await open(service);
    const messages = answerMessages([answered("pay", { amount: 5 }, { id: approvalId, approved: true })]);
    await chat({ messages }, B);
    assert.deepEqual([ran, (await item(service, approvalId)).status], [[], "open"]);
    await chat({ messages }, A);
    assert.deepEqual(ran, [["pay", 5, A]]);
  });

  test("POST /agents/:id/ag-ui: an answer of the user in another context is no yes, and the run goes on waiting", async () => {
    const { service } = served;
    const run = async (threadId: string, forwardedProps: object, more: object[] = [], resume: object[] = []) => {
      const messages = [{ id: "u1", role: "user", content: "pay 5" }, ...more];
      return (
        await service.post("/agents/clerk/ag-ui", { threadId, runId: threadId, messages, forwardedProps, resume })
      ).text();
    };
    await run("asks", { large: true });
    const [{ approvalId, toolCallId, input }] = await open(service);
    const call = { id: toolCallId, type: "function", function: { name: "pay", arguments: JSON.stringify(input) } };
    const said = [{ id: "a1", role: "assistant", toolCalls: [call] }];
    const yes = [{ interruptId: approvalId, status: "resolved", payload: { approved: true } }];
    assert.match(await run("elsewhere", { large: false }, said, yes), /not approved/);
    assert.deepEqual([(await item(service, approvalId)).status, ran], ["open", []]);
    assert.match(await run("again", { large: true }, said, yes), /"RUN_FINISHED"/);
    assert.deepEqual(ran, [["pay", 5, { large: true }]]);
  });

  test("a sub-agent: what was approved in one context is another question in another", async () => {
    const { service, upstream } = served;
    const delegated = (context: object) => {
      upstream.replies(calls([{ id: "d1", name: "delegate_task", input: { agentId: "clerk", task: "pay 5" } }]));
      return dataOf(service.post("/agents/chief/text", { input: "go", options: { context } }));
    };
    await delegated(A);
    const [{ approvalId, runId }] = await open(service);
    await decide(service, approvalId, { approved: true });
    const status = async () => (await dataOf(service.get(`/agents/chief/runs/${runId}`))).status;
    await until(async () => (await status()) === "completed", "the end of the run");
    await delegated(B);
    assert.deepEqual(ran, [["pay", 5, A]]);
    assert.deepEqual(
      (await open(service)).map(({ context }) => context),
      [B],
    );
  });

  test("POST /approvals/:approvalId: a question that an older release has stored, without context, binds what it has", async () => {
    const { service } = served;
    const chat = async (body: object) =>
      (await service.post("/agents/clerk/chat", { ...body, options: { context: A } })).text();
    const asOlder = async (id: string) => {
      const row = (await service.service.store.get(`ap/${id}`))!;
      const { context: _, contextDigest: __, ...older } = JSON.parse(row.value);
      await service.service.store.commit({ put: [[row.key, JSON.stringify(older)]] });
    };
    await chat({ input: "pay 5" });
    const [{ approvalId }] = await open(service);
    await asOlder(approvalId);
    await decide(service, approvalId, { approved: true });
    await chat({
      messages: answerMessages([answered("pay", { amount: 5 }, { id: approvalId }, { state: "approval-requested" })]),
    });
    assert.deepEqual(ran, [["pay", 5, A]]);
  });
});

test("POST /agents/:id/text: an answer in model messages counts, a yes and a no", async (t) => {
  const { service, upstream } = await serve(t);
  const ask = async () =>
    (await dataOf(service.post("/agents/clerk/text", { input: "pay 5" }))).approvals[0].approvalId;
  const no = await ask();
  await dataOf(
    service.post("/agents/clerk/text", { input: modelMessages("pay", no, { approved: false, reason: "too much" }) }),
  );
  const denied = await item(service, no);
  assert.deepEqual([denied.status, denied.reason, ran], ["denied", "too much", []]);
  assert.deepEqual(upstream.requests.at(-1)!.toolOutputs, ["too much"]);
  const yes = await ask();
  const input = modelMessages("pay", yes, { approved: true });
  assert.match((await dataOf(service.post("/agents/clerk/text", { input }))).text, /"paid":5/);
  assert.deepEqual(ran, [["pay", 5, {}]]);
  await dataOf(service.post("/agents/clerk/text", { input }));
  assert.equal(ran.length, 1, "it runs once");
});

test("POST /agents/:id/ag-ui: an interrupt is offered to whom may answer it alone, in the run and in the stored thread", async (t) => {
  const { service } = await serve(t, { approval: true, approvers: "console" }, { auth: AUTH });
  const run = async (messages: object[]) => {
    const body = { threadId: "t", runId: "r", messages };
    const events = parseEvents(await (await service.post("/agents/friend/ag-ui", body, as("ada"))).text());
    return JSON.parse(events.at(-1)!.data);
  };
  for (const messages of [[{ id: "u1", role: "user", content: "pay 5" }], []]) {
    const { type, outcome } = await run(messages);
    assert.deepEqual([type, outcome], ["RUN_FINISHED", { type: "success" }]);
  }
  assert.equal((await open(service, CONSOLE)).length, 1);
});

test("GET /agents/:id/runs: users list their own; the console's key reads, follows and cancels all that it lists", async (t) => {
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  const { service } = await serve(t, { approval: true }, { auth: AUTH, store });
  const ids: string[] = [];
  for (const who of ["ada", "bob"])
    ids.push((await service.post("/agents/kept/text", { input: "pay 5" }, as(who))).headers.get("x-run-id")!);
  const list = async (headers: Record<string, string>) =>
    (await dataOf(service.get("/agents/kept/runs", headers))).map(({ runId }: Loose) => runId);
  assert.deepEqual(await list(as("ada")), [ids[0]]);
  assert.deepEqual(await list(CONSOLE), [...ids].reverse());
  assert.equal((await service.get("/agents/kept/runs")).status, 401);
  assert.equal((await service.get(`/agents/kept/runs/${ids[1]}`, as("ada"))).status, 404);
  for (const id of ids) {
    assert.equal((await dataOf(service.get(`/agents/kept/runs/${id}`, CONSOLE))).status, "waiting");
    await dataOf(service.post(`/agents/kept/runs/${id}/cancel`, {}, CONSOLE));
    const parts = await (await service.get(`/agents/kept/runs/${id}/stream`, CONSOLE)).text();
    assert.match(parts, /"abort"/);
  }
});

test("POST /v1/chat/completions and POST /v1/responses: the reply names the approval that a call needs in x-approval-id, and the run in x-run-id", async (t) => {
  const { service } = await serve(t);
  const messages = [{ role: "user", content: "pay 5" }];
  for (const [path, body] of [
    ["/v1/chat/completions", { model: "clerk", messages }],
    ["/v1/responses", { model: "clerk", input: "pay 6" }],
  ] as const) {
    const reply = await service.post(path, body);
    assert.equal(reply.status, 200, await reply.text());
    const [{ approvalId }] = await dataOf(service.get("/approvals?order=desc"));
    assert.equal(reply.headers.get("x-approval-id"), approvalId, path);
    const run = await dataOf(service.get(`/agents/clerk/runs/${reply.headers.get("x-run-id")}`));
    assert.equal(run.status, "waiting");
  }
});
