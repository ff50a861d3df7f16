/** Contract, "Events": `/stream`, `/chat` and `/stream-object`, their framing, headers and events, one by one. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { validators } from "../../generated/validators.js";
import { EventReader } from "../support/event-reader.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { calls, cutsAfter, failsAfter, failure, says, stallsAfter, stallsBeforeText } from "../support/openai-upstream.ts";
import { errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const USAGE = { promptTokens: 10, completionTokens: 5, totalTokens: 15, cachedInputTokens: 0, reasoningTokens: 0 };
const TWICE = { promptTokens: 20, completionTokens: 10, totalTokens: 30, cachedInputTokens: 0, reasoningTokens: 0 };
const TOOLS = { sum: { use: "add" }, fail: { use: "fail" } };

const ENDPOINTS = [
  { endpoint: "stream", validate: validators.RawStreamPart, failed: (error: string) => ({ type: "error", error }), last: null },
  { endpoint: "chat", validate: validators.UIMessageChunk, failed: (errorText: string) => ({ type: "error", errorText }), last: "[DONE]" },
  { endpoint: "stream-object", validate: validators.ObjectStreamEvent, failed: (error: string) => ({ type: "error", error }), last: null },
];
const BODY = { input: "x", schema: { type: "object" } };

/** The events of a whole reply; ids of text and reasoning blocks are the provider's own. */
async function eventsOf(reply: Response): Promise<Loose[]> {
  const sent = parseEvents(await reply.text());
  return sent.filter(({ data }) => data !== "[DONE]").map(({ data }) => JSON.parse(data));
}

