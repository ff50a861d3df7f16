/** Models that do not keep to any limit. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { decodeBody } from "../../core/models/fetch/fetch.ts";
import { ToolCalls } from "../../core/models/openai-compatible/tool-calls.ts";
import { ThinkHabit, ThinkTags } from "../../core/models/think-tags.ts";
import type { PartBatch } from "../../core/plugin/plugin.ts";
import { EventReader } from "../support/event-reader.ts";
import { superlinear } from "../support/growth.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const ENDLESS = `export default { kind: "provider", name: "endless", create: () => ({ languageModel: (modelId) => ({
  specificationVersion: "v3", provider: "endless", modelId, supportedUrls: {}, doGenerate() {},
  doStream: async () => ({ stream: new ReadableStream({
    pull(controller) { controller.enqueue({ type: modelId + "-delta", id: "1", delta: "x".repeat(65536) }); },
  }) }),
}) }) };`;

for (const kind of ["text", "reasoning"]) {
  test(`POST /agents/:id/text and /stream: a model whose ${kind} never ends is a failed model`, async (t) => {
    const plugins = [pluginFolder(t, { "providers/endless.mjs": ENDLESS })];
    const manifest = manifestWith({ model: `endless/${kind}` }, { providers: { endless: { use: "endless" } } });
    const service = await startService(t, manifest, { plugins });
    const error = "model provider failed: unavailable";
    const answer = await errorOf(service.post("/agents/assistant/text", { input: "x" }));
    assert.deepEqual(answer, { status: 500, error });
    const reader = new EventReader(`${service.url}/agents/assistant/stream`, { input: "x" });
    reader.forgetful = true;
    await reader.end();
    assert.ok(reader.text.endsWith(`data: ${JSON.stringify({ type: "error", error })}\n\n`));
    const { status } = await dataOf(service.get("/agents/assistant"));
    assert.equal(status, "idle");
  });
}

for (const status of [200, 400]) {
  test(`POST /agents/:id/text: an upstream whose answer of ${status} is one line without an end is cut off`, async (t) => {
    const piece = Buffer.alloc(1024 * 1024, "x");
    let sent = 0;
    const flood = (response: ServerResponse): void => {
      while (!response.destroyed && response.write(piece)) sent += piece.length;
      response.once("drain", () => flood(response));
    };
    const server = createServer((request, response) => {
      request.resume();
      response.writeHead(status, { "content-type": status === 200 ? "text/event-stream" : "application/json" });
      response.write('data: {"a":"');
      flood(response);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    const up = { use: "openai-compatible", baseURL, retries: 0 };
    const service = await startService(t, manifestWith({ model: "up/any" }, { providers: { up } }));
    const answer = await errorOf(service.post("/agents/assistant/text", { input: "x" }));
    assert.equal(answer.status, 500);
    assert.match(answer.error, /^model provider failed: /);
    assert.ok(sent < 192 * 1024 * 1024, String(sent));
  });
}

test("POST /agents/:id/text: a model that calls many tools at once gets all answers, and no warning of a leak is printed", async (t) => {
  const plugins = pluginFolder(t, {
    "tools/slow.mjs": `export default { kind: "tool", name: "slow", execute: () => new Promise((done) => setTimeout(done, 20, "ok")) };`,
  });
  const call = Array.from({ length: 40 }, () => ({ tool: "slow", input: {} }));
  const providers = { demo: { use: "scripted", replies: [{ when: "go", call, then: "{{ size(result) }}" }] } };
  const manifest = manifestWith({ tools: ["slow"] }, { providers, tools: { slow: { use: "slow" } } });
  const service = await startService(t, manifest, { plugins: [plugins] });
  const warnings: Error[] = [];
  const warned = (warning: Error) => void warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const data = await dataOf(service.post("/agents/assistant/text", { input: "go" }));
  assert.equal(data.text, "40");
  assert.equal(data.toolResults.length, 40);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(warnings, []);
});

test("the arguments of a tool call that come with its name in very many deltas take time in proportion to their length", () => {
  const work = (text: string): void => {
    const calls = new ToolCalls();
    const add = (piece: string) => calls.add({ index: 0, id: "1", function: { name: "f", arguments: piece } }, []);
    add('{"a":"');
    for (let index = 0; index < text.length; index++) add("{}");
  };
  assert.equal(
    superlinear((length) => "x".repeat(length), work),
    null,
  );
});

test("an answer that is short only while it is compressed is cut off at 128 MiB", async () => {
  const bytes = gzipSync(Buffer.alloc(129 * 1024 * 1024));
  const response = new Response(bytes, { headers: { "content-encoding": "gzip" } });
  await assert.rejects(decodeBody(response).arrayBuffer(), /larger than 128 MiB/);
  const small = new Response(gzipSync("hello"), { headers: { "content-encoding": "gzip" } });
  assert.equal(await decodeBody(small).text(), "hello");
});

test("an answer of very many pieces of white space takes time in proportion to its length where <think> is looked for", () => {
  const work = (text: string): void => {
    const batches: (PartBatch | null)[] = [[{ type: "text-start", id: "1" }]];
    for (const delta of text) batches.push([{ type: "text-delta", id: "1", delta }]);
    batches.push([{ type: "text-end", id: "1" }], null);
    let at = 0;
    const tags = new ThinkTags({ next: () => batches[at++]!, cancel: () => undefined }, new ThinkHabit());
    while (tags.next() !== null);
  };
  assert.equal(
    superlinear((length) => "\n".repeat(length), work),
    null,
  );
});

test("POST /agents/:id/text, /stream and /v1/chat/completions: arguments of a tool call that are 5,000 levels deep are an error of the provider", async (t) => {
  const { service, upstream } = await serveUpstream(t, { tools: ["add"] }, { tools: { add: { use: "add" } } });
  const input = `${'{"a":'.repeat(5_000)}1${"}".repeat(5_000)}`;
  const steps = [
    { call: { index: 0, id: "c", name: "add", arguments: input } },
    { finish: "tool_calls" },
    { done: true as const },
  ];
  const error = "model provider failed: unavailable";
  upstream.fallback(() => ({ steps }) as never);
  const reply = await service.post("/agents/assistant/text", { input: "x" });
  assert.deepEqual(
    [reply.headers.get("x-error-code"), reply.headers.get("x-error-source")],
    ["provider_failed", "provider"],
  );
  assert.deepEqual(await errorOf(reply), { status: 500, error });
  const stream = await service.post("/agents/assistant/stream", { input: "x" });
  assert.ok((await stream.text()).endsWith(`data: ${JSON.stringify({ type: "error", error })}\n\n`));
  const v1 = { model: "assistant", messages: [{ role: "user", content: "x" }] };
  assert.match(await (await service.post("/v1/chat/completions", v1)).text(), /model provider failed: unavailable/);
});
