/** The openai-compatible provider against a real server that speaks the wire format. */
import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import openaiCompatible from "../../../plugins/providers/openai-compatible.ts";
import {
  calls,
  cutsAfter,
  failsAfter,
  failure,
  type OpenAIUpstream,
  says,
  stallsAfter,
  stallsBeforeHead,
  stallsBeforeText,
  startOpenAIUpstream,
} from "../../support/openai-upstream.ts";
import { ask, batchesOf, chainOf, makeProvider, partOf, partsOf, soon, textOf } from "../../support/providers.ts";

const MODEL = "gpt-test";

async function upstreamFor(test: TestContext): Promise<OpenAIUpstream> {
  const upstream = await startOpenAIUpstream();
  test.after(() => upstream.close());
  return upstream;
}

async function setUp(test: TestContext, config: object = {}) {
  const upstream = await upstreamFor(test);
  const provider = await makeProvider(test, openaiCompatible, { baseURL: upstream.baseURL, ...config });
  return { upstream, provider, chain: chainOf(provider, MODEL, 0) };
}

const failed = (reason: string) => ({ kind: "provider_failed", message: `model provider failed: ${reason}` });

/** The cause at the bottom: what the log gets to see. */
function rootOf(error: unknown): Error & { code?: string; limit?: string } {
  let current = error as Error;
  while (current.cause instanceof Error) current = current.cause;
  return current;
}

async function thrownBy(run: Promise<unknown>): Promise<Error> {
  try {
    await soon(run, "the failure");
  } catch (error) {
    return error as Error;
  }
  throw new Error("nothing was thrown");
}

test("a call asks for a stream with usage and sends the key as bearer token", async (context) => {
  const { upstream, chain } = await setUp(context, { apiKey: "sk-secret", headers: { "x-team": "red" } });
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
  const { upstream, chain } = await setUp(context, { apiKey: "", queryParams: { "api-version": "1" } });
  await partsOf(chain, ask("hi"));
  assert.equal(upstream.requests[0]?.headers.authorization, undefined);
  assert.equal(upstream.requests[0]?.path, "/v1/chat/completions?api-version=1");
});

test("usage counts cached and reasoning tokens as the provider reports them", async (context) => {
  const { upstream, chain } = await setUp(context);
  upstream.replies(says("hi", { usage: { prompt: 100, completion: 50, cached: 64, reasoning: 30 } }));
  const { usage } = partOf(await partsOf(chain, ask("hi")), "finish");
  assert.equal(usage.inputTokens.total, 100);
  assert.equal(usage.inputTokens.cacheRead, 64);
  assert.equal(usage.outputTokens.total, 50);
  assert.equal(usage.outputTokens.reasoning, 30);
});

test("includeUsage: false does not ask for usage, for servers that refuse the option", async (context) => {
  const { upstream, chain } = await setUp(context, { includeUsage: false });
  const { usage } = partOf(await partsOf(chain, ask("hi")), "finish");
  assert.equal(upstream.requests[0]?.body.stream_options, undefined);
  assert.equal(usage.inputTokens.total, undefined);
});

test("reasoning comes as reasoning parts before the text", async (context) => {
  const { upstream, chain } = await setUp(context);
  upstream.replies(says("42", { reasoning: "let me think" }));
  const parts = await partsOf(chain, ask("hi"));
  assert.equal(partOf(parts, "reasoning-delta").delta, "let me think");
  assert.ok(
    parts.findIndex(({ type }) => type === "reasoning-end") < parts.findIndex(({ type }) => type === "text-start"),
  );
});

test("two tool calls in deltas come as two whole calls", async (context) => {
  const { upstream, chain } = await setUp(context);
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
  const { upstream, chain } = await setUp(context);
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
  const { upstream, chain } = await setUp(context);
  await partsOf(chain, ask("hi", { providerOptions: { demo: { reasoningEffort: "low", service_tier: "flex" } } }));
  assert.equal(upstream.requests[0]?.body.reasoning_effort, "low");
  assert.equal(upstream.requests[0]?.body.service_tier, "flex");
});

test("parts that arrive in one packet come in one batch", async (context) => {
  const { upstream, chain } = await setUp(context);
  upstream.replies(says("a long enough text", { chunks: 10 }));
  const batches = await batchesOf(await chain.stream(ask("hi")));
  assert.equal(batches.flat().filter(({ type }) => type === "text-delta").length, 10);
  assert.ok(batches.length < 8, `${batches.length} batches`);
});

test("connections are kept and used again, and never more than the configured number", async (context) => {
  const { upstream, chain } = await setUp(context, { connections: 2 });
  upstream.fallback(() => says("hi", { chunks: 2, delay: 20 }));
  await Promise.all(Array.from({ length: 8 }, () => partsOf(chain, ask("hi"))));
  assert.equal(upstream.requests.length, 8);
  assert.equal(await upstream.connections(), 2);
});

