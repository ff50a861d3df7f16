/** A question that its user leaves for a further message: what the conversation says of its call from then on, over every door. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, beforeEach, describe, type TestContext, test } from "node:test";
import { approvalManifest, PAY_PLUGIN, ran } from "../support/approvals.ts";
import { calls, type OpenAIUpstream, says, stallsBeforeHead, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents, startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const over: (() => unknown)[] = [];
let service: TestService;
let upstream: OpenAIUpstream;
let count = 0;

const agent = { model: "up/test-model", tools: ["pay"] };
const manifest = () => ({
  memory: { default: {} },
  providers: { up: { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0 } },
  agents: { clerk: agent, kept: { ...agent, durable: true } },
});

before(async () => {
  const test = { after: (end: () => unknown) => void over.push(end) } as unknown as TestContext;
  upstream = await startOpenAIUpstream();
  over.push(() => upstream.close());
  service = await startService(test, approvalManifest(manifest()), { plugins: [pluginFolder(test, PAY_PLUGIN)] });
});
after(async () => {
  for (const end of over.reverse()) await end();
});
beforeEach(() => {
  count++;
  ran.splice(0);
});

const memory = () => ({ conversationId: `c${count}` });
const pay = (...amounts: number[]) =>
  calls(amounts.map((amount) => ({ name: "pay", input: { amount }, id: `call_${count}_${amount}` })));
const text = (said: string, id?: string) => ({ id, role: "user", parts: [{ type: "text", text: said }] });
const stored = async (): Promise<Loose[]> =>
  (await dataOf(service.get(`/api/memory/conversations/c${count}/messages?userId=anonymous&agentId=clerk`))).messages;
const open = (): Promise<Loose[]> => dataOf(service.get("/approvals"));
const callsOf = (messages: Loose[]): Loose[] =>
  messages.flatMap(({ parts }) => parts).filter(({ type }: Loose) => type === "tool-pay");
const post = async (agent: string, path: string, body: object) => {
  const reply = await service.post(`/agents/${agent}/${path}`, body);
  const said = await reply.text();
  assert.equal(reply.status, 200, said);
  return said;
};
const thread = (agent: string, messages: object[] = []) =>
  post(agent, "ag-ui", { threadId: `c${count}`, runId: `r${count}_${messages.length}`, messages });
const asOptions = () => ({ options: { memory: memory() } });

/** Asks for payments. */
async function ask(agent: string, ...amounts: number[]): Promise<Loose[]> {
  upstream.replies(pay(...amounts));
  await post(agent, "text", { input: "pay", ...asOptions() });
  const asked = (await open()).filter(({ conversationId }) => conversationId === `c${count}`);
  assert.equal(asked.length, amounts.length);
  return asked;
}

/** The further message, by the door that it comes through. */
const DOORS: Readonly<Record<string, (agent: string) => Promise<unknown>>> = {
  "POST /agents/:id/text": (agent) => post(agent, "text", { input: "hello", ...asOptions() }),
  "POST /agents/:id/stream": (agent) => post(agent, "stream", { input: "hello", ...asOptions() }),
  "POST /agents/:id/chat of a page that has loaded the conversation": async (agent) =>
    post(agent, "chat", { input: [...(await stored()), text("hello", `h${count}`)], ...asOptions() }),
  "POST /agents/:id/chat with the last message alone": (agent) =>
    post(agent, "chat", { input: [text("hello", `h${count}`)], ...asOptions() }),
  "POST /agents/:id/ag-ui": (agent) => thread(agent, [{ id: `h${count}`, role: "user", content: "hello" }]),
  "POST /agents/:id/object": (agent) => {
    upstream.replies(says("{}"));
    return post(agent, "object", { input: "hello", schema: { type: "object" }, ...asOptions() });
  },
};