/** Deltas of one block joined, their ids checked to be those of the block and left out. */
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
  const serve = (t: Parameters<typeof serveUpstream>[0], agent: object = {}, limits: object = {}) =>
    serveUpstream(t, agent, { tools: TOOLS, server: { transport, limits } }, { plugins: [FIXTURES] });

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
        { type: "finish-step", usage: USAGE, finishReason: "stop" },
        { type: "finish", finishReason: "stop", totalUsage: USAGE },
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
        { type: "finish-step", usage: USAGE, finishReason: "tool-calls" },
        { type: "start-step" },
        { type: "reasoning-start" },
        { type: "reasoning-delta", delta: "Hm." },
        { type: "reasoning-end" },
        { type: "text-start" },
        { type: "text-delta", delta: "Three." },
        { type: "text-end" },
        { type: "finish-step", usage: USAGE, finishReason: "stop" },
        { type: "finish", finishReason: "stop", totalUsage: TWICE },
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
      assert.deepEqual(rest.filter(({ type }) => type !== "tool-input-delta"), [
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
      ]);
    });

    for (const { endpoint, validate, failed, last } of ENDPOINTS) {
      const path = `/agents/assistant/${endpoint}`;

      test(`POST /agents/:id/${endpoint}: the headers of a stream, ids from 1, data of one line, and what comes last`, async (t) => {
        const { service, upstream } = await serve(t);
        upstream.replies(says('{"text": "a\\nb"}', { chunks: 4, delay: 5 }));
        const reply = await service.post(path, BODY, { "x-request-id": "req-1" });
        const header = (name: string) => reply.headers.get(name);
        assert.equal(header("content-type"), "text/event-stream; charset=utf-8");
        assert.equal(header("cache-control"), "no-cache, no-transform");
        assert.equal(header("x-accel-buffering"), "no");
        assert.equal(header("x-request-id"), "req-1");
        assert.equal(header("x-vercel-ai-ui-message-stream"), endpoint === "chat" ? "v1" : null);
        const text = await reply.text();
        const blocks = text.split("\n\n").slice(0, -1).filter((block) => !block.startsWith(":"));
        assert.ok(text.endsWith("\n\n"));
        if (last !== null) assert.equal(blocks.pop(), `data: ${last}`);
        assert.ok(blocks.length > 1);
        blocks.forEach((block, index) => {
          const [id, data, ...more] = block.split("\n");
          assert.equal(id, `id: ${index + 1}`);
          assert.match(data!, /^data: \{/);
          assert.deepEqual(more, []);
          assert.ok(validate(JSON.parse(data!.slice(6))), data);
        });
        assert.doesNotMatch(blocks.join(), /\[DONE\]/);
      });

      test(`POST /agents/:id/${endpoint}: a model that refuses before the first byte is a plain reply with a status`, async (t) => {
        const { service, upstream } = await serve(t);
        upstream.replies({ ...failure(429, { message: "you owe us money" }), headDelay: 50 });
        const reply = await service.post(path, BODY);
        assert.match(reply.headers.get("content-type") ?? "", /^application\/json/);
        assert.equal(reply.headers.get("x-error-code"), "provider_failed");
        assert.deepEqual(await errorOf(reply), { status: 500, error: "model provider failed: rate limited" });
      });

      const BREAKS = {
        "breaks off": cutsAfter('{"te'),
        "sends an error": failsAfter('{"te', { message: "you owe us money", type: "server_error" }),
      };
      for (const [title, reply] of Object.entries(BREAKS)) {
        test(`POST /agents/:id/${endpoint}: a model that ${title} after the first byte is an in-band error event, and the end`, async (t) => {
          const { service, upstream } = await serve(t);
          upstream.replies(reply);
          const reader = new EventReader(service.url + path, BODY);
          await reader.end();
          assert.equal(reader.status, 200);
          const error = "model provider failed: unavailable";
          assert.deepEqual(reader.events.at(-1), failed(error));
          assert.equal(reader.events.filter(({ type }) => type === "error").length, 1);
          assert.ok(!reader.events.some(({ type }) => type === "finish" || type === "final"));
          assert.equal(upstream.requests.length, 1, "no second try after the first visible byte");
        });
      }

      test(`POST /agents/:id/${endpoint}: headers go out when the model has accepted the call, before it says anything`, async (t) => {
        const { service, upstream } = await serve(t);
        upstream.replies(stallsBeforeText());
        const reader = new EventReader(service.url + path, BODY);
        await reader.head();
        assert.equal(reader.status, 200);
        assert.doesNotMatch(reader.text, /delta|partial/);
        reader.leave();
      });
    }

    test("POST /agents/:id/stream: silence brings a comment line at every heartbeat, which is no event", async (t) => {
      const { service, upstream } = await serve(t, {}, { heartbeat: "250ms" });
      upstream.replies(stallsAfter("Well"));
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, BODY);
      const silence = () => reader.text.slice(reader.text.lastIndexOf("data: "));
      await reader.until(() => reader.text.includes("data: ") && (silence().match(/^: *$/gm) ?? []).length >= 2);
      assert.equal(reader.sent.at(-1)!.id, String(reader.sent.length), "comments take no id");
      reader.leave();
    });

    test("POST /agents/:id/chat: [DONE] is the last line after an error too", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(cutsAfter("Well"));
      const sent = parseEvents(await (await service.post("/agents/assistant/chat", BODY)).text());
      assert.deepEqual(sent.slice(-2).map(({ data }) => data), [
        '{"type":"error","errorText":"model provider failed: unavailable"}',
        "[DONE]",
      ]);
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
      assert.deepEqual(marked.map(({ type }) => type), types);
      assert.equal(marked[2].delta, "La la.");
      assert.equal(raw.filter(({ type }) => type === "finish").length, 1);
      const chat = await eventsOf(await service.post("/agents/assistant/chat", BODY));
      assert.deepEqual(chat.filter(({ type }) => type === "text-delta").map(({ delta }) => delta), ["Done."]);
      assert.doesNotMatch(JSON.stringify(chat), /subAgent/);
    });
  });
}

describe("waiting for the model", { concurrency: true }, () => {
  for (const { endpoint, failed } of ENDPOINTS) {
    test(`POST /agents/:id/${endpoint}: after 5 s of waiting the headers go out, and a refusal after that is in-band`, async (t) => {
      const { service, upstream } = await serveUpstream(t);
      upstream.replies({ ...failure(400), headDelay: 6_000 });
      const started = performance.now();
      const reader = new EventReader(`${service.url}/agents/assistant/${endpoint}`, BODY);
      await reader.head();
      assert.ok(performance.now() - started > 4_500, "not before");
      assert.equal(reader.status, 200);
      assert.ok(!upstream.requests[0]!.completed, "the model has not answered by then");
      await reader.end();
      assert.deepEqual(reader.events, [failed("model provider failed: refused the request")]);
    });
  }
});