test("a text of many chunks with characters of several bytes arrives unharmed", async (context) => {
  const { upstream, chain } = await setUp(context);
  const text = "Grüße 👋🏽 aus 東京 ".repeat(2000);
  upstream.replies({ steps: [{ text }, { finish: "stop" }, { done: true }] });
  assert.equal(textOf(await partsOf(chain, ask("hi"))), text);
});

const LIMITS = { connect: "5s", firstByte: "5s", idle: "5s", total: "20s" };

const STALLS: [string, () => ReturnType<typeof says>, Partial<typeof LIMITS>, string][] = [
  ["firstByte ends a call whose head does not come", stallsBeforeHead, { firstByte: "80ms" }, "firstByte"],
  [
    "firstByte ends a call whose head comes and whose body does not",
    stallsBeforeText,
    { firstByte: "80ms" },
    "firstByte",
  ],
  ["idle ends a call whose body stops", () => stallsAfter("hello"), { idle: "80ms" }, "idle"],
  [
    "total ends a call that trickles on",
    () => says("a b c d e f g h i j k l", { chunks: 12, delay: 40 }),
    { total: "200ms" },
    "total",
  ],
];

for (const [title, reply, timeouts, limit] of STALLS) {
  test(`timeouts.${title}`, async (context) => {
    const { upstream, chain } = await setUp(context, { timeouts: { ...LIMITS, ...timeouts } });
    upstream.replies(reply());
    const start = performance.now();
    const error = await thrownBy(partsOf(chain, ask("hi")));
    assert.ok(performance.now() - start < 3000);
    assert.deepEqual({ kind: "provider_failed", message: error.message }, failed("timed out"));
    assert.equal(rootOf(error).limit, limit);
    await soon(upstream.requests[0]!.aborted, "the close of the upstream socket");
  });
}

test("timeouts.connect ends a call whose TLS handshake is not answered", async (context) => {
  const sockets = new Set<Socket>();
  const deaf = createServer((socket) => void sockets.add(socket.on("error", () => undefined)));
  await new Promise<void>((resolve) => deaf.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    for (const socket of sockets) socket.destroy();
    deaf.close();
  });
  const { port } = deaf.address() as { port: number };
  const config = { baseURL: `https://127.0.0.1:${port}/v1`, timeouts: { ...LIMITS, connect: "100ms" } };
  const provider = await makeProvider(context, openaiCompatible, config);
  const error = await thrownBy(partsOf(chainOf(provider, MODEL, 0), ask("hi")));
  assert.equal(error.message, "model provider failed: timed out");
});

test("timeouts.connect ends a call that waits for a free connection", async (context) => {
  const { upstream, chain } = await setUp(context, { connections: 1, timeouts: { ...LIMITS, connect: "100ms" } });
  upstream.replies(stallsAfter("busy"));
  const first = await chain.stream(ask("first"));
  assert.notEqual(await first.next(), null);
  const error = await thrownBy(partsOf(chain, ask("second")));
  assert.equal(rootOf(error).limit, "connect");
  assert.equal(upstream.requests.length, 1);
  first.cancel();
});

test("a slow reader does not trip the idle limit, and holds the upstream back", async (context) => {
  const { upstream, chain } = await setUp(context, { timeouts: { ...LIMITS, idle: "150ms" } });
  const piece = "x".repeat(8192);
  const steps = Array.from({ length: 4000 }, () => ({ text: piece }));
  upstream.replies({ steps: [...steps, { finish: "stop" }, { done: true }] });
  const stream = await chain.stream(ask("hi"));
  let length = textOf((await stream.next()) ?? []).length;
  await new Promise((resolve) => setTimeout(resolve, 400));
  assert.equal(upstream.requests[0]?.completed, false);
  for (const batch of await batchesOf(stream)) length += textOf(batch).length;
  assert.equal(length, 4000 * 8192);
});

const ABORTS: [string, () => ReturnType<typeof says>, boolean][] = [
  ["before the head", stallsBeforeHead, false],
  ["before the first token", stallsBeforeText, true],
  ["in the middle of the stream", () => stallsAfter("hello"), true],
];

for (const [title, reply, accepted] of ABORTS) {
  test(`an abort ${title} closes the upstream socket within a second`, async (context) => {
    const { upstream, chain } = await setUp(context);
    upstream.replies(reply());
    const controller = new AbortController();
    const reason = new Error("client left");
    const opening = chain.stream(ask("hi", { abortSignal: controller.signal }));
    const request = await upstream.request(0);
    const ended: Promise<unknown> = accepted ? opening.then(batchesOf) : opening;
    if (accepted) await opening;
    setTimeout(() => controller.abort(reason), 30);
    await assert.rejects(soon(ended, "the end"), (thrown) => thrown === reason);
    await soon(request.aborted, "the close of the upstream socket", 1000);
  });
}

test("cancel in the middle of the stream closes the upstream socket within a second, without a signal", async (context) => {
  const { upstream, chain } = await setUp(context);
  upstream.replies(stallsAfter("hello"));
  const stream = await chain.stream(ask("hi"));
  assert.notEqual(await stream.next(), null);
  stream.cancel();
  await soon(upstream.requests[0]!.aborted, "the close of the upstream socket", 1000);
});

