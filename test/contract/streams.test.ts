/** Contract, "Events": what `/stream` and `/chat` send, event by event. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { calls, SHOWN_USAGE, says } from "../support/openai-upstream.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const MODEL = "up/test-model";
const TWICE = {
  promptTokens: 20,
  completionTokens: 10,
  totalTokens: 30,
  cachedInputTokens: 0,
  reasoningTokens: 0,
  inputTokens: 20,
  outputTokens: 10,
};
const TOOLS = { sum: { use: "add" }, fail: { use: "fail" } };
const BODY = { input: "x" };

/** The events of a whole reply. */
async function eventsOf(reply: Response): Promise<Loose[]> {
  const sent = parseEvents(await reply.text());
  return sent.filter(({ data }) => data !== "[DONE]").map(({ data }) => JSON.parse(data));
}

/** Deltas of one block joined; which block they are of is left out. */
function joined(events: Loose[]): Loose[] {
  const list: Loose[] = [];
  for (const { id, ...event } of events) {
    const last = list.at(-1);
    if (event.type === last?.type && typeof event.delta === "string") last.delta += event.delta;
    else list.push(event);
  }
  return list;
}

for (const transport of TRANSPORTS) {
  const serve = (t: Parameters<typeof serveUpstream>[0], agent: object = {}) =>
    serveUpstream(t, agent, { tools: TOOLS, server: { transport } }, { plugins: [FIXTURES] });

  describe(`over ${transport}`, () => {
    test("POST /agents/:id/stream: start, start-step, text, finish-step with usage, finish with totalUsage", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(says("Hello there", { chunks: 3, delay: 5 }));
      const events = await eventsOf(await service.post("/agents/assistant/stream", BODY));
      assert.equal(events.filter(({ type }) => type === "text-delta").length, 3);
      assert.equal(new Set(events.filter(({ type }) => type.startsWith("text-")).map(({ id }) => id)).size, 1);
      assert.deepEqual(joined(events), [
        { type: "start" },
        { type: "start-step" },
        { type: "text-start" },
        { type: "text-delta", delta: "Hello there" },
        { type: "text-end" },
        { type: "finish-step", usage: SHOWN_USAGE, model: MODEL, finishReason: "stop" },
        { type: "finish", finishReason: "stop", totalUsage: SHOWN_USAGE, model: MODEL },
      ]);
    });

    test("POST /agents/:id/stream: reasoning, tool calls, results and errors, step by step", async (t) => {
      const { service, upstream } = await serve(t, { tools: ["sum", "fail"] });
      const both = [
        { id: "c1", name: "sum", input: { a: 1, b: 2 } },
        { id: "c2", name: "fail", input: { how: "now" } },
      ];
      upstream.replies(calls(both), says("Three.", { reasoning: "Hm." }));
      const events = await eventsOf(await service.post("/agents/assistant/stream", BODY));
      const without = joined(events).filter(({ type }) => !type.startsWith("tool-input-"));
      const call = (toolCallId: string, toolName: string, input: object) => ({ toolCallId, toolName, input });
      assert.deepEqual(without, [
        { type: "start" },
        { type: "start-step" },
        { type: "tool-call", ...call("c1", "sum", { a: 1, b: 2 }) },
        { type: "tool-call", ...call("c2", "fail", { how: "now" }) },
        { type: "tool-result", ...call("c1", "sum", { a: 1, b: 2 }), output: { sum: 3 } },
        { type: "tool-error", ...call("c2", "fail", { how: "now" }), error: "the shop is closed" },
        { type: "finish-step", usage: SHOWN_USAGE, model: MODEL, finishReason: "tool-calls" },
        { type: "start-step" },
        { type: "reasoning-start" },
        { type: "reasoning-delta", delta: "Hm." },
        { type: "reasoning-end" },
        { type: "text-start" },
        { type: "text-delta", delta: "Three." },
        { type: "text-end" },
        { type: "finish-step", usage: SHOWN_USAGE, model: MODEL, finishReason: "stop" },
        { type: "finish", finishReason: "stop", totalUsage: TWICE, model: MODEL },
      ]);
      const inputs = events.filter(({ type, id }) => type.startsWith("tool-input-") && id === "c1");
      assert.deepEqual(inputs[0], { type: "tool-input-start", id: "c1", toolName: "sum" });
      assert.equal(inputs.map(({ delta = "" }) => delta).join(""), '{"a":1,"b":2}');
      assert.deepEqual(inputs.at(-1), { type: "tool-input-end", id: "c1" });
    });

    test("POST /agents/:id/stream: options.output is in finish.output, and /chat adds nothing for it", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.fallback(says('{"n":1}'));
      const body = { input: "x", options: { output: { type: "object", schema: { type: "object" } } } };
      const raw = await eventsOf(await service.post("/agents/assistant/stream", body));
      assert.deepEqual(raw.at(-1).output, { n: 1 });
      const chat = await eventsOf(await service.post("/agents/assistant/chat", body));
      assert.deepEqual(chat.at(-1), { type: "finish", finishReason: "stop" });
    });

    test("POST /agents/:id/chat: the chunks of the UI message stream protocol in order", async (t) => {
      const { service, upstream } = await serve(t, { tools: ["sum", "fail"] });
      const both = [
        { id: "c1", name: "sum", input: { a: 1, b: 2 } },
        { id: "c2", name: "fail", input: {} },
      ];
      upstream.replies(calls(both), says("Three.", { chunks: 2, reasoning: "Hm." }));
      const events = await eventsOf(await service.post("/agents/assistant/chat", BODY));
      const [{ messageId, ...start }, ...rest] = joined(events);
      assert.match(messageId, /^\S+$/);
      assert.deepEqual(start, { type: "start" });
      assert.deepEqual(
        rest.filter(({ type }) => type !== "tool-input-delta"),
        [
          { type: "start-step" },
          { type: "tool-input-start", toolCallId: "c1", toolName: "sum" },
          { type: "tool-input-start", toolCallId: "c2", toolName: "fail" },
          { type: "tool-input-available", toolCallId: "c1", toolName: "sum", input: { a: 1, b: 2 } },
          { type: "tool-input-available", toolCallId: "c2", toolName: "fail", input: {} },
          { type: "tool-output-available", toolCallId: "c1", output: { sum: 3 } },
          { type: "tool-output-error", toolCallId: "c2", errorText: "the shop is closed" },
          { type: "finish-step" },
          { type: "start-step" },
          { type: "reasoning-start" },
          { type: "reasoning-delta", delta: "Hm." },
          { type: "reasoning-end" },
          { type: "text-start" },
          { type: "text-delta", delta: "Three." },
          { type: "text-end" },
          { type: "finish-step" },
          { type: "finish", finishReason: "stop" },
        ],
      );
    });

    test("POST /agents/:id/stream: parts of a sub-agent say whose they are, and /chat leaves them out", async (t) => {
      const agent = { subAgents: ["writer"] };
      const agents = { writer: { name: "Writer", model: "up/small", memory: false } };
      const { service, upstream } = await serveUpstream(t, agent, { agents, server: { transport } });
      const delegate = calls([{ id: "d1", name: "delegate_task", input: { agentId: "writer", task: "Sing" } }]);
      upstream.replies(delegate, says("La la."), says("Done."), delegate, says("La la."), says("Done."));
      const raw = await eventsOf(await service.post("/agents/assistant/stream", BODY));
      const marked = raw.filter(({ subAgentId }) => subAgentId !== undefined);
      assert.ok(marked.every(({ subAgentId, subAgentName }) => subAgentId === "writer" && subAgentName === "Writer"));
      const types = ["start-step", "text-start", "text-delta", "text-end", "finish-step"];
      assert.deepEqual(
        marked.map(({ type }) => type),
        types,
      );
      assert.equal(marked[2].delta, "La la.");
      assert.equal(raw.filter(({ type }) => type === "finish").length, 1);
      const chat = await eventsOf(await service.post("/agents/assistant/chat", BODY));
      assert.deepEqual(
        chat.filter(({ type }) => type === "text-delta").map(({ delta }) => delta),
        ["Done."],
      );
      assert.doesNotMatch(JSON.stringify(chat), /subAgent/);
    });
  });
}
