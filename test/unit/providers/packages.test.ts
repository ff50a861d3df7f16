// biome-ignore-all lint/style/useNamingConvention: names of the providers' APIs
/** AI SDK packages of all versions of the provider interface, over HTTP. */
import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import type { LanguageModelV3Prompt } from "@ai-sdk/provider";
import { createFetch } from "../../../core/models/fetch/fetch.ts";
import { createModelChain } from "../../../core/models/models.ts";
import { createPackageProvider } from "../../../core/models/providers.ts";
import { type AnyLanguageModel, toEmbeddingModel, toStreamingModel } from "../../../core/models/versions/versions.ts";
import { startOpenAIUpstream } from "../../support/openai-upstream.ts";
import { ask, batchesOf, partOf, partsOf, settingsOf, silent, soon, textOf } from "../../support/providers.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;

interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into it as they need
  body: any;
}

interface Answer {
  status?: number;
  headers?: Record<string, string>;
  body: string | Buffer;
}

/** A server that gives every request the same answer. */
async function serve(test: TestContext, answer: Answer | ((request: Received) => Answer)) {
  const requests: Received[] = [];
  const server = createServer(async (incoming, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of incoming) pieces.push(piece);
    const text = Buffer.concat(pieces).toString();
    const request = {
      path: incoming.url ?? "",
      headers: incoming.headers,
      body: text === "" ? null : JSON.parse(text),
    };
    requests.push(request);
    const { status = 200, headers, body } = typeof answer === "function" ? answer(request) : answer;
    response.writeHead(status, { "content-type": "text/event-stream", ...headers });
    response.end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { baseURL: `${origin}/v1`, origin, requests };
}

const events = (list: readonly Record<string, unknown>[]) =>
  list.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

const ANTHROPIC = events([
  {
    type: "message_start",
    message: { type: "message", id: "m1", model: "m", role: "assistant", content: [], usage: { input_tokens: 10 } },
  },
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "good " } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "day" } },
  { type: "content_block_stop", index: 0 },
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 5 } },
  { type: "message_stop" },
]);

const RESPONSES = events([
  { type: "response.created", response: { id: "r1", created_at: 1, model: "m" } },
  { type: "response.output_item.added", output_index: 0, item: { type: "message", id: "msg1" } },
  { type: "response.output_text.delta", item_id: "msg1", output_index: 0, content_index: 0, delta: "good " },
  { type: "response.output_text.delta", item_id: "msg1", output_index: 0, content_index: 0, delta: "day" },
  { type: "response.output_item.done", output_index: 0, item: { type: "message", id: "msg1" } },
  { type: "response.completed", response: { usage: { input_tokens: 10, output_tokens: 5 } } },
]);

function packageFetch(test: TestContext) {
  const { fetch, close } = createFetch({ connectTimeout: 5_000 });
  test.after(close);
  return fetch;
}

async function modelOf(test: TestContext, name: string, baseURL: string) {
  const options = { baseURL, apiKey: "sk-1", name: "local" };
  const provider = await createPackageProvider(name, options, { folders: [ROOT], fetch: packageFetch(test) });
  return provider.languageModel("m", settingsOf()) as AnyLanguageModel;
}

const chain = (model: AnyLanguageModel) =>
  createModelChain([{ id: "p/m", model: toStreamingModel(model), retries: 0, timeouts: settingsOf().timeouts }], {
    logger: silent,
  });

for (const [name, version, wire] of [
  ["@ai-sdk/openai", "v3", RESPONSES],
  ["@ai-sdk/anthropic", "v3", ANTHROPIC],
  ["ai-sdk-openai-2", "v2", RESPONSES],
  ["ai-sdk-openai-4", "v4", RESPONSES],
  ["ai-sdk-anthropic-4", "v4", ANTHROPIC],
] as const) {
  test(`${name}, of version ${version}, answers over HTTP with text, usage and finish reason of one form, in few batches`, async (context) => {
    const upstream = await serve(context, { body: wire });
    const model = await modelOf(context, name, upstream.baseURL);
    assert.equal(model.specificationVersion, version);
    let batches = await batchesOf(await chain(model).stream(ask("hello")));
    // A machine may hand out what was sent at once in pieces, but not always.
    for (let tries = 0; batches.length > 3 && tries < 20; tries++)
      batches = await batchesOf(await chain(model).stream(ask("hello")));
    const parts = batches.flat();
    assert.equal(textOf(parts), "good day");
    const { finishReason, usage } = partOf(parts, "finish");
    assert.equal(finishReason.unified, "stop");
    assert.deepEqual([usage.inputTokens.total, usage.outputTokens.total], [10, 5]);
    assert.ok(batches.length <= 3, `${parts.length} parts in ${batches.length} batches`);
    assert.equal(upstream.requests[0]?.body.stream, true);
  });
}