test("a call whose signal is aborted already never reaches the upstream", async (context) => {
  const { upstream, chain } = await setUp(context);
  await assert.rejects(chain.stream(ask("hi", { abortSignal: AbortSignal.abort(new Error("gone")) })), /gone/);
  assert.equal(upstream.requests.length, 0);
});

test("listeners on the caller's signal are gone when the answer is complete", async (context) => {
  const { chain } = await setUp(context);
  const { signal } = new AbortController();
  let listening = 0;
  const counted = new Proxy(signal, {
    get(target, key) {
      if (key === "addEventListener") listening++;
      if (key === "removeEventListener") listening--;
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  await partsOf(chain, ask("hi", { abortSignal: counted } as Partial<LanguageModelV3CallOptions>));
  assert.equal(listening, 0);
});

const FAILURES: [string, () => ReturnType<typeof says>, string][] = [
  ["429", () => failure(429), "rate limited"],
  ["500", () => failure(500), "unavailable"],
  ["503 without a body", () => ({ status: 503, json: "" }), "unavailable"],
  ["401", () => failure(401, { message: "Incorrect API key provided: sk-12345" }), "refused the request"],
  ["404", () => failure(404), "refused the request"],
  ["a cut before the first token", () => cutsAfter(""), "unavailable"],
  ["an error event before the first token", () => failsAfter(""), "unavailable"],
  [
    "a rate limit event before the first token",
    () => failsAfter("", { message: "slow", code: "rate_limit_exceeded" }),
    "rate limited",
  ],
  ["a stream that ends without a finish reason", () => ({ steps: [{ done: true }] }), "unavailable"],
  ["a body that is not a stream of events", () => ({ json: { hello: "world" } }), "unavailable"],
  ["an event that is not JSON", () => ({ steps: [{ raw: "data: {nonsense\n\n" }] }), "unavailable"],
];

for (const [title, reply, reason] of FAILURES) {
  test(`${title} is "model provider failed: ${reason}", with the upstream's own words in the cause alone`, async (context) => {
    const { upstream, chain } = await setUp(context);
    upstream.replies(reply());
    const error = await thrownBy(partsOf(chain, ask("hi")));
    assert.equal(error.message, `model provider failed: ${reason}`);
    assert.notEqual(error.cause, undefined);
  });
}

test("a cut after the first token is an error of next(), after the parts that came", async (context) => {
  const { upstream, chain } = await setUp(context);
  upstream.replies(cutsAfter("half an ans"));
  const stream = await chain.stream(ask("hi"));
  let text = "";
  const error = await thrownBy(
    (async () => {
      for (let batch = await stream.next(); batch !== null; batch = await stream.next()) text += textOf(batch);
    })(),
  );
  assert.equal(text, "half an ans");
  assert.equal(error.message, "model provider failed: unavailable");
});

test("a port that nobody listens on is unavailable", async (context) => {
  const upstream = await startOpenAIUpstream();
  await upstream.close();
  const provider = await makeProvider(context, openaiCompatible, { baseURL: upstream.baseURL });
  const error = await thrownBy(partsOf(chainOf(provider, MODEL, 0), ask("hi")));
  assert.equal(error.message, "model provider failed: unavailable");
  assert.equal(rootOf(error).code, "ECONNREFUSED");
});

test("a redirect is not followed: the key stays with the configured host", async (context) => {
  const { upstream, chain } = await setUp(context, { apiKey: "sk-secret" });
  const other = await upstreamFor(context);
  upstream.replies({ status: 307, headers: { location: `${other.baseURL}/chat/completions` }, json: {} });
  const error = await thrownBy(partsOf(chain, ask("hi")));
  assert.match(error.message, /^model provider failed: /);
  assert.equal(other.requests.length, 0);
});

test("an embedding model gives one vector for each text and the tokens used", async (context) => {
  const { provider } = await setUp(context);
  const result = await provider.embeddingModel!("embed-test").doEmbed({ values: ["one", "twenty two"] });
  assert.deepEqual(result.embeddings, [
    [3, 3, 0],
    [10, 6, 3],
  ]);
  assert.equal(result.usage?.tokens, 3);
});

for (const [config, message] of [
  [{ baseURL: "api.openai.com/v1" }, /baseURL must begin with http:\/\/ or https:\/\//],
  [{ baseURL: "http://127.0.0.1/v1", timeouts: { idle: "soon" } }, /timeouts\.idle: "soon" is no duration/],
  [{ baseURL: "http://127.0.0.1/v1", timeouts: { idle: "0s" } }, /timeouts\.idle must be longer than 0/],
  [{}, /baseURL is required/],
  [{ baseURL: "http://127.0.0.1/v1", apikey: "x" }, /apikey is not a known key/],
] as const) {
  test(`the configuration ${JSON.stringify(config)} is refused: ${message.source}`, async (context) => {
    await assert.rejects(makeProvider(context, openaiCompatible, config), message);
  });
}
