/** Tools that a person approves in a chat: the real `ai` clients 6 and 7 are asked and answer, and `POST /agents/:id/chat` goes on. */
import assert from "node:assert/strict";
import { beforeEach, describe, type TestContext, test } from "node:test";
import { PAY_PLUGIN, ran } from "../support/approvals.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { chatOf, load } from "./chat.ts";

const CHAT = "/agents/assistant/chat";
const PAYS = { id: "c1", name: "pay", input: { amount: 5 } };

async function serve(t: TestContext, { pay = {}, ...agent }: Record<string, unknown> = {}) {
  const tools = { pay: { use: "pay", approval: true, ...(pay as object) } };
  const served = await serveUpstream(
    t,
    { tools: ["pay"], ...agent },
    { tools, memory: { chats: {} } },
    { plugins: [pluginFolder(t, PAY_PLUGIN)] },
  );
  const messages = async (conversation: string): Promise<Loose[]> => {
    const path = `/api/memory/conversations/${conversation}/messages?agentId=assistant`;
    return (await dataOf(served.service.get(path))).messages;
  };
  const answer = (id: string, body: object) => dataOf(served.service.post(`/approvals/${id}`, body));
  return { ...served, messages, answer };
}

const toolParts = ({ parts }: Loose): Loose[] => parts.filter(({ type }: Loose) => type.startsWith("tool-"));

beforeEach(() => void ran.splice(0));

for (const name of ["ai", "ai-7"] as const) {
  describe(`the client ${name}`, async () => {
    const ai: Loose = await load(name);
    const sendAutomaticallyWhen = ai.lastAssistantMessageIsCompleteWithApprovalResponses;

    /** A chat that stands at the question. */
    async function asked(t: TestContext, agent: Record<string, unknown> = {}) {
      const served = await serve(t, agent);
      served.upstream.replies(calls([PAYS]), says("Done."));
      const posted: Loose[] = [];
      const chat: Loose = chatOf(ai, served.service.url + CHAT, posted, { sendAutomaticallyWhen });
      await chat.sendMessage({ text: "Pay" });
      assert.equal(chat.error, undefined);
      const [part] = toolParts(chat.messages[1]);
      assert.deepEqual([part.state, part.input], ["approval-requested", PAYS.input]);
      assert.deepEqual(ran, []);
      const respond = async (approved: boolean, reason?: string) => {
        const before = posted.length;
        await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason });
        await until(
          () => posted.length > before && chat.status !== "streaming" && chat.status !== "submitted",
          "the answer",
        );
        assert.equal(chat.error, undefined);
      };
      return { ...served, chat, posted, id: part.approval.id as string, respond };
    }

    for (const memory of [false, "chats"]) {
      test(`POST /agents/:id/chat ${memory ? "with" : "without"} memory: a yes runs the tool, and the same message goes on`, async (t) => {
        const { chat, posted, id, respond, upstream, messages } = await asked(t, { memory });
        assert.equal(upstream.requests.length, 1, "the model waits for the person");
        await respond(true, "go");
        assert.equal(chat.messages.length, 2);
        const [part] = toolParts(chat.messages[1]);
        assert.deepEqual([part.state, part.output.paid, part.approval.approved], ["output-available", 5, true]);
        assert.equal(chat.messages[1].parts.at(-1).text, "Done.");
        assert.deepEqual(ran, [5]);
        const { role, content } = upstream.requests[1]!.body.messages.at(-1);
        assert.deepEqual([role, JSON.parse(content).paid], ["tool", 5]);
        if (!memory) return;
        const stored = await messages(posted[0].id);
        assert.equal(stored.length, 2);
        const [kept] = toolParts(stored[1]!);
        assert.deepEqual(
          [kept.state, kept.output.paid, kept.approval],
          ["output-available", 5, { id, approved: true }],
        );
      });
    }

    test("POST /agents/:id/chat: a no is told to the model, and the tool does not run", async (t) => {
      const { chat, respond, upstream } = await asked(t, { memory: "chats" });
      await respond(false, "too much");
      const [part] = toolParts(chat.messages[1]);
      assert.equal(part.state, "output-denied");
      assert.match(upstream.requests[1]!.body.messages.at(-1).content, /too much|denied/);
      assert.deepEqual(ran, []);
    });

    test("POST /approvals/:approvalId: what was answered there is done with the next request of the client", async (t) => {
      const { chat, id, answer, upstream } = await asked(t);
      await answer(id, { approved: true, input: { amount: 4 } });
      await chat.sendMessage();
      assert.equal(chat.error, undefined);
      assert.equal(toolParts(chat.messages[1])[0].output.paid, 4);
      assert.deepEqual([ran, upstream.requests.length], [[4], 2]);
    });

    test("POST /agents/:id/chat: a request without an answer asks again, and the model is not called", async (t) => {
      const { chat, id, upstream } = await asked(t);
      await chat.sendMessage();
      assert.equal(chat.error, undefined);
      const [part] = toolParts(chat.messages[1]);
      assert.deepEqual([part.state, part.approval.id, upstream.requests.length], ["approval-requested", id, 1]);
      assert.deepEqual(ran, []);
    });

    test("POST /agents/:id/chat: a yes to another input, another call or an unknown approval runs nothing", async (t) => {
      const { service, posted, id, chat, upstream } = await asked(t);
      const [user, assistant] = structuredClone(chat.messages);
      const claims: Loose[] = [
        { input: { amount: 500 } },
        { toolCallId: "other" },
        { approval: { id: "0".repeat(32), approved: true } },
      ];
      for (const claim of claims) {
        upstream.replies(says("No."));
        const parts = assistant.parts.map((part: Loose) =>
          part.type === "tool-pay"
            ? { ...part, state: "approval-responded", approval: { id, approved: true }, ...claim }
            : part,
        );
        const body = { id: posted[0].id, messages: [user, { ...assistant, parts }] };
        assert.match(await (await service.post(CHAT, body)).text(), /tool-output-denied.*not approved/s);
      }
      assert.deepEqual(ran, []);
    });

    test("POST /agents/:id/chat: the same yes posted again does not run the call again", async (t) => {
      const { service, posted, respond, upstream } = await asked(t);
      await respond(true);
      upstream.replies(says("Again."));
      await (await service.post(CHAT, posted.at(-1))).text();
      assert.deepEqual(ran, [5]);
    });
  });
}