test("ai-sdk-openai-compatible-3, of version v4, streams reasoning and tool calls", async (context) => {
  const upstream = await startOpenAIUpstream();
  context.after(() => upstream.close());
  upstream.fallback({
    steps: [
      { reasoning: "hm" },
      { call: { index: 0, id: "c1", name: "add", arguments: '{"a":1}' } },
      { finish: "tool_calls" },
      { done: true },
    ],
  });
  const parts = await partsOf(chain(await modelOf(context, "ai-sdk-openai-compatible-3", upstream.baseURL)), ask("x"));
  assert.equal(partOf(parts, "reasoning-delta").delta, "hm");
  assert.deepEqual(partOf(parts, "tool-call").input, '{"a":1}');
  assert.equal(partOf(parts, "finish").finishReason.unified, "tool-calls");
});

const PIXEL = "iVBORw0KGgo=";
const WITH_FILES: LanguageModelV3Prompt = [
  {
    role: "user",
    content: [
      { type: "text", text: "look" },
      { type: "file", data: PIXEL, mediaType: "image/png" },
      { type: "file", data: new URL("https://example.com/a.png"), mediaType: "image/*" },
    ],
  },
  { role: "assistant", content: [{ type: "tool-call", toolCallId: "c1", toolName: "photo", input: {} }] },
  {
    role: "tool",
    content: [
      { type: "tool-approval-response", approvalId: "a1", approved: true },
      {
        type: "tool-result",
        toolCallId: "c1",
        toolName: "photo",
        output: {
          type: "content",
          value: [
            { type: "text", text: "here" },
            { type: "image-data", data: PIXEL, mediaType: "image/png" },
          ],
        },
      },
    ],
  },
];

test("files of messages and of tool results reach a model of version v4 as they reach one of v3", async (context) => {
  const upstream = await serve(context, { body: ANTHROPIC });
  for (const name of ["@ai-sdk/anthropic", "ai-sdk-anthropic-4"])
    await partsOf(chain(await modelOf(context, name, upstream.baseURL)), { prompt: WITH_FILES });
  const [v3, v4] = upstream.requests.map(({ body }) => body.messages);
  assert.deepEqual(v4, v3);
  const data = { type: "base64", media_type: "image/png", data: PIXEL };
  assert.deepEqual(v4[0].content[1].source, data);
  assert.deepEqual(v4[0].content[2].source, { type: "url", url: "https://example.com/a.png" });
  assert.deepEqual(v4[2].content[0].content[1].source, data);
});

test("a denied call and the image of a tool result reach a model of version v2", async (context) => {
  const upstream = await serve(context, { body: RESPONSES });
  const denied = { type: "execution-denied", reason: "not today" } as const;
  const prompt: LanguageModelV3Prompt = [
    ...WITH_FILES,
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "c2", toolName: "pay", input: {} }] },
    { role: "tool", content: [{ type: "tool-result", toolCallId: "c2", toolName: "pay", output: denied }] },
  ];
  await partsOf(chain(await modelOf(context, "ai-sdk-openai-2", upstream.baseURL)), { prompt });
  const outputs = upstream.requests[0]?.body.input.filter(
    ({ type }: { type: string }) => type === "function_call_output",
  );
  assert.equal(outputs[1].output, "not today");
  assert.match(JSON.stringify(outputs[0].output), new RegExp(PIXEL));
});

