/** The openai-compatible provider against a real server that speaks the wire format. */
import assert from "node:assert/strict";
import { test } from "node:test";
import openaiCompatible from "../../../core/models/openai-compatible/openai-compatible.ts";
import { MODEL, openaiOver } from "../../support/openai-provider.ts";
import { calls, says } from "../../support/openai-upstream.ts";
import { ask, batchesOf, makeProvider, partOf, partsOf, settingsOf, textOf } from "../../support/providers.ts";

test("a call asks for a stream with usage and sends the key as bearer token", async (context) => {
  const { upstream, chain } = await openaiOver(context, { apiKey: "sk-secret", headers: { "x-team": "red" } });
  await partsOf(chain, ask("hi", { temperature: 0.5, maxOutputTokens: 7 }));
  const [request] = upstream.requests;
  assert.equal(request?.method, "POST");
  assert.equal(request?.path, "/v1/chat/completions");
  assert.equal(request?.headers.authorization, "Bearer sk-secret");
  assert.equal(request?.headers["x-team"], "red");
  assert.equal(request?.body.model, MODEL);
  assert.equal(request?.body.stream, true);
  assert.deepEqual(request?.body.stream_options, { include_usage: true });
  assert.equal(request?.body.temperature, 0.5);
  assert.equal(request?.body.max_tokens, 7);
});

test("without a key no Authorization is sent, and query parameters are added to the URL", async (context) => {
  const { upstream, chain } = await openaiOver(context, { apiKey: "", queryParams: { "api-version": "1" } });
  await partsOf(chain, ask("hi"));
  assert.equal(upstream.requests[0]?.headers.authorization, undefined);
  assert.equal(upstream.requests[0]?.path, "/v1/chat/completions?api-version=1");
});

test("usage counts cached and reasoning tokens as the provider reports them", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  upstream.replies(says("hi", { usage: { prompt: 100, completion: 50, cached: 64, reasoning: 30 } }));
  const { usage } = partOf(await partsOf(chain, ask("hi")), "finish");
  assert.equal(usage.inputTokens.total, 100);
  assert.equal(usage.inputTokens.cacheRead, 64);
  assert.equal(usage.outputTokens.total, 50);
  assert.equal(usage.outputTokens.reasoning, 30);
});

test("includeUsage: false does not ask for usage, for servers that refuse the option", async (context) => {
  const { upstream, chain } = await openaiOver(context, { includeUsage: false });
  const { usage } = partOf(await partsOf(chain, ask("hi")), "finish");
  assert.equal(upstream.requests[0]?.body.stream_options, undefined);
  assert.equal(usage.inputTokens.total, undefined);
});

test("reasoning comes as reasoning parts before the text", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  upstream.replies(says("42", { reasoning: "let me think" }));
  const parts = await partsOf(chain, ask("hi"));
  assert.equal(partOf(parts, "reasoning-delta").delta, "let me think");
  assert.ok(
    parts.findIndex(({ type }) => type === "reasoning-end") < parts.findIndex(({ type }) => type === "text-start"),
  );
});

test("a server that sends several answers in one stream, or in one body, gives the first alone", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  const event = (index: number, delta: object, finish: string | null = null) => ({
    raw: `data: ${JSON.stringify({ choices: [{ index, delta, finish_reason: finish }] })}\n\n`,
  });
  const texts = ["Yes", "No", ".", "!"];
  const deltas = texts.map((content, at) => event(at % 2, { content }));
  upstream.replies({
    steps: [...deltas, event(1, {}, "length"), event(0, {}, "stop"), event(1, { content: "?" }), { done: true }],
  });
  const parts = await partsOf(chain, ask("hi"));
  assert.equal(textOf(parts), "Yes.");
  assert.equal(partOf(parts, "finish").finishReason.unified, "stop");
  const choices = ["No", "Yes"].map((content, at) => ({ index: 1 - at, message: { content }, finish_reason: "stop" }));
  upstream.replies({ json: { choices } });
  assert.equal(textOf(await partsOf(chain, ask("hi"))), "Yes");
});