test("POST /agents/:id/text: the reply shows what waits for approval", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([PAYS]));
  const { finishReason, approvals, toolCalls, toolResults } = await dataOf(
    service.post("/agents/assistant/text", { input: "Pay" }),
  );
  const [{ approvalId, ...approval }] = approvals;
  assert.deepEqual(approval, { toolCallId: "c1", toolName: "pay", input: PAYS.input });
  assert.deepEqual([finishReason, toolCalls.length, toolResults], ["tool-calls", 1, []]);
  const [open] = await dataOf(service.get("/approvals?agentId=assistant"));
  assert.deepEqual([open.approvalId, open.toolCallId, open.agentId], [approvalId, "c1", "assistant"]);
});

test("POST /agents/:id/stream: the parts say what waits for approval, and how it was answered", async (t) => {
  const { service, upstream, answer } = await serve(t);
  upstream.replies(calls([PAYS]), says("Done."));
  const stream = async (input: unknown): Promise<Loose[]> => {
    const text = await (await service.post("/agents/assistant/stream", { input })).text();
    return [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!));
  };
  const first = await stream("Pay");
  const request = first.find(({ type }) => type === "tool-approval-request");
  assert.deepEqual([request.toolCallId, request.toolName, request.input], ["c1", "pay", PAYS.input]);
  assert.deepEqual([first.at(-1).type, first.at(-1).finishReason], ["finish", "tool-calls"]);
  await answer(request.approvalId, { approved: false, reason: "no" });
  const part = {
    type: "tool-pay",
    toolCallId: "c1",
    state: "approval-requested",
    input: PAYS.input,
    approval: { id: request.approvalId },
  };
  const next = await stream([
    { role: "user", parts: [{ type: "text", text: "Pay" }] },
    { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] },
  ]);
  assert.deepEqual(
    next.slice(0, 3).map(({ type, reason }) => [type, reason]),
    [
      ["start", undefined],
      ["tool-output-denied", "no"],
      ["start-step", undefined],
    ],
  );
  assert.deepEqual(ran, []);
});