for (const name of ["ai-sdk-openai-2", "ai-sdk-openai-4"]) {
  test(`${name} gives embeddings, whatever its method is called`, async (context) => {
    const upstream = await serve(context, {
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ data: [{ embedding: [1, 2] }], usage: { prompt_tokens: 1 } }),
    });
    const options = { baseURL: upstream.baseURL, apiKey: "sk-1" };
    const provider = await createPackageProvider(name, options, { folders: [ROOT], fetch: packageFetch(context) });
    const model = toEmbeddingModel(provider.embeddingModel!("e", settingsOf()));
    const { embeddings, warnings } = await model.doEmbed({ values: ["one"] });
    assert.deepEqual(embeddings, [[1, 2]]);
    assert.deepEqual(warnings, []);
  });
}

test("an answer of a v4 model that was interrupted is a failure, and parts that are new in v4 are left out", async () => {
  const finish = (unified: string) => ({
    type: "finish",
    finishReason: { unified, raw: undefined },
    usage: { inputTokens: {}, outputTokens: {} },
  });
  const model = (unified: string) =>
    ({
      specificationVersion: "v4",
      provider: "p",
      supportedUrls: {},
      doStream: async () => ({
        stream: new ReadableStream({
          start(controller) {
            const warnings = [{ type: "deprecated", setting: "old", message: "use new" }];
            for (const part of [
              { type: "stream-start", warnings },
              { type: "ping" },
              { type: "custom", kind: "a.b" },
              { type: "file", mediaType: "image/png", data: { type: "data", data: PIXEL } },
              finish(unified),
            ])
              controller.enqueue(part);
            controller.close();
          },
        }),
      }),
    }) as unknown as AnyLanguageModel;
  const parts = await partsOf(chain(model("stop")), ask("x"));
  assert.deepEqual(
    parts.map(({ type }) => type),
    ["stream-start", "file", "finish"],
  );
  assert.equal(partOf(parts, "file").data, PIXEL);
  assert.deepEqual(partOf(parts, "stream-start").warnings, [{ type: "other", message: "old is deprecated: use new" }]);
  await assert.rejects(partsOf(chain(model("interrupted")), ask("x")), /model provider failed: unavailable/);
});

test("the fetch of packages does not follow a redirect to another origin, and follows one within it", async (context) => {
  const other = await serve(context, { body: RESPONSES });
  const upstream = await serve(context, ({ path }) =>
    path.startsWith("/v1")
      ? { status: 307, headers: { location: "/v2/responses" }, body: "" }
      : { status: 307, headers: { location: `${other.baseURL}/responses` }, body: "" },
  );
  const model = chain(await modelOf(context, "@ai-sdk/openai", upstream.baseURL));
  await assert.rejects(partsOf(model, ask("x")), /model provider failed/);
  assert.deepEqual(
    upstream.requests.map(({ path }) => path),
    ["/v1/responses", "/v2/responses"],
  );
  assert.equal(upstream.requests[1]?.body.model, "m");
  assert.equal(other.requests.length, 0);
});

test("the fetch of packages reads a compressed answer, forms and binary bodies", async (context) => {
  const upstream = await serve(context, ({ path, headers }) => ({
    headers: { "content-encoding": "gzip", "x-type": String(headers["content-type"]) },
    body: gzipSync(`at ${path}`),
  }));
  const fetch = packageFetch(context);
  const body = new FormData();
  body.set("a", "1");
  const reply = await fetch(`${upstream.origin}/a`, { headers: { a: "b" } });
  assert.equal(await reply.text(), "at /a");
  assert.ok(reply instanceof Response);
  assert.equal(upstream.requests[0]?.headers.a, "b");
  const posted = await fetch(new Request(`${upstream.origin}/b`, { method: "POST", body: new Blob(["[1]"]) }));
  assert.equal(await posted.text(), "at /b");
  assert.deepEqual(upstream.requests[1]?.body, [1]);
});

test("an abort in the middle of a package's answer closes the socket", async (context) => {
  const upstream = await startOpenAIUpstream();
  context.after(() => upstream.close());
  upstream.fallback({ steps: [{ text: "half" }, { stall: true }] });
  const controller = new AbortController();
  const model = chain(await modelOf(context, "@ai-sdk/openai-compatible", upstream.baseURL));
  const stream = await model.stream(ask("x", { abortSignal: controller.signal }));
  assert.equal(textOf((await stream.next()) ?? []), "half");
  const pending = Promise.resolve(stream.next());
  controller.abort(new Error("left"));
  await assert.rejects(soon(pending, "the end"), /left/);
  await soon((await upstream.request(0)).aborted, "the closed socket");
});