test("two tool calls in deltas come as two whole calls", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  const tools = [{ name: "add", input: { a: 1, b: 2 } }, { name: "now" }];
  upstream.replies(calls(tools, { chunks: 4 }));
  const tool = { type: "function" as const, inputSchema: { type: "object" as const } };
  const parts = await partsOf(
    chain,
    ask("hi", {
      tools: [
        { ...tool, name: "add" },
        { ...tool, name: "now" },
      ],
    }),
  );
  const made = parts.flatMap((part) => (part.type === "tool-call" ? [[part.toolName, JSON.parse(part.input)]] : []));
  assert.deepEqual(made, [
    ["add", { a: 1, b: 2 }],
    ["now", {}],
  ]);
  assert.equal(partOf(parts, "finish").finishReason.unified, "tool-calls");
  assert.deepEqual(
    upstream.requests[0]?.body.tools.map((sent: { function: { name: string } }) => sent.function.name),
    ["add", "now"],
  );
});

test("a JSON schema is sent as response_format, strict only where every property is required", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  const loose = {
    type: "object" as const,
    properties: { a: { type: "string" as const }, b: { type: "number" as const } },
    required: ["a"],
  };
  const strict = { ...loose, required: ["a", "b"], additionalProperties: false };
  for (const schema of [loose, strict]) await partsOf(chain, ask("hi", { responseFormat: { type: "json", schema } }));
  const formats = upstream.requests.map(({ body }) => body.response_format);
  assert.deepEqual(
    formats.map(({ type }) => type),
    ["json_schema", "json_schema"],
  );
  assert.deepEqual(
    formats.map(({ json_schema }) => json_schema.strict),
    [false, true],
  );
  assert.deepEqual(formats[0].json_schema.schema, loose);
});

test("providerOptions under the provider's key in the manifest reach the body", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  await partsOf(chain, ask("hi", { providerOptions: { demo: { reasoningEffort: "low", service_tier: "flex" } } }));
  assert.equal(upstream.requests[0]?.body.reasoning_effort, "low");
  assert.equal(upstream.requests[0]?.body.service_tier, "flex");
});

test("parts that arrive in one packet come in one batch", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  upstream.fallback(says("a long enough text", { chunks: 10 }));
  let batches = await batchesOf(await chain.stream(ask("hi")));
  // A machine may hand out what was sent at once in pieces, but not always.
  for (let tries = 0; batches.length >= 8 && tries < 20; tries++)
    batches = await batchesOf(await chain.stream(ask("hi")));
  assert.equal(batches.flat().filter(({ type }) => type === "text-delta").length, 10);
  assert.ok(batches.length < 8, `${batches.length} batches`);
});

test("connections are kept and used again, and never more than the configured number", async (context) => {
  const { upstream, chain } = await openaiOver(context, { connections: 2 });
  upstream.fallback(() => says("hi", { chunks: 2, delay: 20 }));
  await Promise.all(Array.from({ length: 8 }, () => partsOf(chain, ask("hi"))));
  assert.equal(upstream.requests.length, 8);
  assert.equal(await upstream.connections(), 2);
});

test("a text of many chunks with characters of several bytes arrives unharmed", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  const text = "Grüße 👋🏽 aus 東京 ".repeat(2000);
  upstream.replies({ steps: [{ text }, { finish: "stop" }, { done: true }] });
  assert.equal(textOf(await partsOf(chain, ask("hi"))), text);
});

test("an embedding model gives one vector for each text and the tokens used", async (context) => {
  const { provider } = await openaiOver(context);
  const result = await provider.embeddingModel!("embed-test", settingsOf()).doEmbed({ values: ["one", "twenty two"] });
  assert.deepEqual(result.embeddings, [
    [3, 3, 0],
    [10, 6, 3],
  ]);
  assert.equal(result.usage?.tokens, 3);
});

for (const [config, message] of [
  [{ baseURL: "api.openai.com/v1" }, /baseURL must begin with http:\/\/ or https:\/\//],
  [{}, /baseURL is required/],
  [{ baseURL: "http://127.0.0.1/v1", apikey: "x" }, /apikey is not a known key/],
] as const) {
  test(`the configuration ${JSON.stringify(config)} is refused: ${message.source}`, async (context) => {
    await assert.rejects(makeProvider(context, openaiCompatible, config), message);
  });
}
