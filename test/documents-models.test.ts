/** The manifests of the chapters on providers, models and memory, written into service.yaml, and what is said beside them. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { MODEL_OUTCOMES } from "../core/observability/metrics/meters.ts";
import { ROOT } from "./support/command-line.ts";
import { block, DOCUMENTS, FLAGSHIP, merge } from "./support/documents.ts";
import { says, startOpenAIUpstream } from "./support/openai-upstream.ts";
import { dataOf, type Loose } from "./support/served-upstream.ts";
import { startService } from "./support/service.ts";

const written = (holds: string, ...more: Loose[]) =>
  [parse(block("yaml", holds)), ...more].reduce(merge, parse(FLAGSHIP));

test("docs/providers.md: the provider, written into service.yaml, sends what its models take, with the schema in the prompt", async (t) => {
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const own = { providers: { local: { baseURL: upstream.baseURL } } };
  const agents = { support: { model: "local/qwen-tiny" }, writer: { model: "local/qwen-9" } };
  const service = await startService(t, written("http://127.0.0.1:8000/v1", own, { agents }), { env: {} });
  const options = { frequencyPenalty: 1, presencePenalty: 1, userId: "ada" };
  upstream.replies(says("<think>Easy.</think>Good morning"), says("Good morning"), says('{"city": "Lisbon"}'));
  const { text } = await dataOf(service.post("/agents/support/text", { input: "Hello", options }));
  assert.equal(text, "Good morning");
  await dataOf(service.post("/agents/writer/text", { input: "Hello", options }));
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const found = await dataOf(service.post("/agents/writer/object", { input: "Where?", schema }));
  assert.deepEqual(found, { city: "Lisbon" });
  const [tiny, large, object] = upstream.requests.map(({ body }) => body);
  assert.deepEqual([tiny.frequency_penalty, large.frequency_penalty], [undefined, 1]);
  assert.equal(object.response_format, undefined);
  assert.match(object.messages[0].content, /"city"/);
});

test("docs/providers.md: the time limits that are listed are those of the manifest's schema", () => {
  const file = readFileSync(join(ROOT, "schemas/manifest/providers.json"), "utf8");
  const { properties } = JSON.parse(file).$defs.ProviderTimeoutsManifest;
  const section = DOCUMENTS.get("docs/providers.md")!;
  const listed = [...section.matchAll(/^\| `(connect|firstByte|idle|total)` +\| (.*?) +\|/gm)];
  const wanted = Object.entries<Loose>(properties).map(([name, { default: usual }]) => [name, usual ?? "no limit"]);
  assert.deepEqual(
    listed.map(([, name, value]) => [name, value]),
    wanted,
  );
});

test("docs/providers.md: the downloads, written into service.yaml, are the defaults with two private places", async (t) => {
  const { manifest } = (await startService(t, written("allowPrivate:"), { env: {} })).service;
  const usual = (await startService(t, FLAGSHIP, { env: {} })).service.manifest.server.downloads;
  assert.deepEqual(manifest.server.downloads, { ...usual, allowPrivate: ["files.internal", "10.20.0.0/16"] });
});

test("docs/models.md: what a request may ask for, written into service.yaml, is 400 beyond it", async (t) => {
  const service = await startService(t, written("allowProviderOptions:"), { env: {} });
  const ask = (options: object) => service.post("/agents/support/text", { input: "Hello", options });
  const refusals: [object, RegExp][] = [
    [{ maxOutputTokens: 3000 }, /maxOutputTokens must be <= 2000/],
    [{ maxSteps: 9 }, /maxSteps must be <= 8/],
    [{ temperature: null }, /temperature must not be null/],
    [{ providerOptions: { openai: { store: true } } }, /openai\.store is not allowed/],
  ];
  for (const [options, said] of refusals) {
    const reply = await ask(options);
    assert.equal(reply.status, 400);
    assert.match(((await reply.json()) as Loose).error, said);
  }
  const allowed = { openai: { reasoningEffort: "low" }, anthropic: { cacheControl: { type: "ephemeral" } } };
  assert.equal((await ask({ maxOutputTokens: 2000, seed: null, providerOptions: allowed })).status, 200);
});

test("docs/models.md: the prices, written into service.yaml, give usage.cost and the metric", async (t) => {
  const service = await startService(t, written("prices:"), { env: {} });
  const { usage, model } = await dataOf(service.post("/agents/writer/text", { input: "Hello" }));
  assert.equal(model, "demo/echo");
  const cost = (usage.promptTokens * 0.15 + usage.completionTokens * 0.6) / 1e6;
  assert.ok(usage.cost > 0 && Math.abs(usage.cost - cost) < 1e-11, `${usage.cost}`);
  assert.match(await (await service.get("/metrics")).text(), /^penstock_model_cost_usd_total\{model="demo\/echo"\} /m);
});

test("docs/models.md: the tool of the client, written into service.yaml, ends the answer, which goes on from its result", async (t) => {
  const call = { tool: "confirm", input: { question: "Sure?" } };
  const providers = { demo: { replies: [{ when: "delete", call, then: "You said {{ result }}." }] } };
  const service = await startService(t, written("client: true", { providers }), { env: {} });
  const memory = { userId: "ada", conversationId: "c" };
  const ask = (input: unknown) => dataOf(service.post("/agents/support/text", { input, options: { memory } }));
  const open = await ask("Please delete it");
  assert.deepEqual([open.finishReason, open.toolResults], ["tool-calls", []]);
  const [{ toolCallId, toolName }] = open.toolCalls;
  const result = { type: "tool-result", toolCallId, toolName, output: { type: "text", value: "yes" } };
  const { text } = await ask([{ role: "tool", content: [result] }]);
  assert.equal(text, "You said yes.");
  assert.equal((await service.post("/tools/confirm/execute", { input: call.input })).status, 409);
  const tools = await dataOf(service.get("/tools"));
  assert.equal(tools.find(({ name }: Loose) => name === "confirm").client, true);
});

test("docs/memory.md: the keys for long conversations, written into service.yaml, are those of the memory", async (t) => {
  const service = await startService(t, written("contextTokens:"), { env: {} });
  const { contextTokens, summary, contextLimit } = service.service.manifest.memory.default!;
  assert.deepEqual([contextTokens, summary, contextLimit], [20_000, { model: "demo/echo", after: 20 }, 10]);
});

test("docs/memory.md: the defaults of the keys for long conversations are those of the manifest's schemas", () => {
  const section = DOCUMENTS.get("docs/memory.md")!;
  const defs = (file: string) => JSON.parse(readFileSync(join(ROOT, `schemas/manifest/${file}.json`), "utf8")).$defs;
  const usual: [string, unknown][] = [
    ["agents.ID.toolOutput", defs("agents").AgentManifest.properties.toolOutput.default],
    ["memory.NAME.summary.after", defs("memory").SummaryManifest.properties.after.default],
  ];
  for (const [key, value] of usual) assert.match(section, new RegExp(`^\\| \`${key}\` .*\\| ${value} +\\|$`, "m"));
});

test("docs/observability.md: every outcome of a model call is named as its label is", () => {
  const section = DOCUMENTS.get("docs/observability.md")!;
  for (const outcome of MODEL_OUTCOMES) assert.ok(section.includes(`\`${outcome.replaceAll(" ", "_")}\``), outcome);
});