for (const agent of ["clerk", "kept"])
  for (const [door, say] of Object.entries(DOORS))
    describe(`${door} of ${agent === "kept" ? "a durable agent" : "an agent that is not durable"}, beside a question`, () => {
      test("the stored call says that it was superseded, and so does every door that reads it", async () => {
        const [asked] = await ask(agent, 5);
        await say(agent);
        const messages = await stored();
        const [call, ...others] = callsOf(messages);
        assert.deepEqual(
          [call.state, call.approval, others],
          ["output-denied", { id: asked.approvalId, approved: false, reason: "superseded" }, []],
        );
        assert.deepEqual(
          messages.map(({ role }) => role),
          ["user", "assistant", "user", "assistant"],
        );
        const { messages: told } = upstream.requests.at(-1)!.body;
        assert.doesNotMatch(JSON.stringify(told), /waits for a person/);
        assert.match(told.find(({ role }: Loose) => role === "tool").content, /superseded/);
        const events = parseEvents(await thread("clerk")).map(({ data }) => JSON.parse(data));
        const { messages: shown } = events.find(({ type }) => type === "MESSAGES_SNAPSHOT");
        assert.match(shown.find(({ role }: Loose) => role === "tool").content, /superseded/);
      });

      test("a late yes is refused, in the inbox and by a chat, and pays nothing", async () => {
        const [{ approvalId, runId, toolCallId, input }] = await ask(agent, 5);
        const before = await stored();
        await say(agent);
        const late = await errorOf(service.post(`/approvals/${approvalId}`, { approved: true }));
        assert.deepEqual(late, { status: 409, error: "the approval is already withdrawn: superseded" });
        await until(async () => {
          const run = await dataOf(service.get(`/agents/${agent}/runs/${runId}`));
          return run.status === "cancelled";
        }, "the end of the run that asked");
        const approval = { id: approvalId, approved: true };
        const part = { type: "tool-pay", toolCallId, state: "approval-responded", input, approval };
        const said = await post(agent, "chat", {
          input: [before[0], { ...before[1], parts: [part] }],
          ...asOptions(),
        });
        assert.match(said, /superseded/);
        const answered = callsOf(await stored());
        assert.deepEqual(
          answered.map(({ state }) => state),
          ["output-denied"],
        );
        assert.deepEqual(ran, []);
      });
    });

test("POST /agents/:id/text beside two questions of which one was approved: that one has paid, and the other is superseded", async () => {
  const asked = await ask("clerk", 1, 2);
  const first = asked.find(({ input }) => input.amount === 1);
  const said = async () => callsOf(await stored()).map(({ input, state }) => [input.amount, state]);
  await dataOf(service.post(`/approvals/${first.approvalId}`, { approved: true }));
  await until(async () => (await said()).some(([, state]) => state === "output-available"), "the first payment");
  await post("clerk", "text", { input: "hello", ...asOptions() });
  assert.deepEqual(await said(), [
    [1, "output-available"],
    [2, "output-denied"],
  ]);
  assert.deepEqual(ran, [1]);
});

test("POST /agents/:id/text after POST /agents/:id/runs/:runId/cancel: the stored call says that it was cancelled", async () => {
  const [{ runId, approvalId }] = await ask("kept", 5);
  await dataOf(service.post(`/agents/kept/runs/${runId}/cancel`, {}));
  await until(async () => (await open()).every((each) => each.approvalId !== approvalId), "the withdrawal");
  await post("kept", "text", { input: "hello", ...asOptions() });
  const [call] = callsOf(await stored());
  assert.deepEqual([call.state, call.approval?.reason], ["output-denied", "cancelled"]);
});

test("POST /agents/:id/text with a memory that is only read: the question is withdrawn, and what is stored stays", async () => {
  const [asked] = await ask("clerk", 5);
  const before = await stored();
  const options = { memory: { ...memory(), options: { readOnly: true } } };
  await post("clerk", "text", { input: "hello", options });
  assert.deepEqual(await stored(), before);
  const late = await errorOf(service.post(`/approvals/${asked.approvalId}`, { approved: true }));
  assert.equal(late.status, 409);
});

test("POST /agents/:id/text of a durable agent whose process is gone after the question was superseded: the next process stores that", async (t) => {
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  const plugins = [pluginFolder(t, PAY_PLUGIN)];
  const start = async () => {
    service = await startService(t, approvalManifest({ ...manifest(), store }), { plugins });
  };
  const first = service;
  await start();
  await ask("kept", 5);
  const runId = `run${count}`;
  upstream.replies(stallsBeforeHead());
  const said = upstream.requests.length;
  const options = { background: true, runId, memory: memory() };
  assert.equal((await service.post("/agents/kept/text", { input: "hello", options })).status, 202);
  await until(() => upstream.requests.length > said, "the model");
  await service.kill();
  await start();
  await until(async () => (await dataOf(service.get(`/agents/kept/runs/${runId}`))).status === "completed", "the end");
  const [call] = callsOf(await stored());
  assert.deepEqual([call.state, call.approval.reason], ["output-denied", "superseded"]);
  service = first;
});
