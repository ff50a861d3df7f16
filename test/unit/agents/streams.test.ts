import assert from "node:assert/strict";
import { test } from "node:test";
import { agentsOf, assistant, caller, Events, eventsOf, historyOf, usage } from "../../support/agents.ts";
import { until } from "../../support/probe.ts";

const RICH = [
  { type: "stream-start", warnings: [] },
  { type: "response-metadata", id: "x", modelId: "m" },
  { type: "reasoning-start", id: "1", providerMetadata: { p: { a: 1 } } },
  { type: "reasoning-delta", id: "1", delta: "hm\n", providerMetadata: { p: { signature: "s" } } },
  { type: "reasoning-end", id: "1" },
  { type: "text-start", id: "1" },
  { type: "text-delta", id: "1", delta: 'say "hi"', providerMetadata: { p: {} } },
  { type: "text-end", id: "1" },
  { type: "source", sourceType: "url", id: "s1", url: "https://example.com", title: "T", providerMetadata: { p: {} } },
  { type: "source", sourceType: "document", id: "s2", mediaType: "application/pdf", title: "D", filename: "d.pdf" },
  { type: "file", mediaType: "image/png", data: new Uint8Array([1, 2, 3]) },
  { type: "tool-input-start", id: "c", toolName: "search", providerExecuted: true },
  { type: "tool-input-delta", id: "c", delta: "{}" },
  { type: "tool-input-end", id: "c" },
  { type: "tool-call", toolCallId: "c", toolName: "search", input: '{"q":1}', providerExecuted: true },
  { type: "tool-result", toolCallId: "c", toolName: "search", result: "early", preliminary: true },
  { type: "tool-result", toolCallId: "c", toolName: "search", result: { hits: 1 }, providerMetadata: { p: {} } },
  { type: "tool-call", toolCallId: "d", toolName: "search", input: "{}", providerExecuted: true },
  { type: "tool-result", toolCallId: "d", toolName: "search", result: { reason: "down" }, isError: true },
  { type: "raw", rawValue: { any: "thing" } },
  {
    type: "finish",
    finishReason: { unified: "stop", raw: "end_turn" },
    usage: { inputTokens: { total: 3 }, outputTokens: { total: undefined } },
  },
];

const rich = (t: Parameters<typeof agentsOf>[0]) =>
  agentsOf(t, {
    providers: {
      p: { use: "parts", steps: { m: [RICH.map((part) => ("data" in part ? { ...part, data: "AQID" } : part))] } },
    },
    agents: { assistant: { model: "p/m" } },
  });

test("the parts of a run carry reasoning, sources, files and the provider's own tools, each with what the provider wants back", async (t) => {
  const agent = (await rich(t)).get("assistant")!;
  const events = await eventsOf(agent.stream({ input: "go" }, caller()));
  const call = { toolCallId: "c", toolName: "search", input: { q: 1 }, providerExecuted: true };
  assert.deepEqual(events.list.slice(2, -2), [
    { type: "reasoning-start", id: "1", providerMetadata: { p: { a: 1 } } },
    { type: "reasoning-delta", id: "1", delta: "hm\n" },
    { type: "reasoning-end", id: "1", providerMetadata: { p: { a: 1, signature: "s" } } },
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: 'say "hi"' },
    { type: "text-end", id: "1", providerMetadata: { p: {} } },
    {
      type: "source",
      sourceType: "url",
      id: "s1",
      url: "https://example.com",
      title: "T",
      providerMetadata: { p: {} },
    },
    { type: "source", sourceType: "document", id: "s2", mediaType: "application/pdf", title: "D", filename: "d.pdf" },
    { type: "file", file: { base64: "AQID", mediaType: "image/png" } },
    { type: "tool-input-start", id: "c", toolName: "search", providerExecuted: true },
    { type: "tool-input-delta", id: "c", delta: "{}" },
    { type: "tool-input-end", id: "c" },
    { type: "tool-call", ...call },
    { type: "tool-result", ...call, output: { hits: 1 }, providerMetadata: { p: {} } },
    { type: "tool-call", toolCallId: "d", toolName: "search", input: {}, providerExecuted: true },
    {
      type: "tool-error",
      toolCallId: "d",
      toolName: "search",
      input: {},
      providerExecuted: true,
      error: '{"reason":"down"}',
    },
    { type: "raw", rawValue: { any: "thing" } },
  ]);
  assert.deepEqual(events.of("finish")[0]!.totalUsage, { ...usage(3, 0), inputTokens: 3, outputTokens: 0 });
});

test("the parts of a run end with an error after what was said when the model breaks off, and the history has both", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ text: "so far", error: "unavailable" }] });
  const events = new Events();
  await assert.rejects((await agent.stream({ input: "go" }, caller()))(events), /model provider failed/);
  assert.equal(events.of("text-delta")[0]!.delta, "so far");
  assert.equal(events.of("finish").length, 0);
  const [entry] = (await historyOf(agent, 0, 1)).entries;
  assert.equal(entry!.status, "error");
  assert.equal(entry!.output, "so far");
});

test("the parts of a run tell a reader that is still there of an abort, as the last of them", {
  timeout: 60_000,
}, async (t) => {
  const agent = await assistant(t, {}, { provider: { firstDelay: "60s" } });
  const call = caller();
  const events = new Events();
  const run = (await agent.stream({ input: "hello" }, call))(events);
  await until(() => events.list.length === 2, "the beginning");
  call.leave();
  await run;
  assert.deepEqual(events.types(), ["start", "start-step", "abort"]);
});

test("requests that make no sense fail before a stream begins", async (t) => {
  const agent = await assistant(t);
  assert.throws(() => agent.stream({ input: [] }, caller()), /input must not be empty/);
  assert.throws(() => agent.chat({ messages: [] }, caller()), /messages must not be empty/);
  assert.throws(() => agent.chat({}, caller()), /input is required/);
  assert.throws(
    () => agent.streamObject({ input: "x", schema: {} }, caller()),
    /schema must be a JSON Schema with a type/,
  );
});
