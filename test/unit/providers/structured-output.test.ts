/** `structuredOutput` of providers that are packages or plugins: how the model is asked for JSON, and what is learned of it. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import { pluginFolder } from "../../support/plugin-folder.ts";
import { dataOf } from "../../support/served-upstream.ts";
import { manifestWith, startService } from "../../support/service.ts";

/**
 * A provider whose models take JSON as far as their names say: `schema-*` enforce the schema, `object-*` warn of one, `none-*` warn
 * of any format, `strict-*` refuse formats, `picky-*` refuse this schema only.
 */
const PROVIDER = `
const refuse = (message) => Object.assign(new Error(message), { statusCode: 400, responseBody: message });
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
export default { kind: "provider", name: "formats", config: { type: "object", additionalProperties: true }, create: (config) => ({
  retries: 0,
  languageModel: (id) => ({ specificationVersion: "v3", provider: "formats", modelId: id, supportedUrls: {},
    doStream: async ({ prompt, responseFormat, tools }) => {
      globalThis[config.probe].push({ prompt, responseFormat, tools });
      const [kind] = id.split("-");
      const { type, schema } = responseFormat ?? {};
      if (kind === "strict" && type === "json") throw refuse("This model does not support response_format " + (schema ? "json_schema" : "json_object"));
      if (kind === "picky" && schema) throw refuse("Invalid schema for response_format: oneOf is not permitted");
      const warns = (kind === "object" && schema) || (kind === "none" && type === "json");
      const warnings = warns ? [{ type: "unsupported", feature: "responseFormat" }] : [];
      const knows = (schema && !warns) || JSON.stringify(prompt).includes("JSON Schema");
      const parts = [{ type: "stream-start", warnings }, { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: knows ? '{"city":"Oslo"}' : '{"town":"Oslo"}' }, { type: "text-end", id: "1" },
        { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage }];
      return { stream: new ReadableStream({ start(controller) { for (const part of parts) controller.enqueue(part); controller.close(); } }) };
    } }) }) };`;

const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

type Seen = Pick<LanguageModelV3CallOptions, "prompt" | "responseFormat" | "tools">;

let probes = 0;

async function serve(t: TestContext, model: string | string[], settings: Record<string, object> = { formats: {} }) {
  const probe = `penstockTestFormats${probes++}`;
  const calls: Seen[] = [];
  (globalThis as Record<string, unknown>)[probe] = calls;
  const providers = Object.fromEntries(
    Object.entries(settings).map(([key, more]) => [key, { use: "formats", probe, ...more }]),
  );
  const service = await startService(t, manifestWith({ model, instructions: "Be brief." }, { providers }), {
    plugins: [pluginFolder(t, { "providers/formats.mjs": PROVIDER })],
  });
  const object = () => dataOf(service.post("/agents/assistant/object", { input: "Where?", schema: SCHEMA }));
  /** How each call since the last look asked for JSON. */
  const asked = () =>
    calls.splice(0).map(({ prompt, responseFormat: format }) => {
      const [system] = prompt;
      assert.ok(prompt.slice(1).every(({ role }) => role !== "system"));
      const inPrompt = system!.role === "system" && system!.content.includes(JSON.stringify(SCHEMA));
      assert.match(String(system!.content), /^Be brief\./);
      const sent = format === undefined ? "nothing" : format.type === "json" && format.schema ? "schema" : format.type;
      return inPrompt ? `${sent}, prompt` : sent;
    });
  return { service, object, asked };
}

const OSLO = { city: "Oslo" };

test("structuredOutput: the provider is asked for what the manifest says, and the prompt has the schema when it is not sent", async (t) => {
  for (const [structuredOutput, expected] of [
    ["json_schema", "schema"],
    ["json_object", "json, prompt"],
    ["prompt", "nothing, prompt"],
  ]) {
    const { object, asked } = await serve(t, "formats/schema-1", { formats: { structuredOutput } as object });
    assert.deepEqual(await object(), OSLO);
    assert.deepEqual(asked(), [expected]);
  }
});

test("structuredOutput: each model of a fallback chain is asked in its own way", async (t) => {
  const { object, asked } = await serve(t, ["formats/strict-1", "other/schema-1"], {
    formats: { structuredOutput: "json_object" },
    other: { models: { "schema-*": { structuredOutput: "prompt" } } },
  });
  assert.deepEqual(await object(), OSLO);
  assert.deepEqual(asked(), ["json, prompt", "nothing, prompt"]);
});

test("structuredOutput auto: a warning that the format is not supported puts the schema into the prompt from then on", async (t) => {
  for (const [model, first, later] of [
    ["object-1", ["schema"], ["json, prompt"]],
    ["none-1", ["schema"], ["json, prompt"]],
  ] as const) {
    const { object, asked } = await serve(t, `formats/${model}`);
    assert.deepEqual(await object(), OSLO, "corrected");
    assert.deepEqual(asked(), [...first, ...later]);
    assert.deepEqual(await object(), OSLO);
    await object();
    assert.deepEqual(asked().at(-1), model === "none-1" ? "nothing, prompt" : "json, prompt");
  }
});

test("structuredOutput auto: a provider that enforces the schema is asked for that and nothing else", async (t) => {
  const { object, asked } = await serve(t, "formats/schema-1");
  for (let count = 0; count < 3; count++) assert.deepEqual(await object(), OSLO);
  assert.deepEqual(asked(), ["schema", "schema", "schema"]);
});

test("structuredOutput auto: a refused format is given up within the call, and not tried again", async (t) => {
  const { object, asked } = await serve(t, "formats/strict-1");
  assert.deepEqual(await object(), OSLO);
  assert.deepEqual(asked(), ["schema", "json, prompt", "nothing, prompt"]);
  assert.deepEqual(await object(), OSLO);
  assert.deepEqual(asked(), ["nothing, prompt"]);
});

test("structuredOutput auto: a refused schema is put into the prompt, and the next schema is tried again", async (t) => {
  const { object, asked } = await serve(t, "formats/picky-1");
  for (let count = 0; count < 2; count++) {
    assert.deepEqual(await object(), OSLO);
    assert.deepEqual(asked(), ["schema", "json, prompt"]);
  }
});

test("structuredOutput: a run without a schema or without JSON is sent as it is", async (t) => {
  const { service, asked } = await serve(t, "formats/schema-1", { formats: { structuredOutput: "json_object" } });
  await dataOf(service.post("/agents/assistant/text", { input: "Hi" }));
  await dataOf(service.post("/agents/assistant/text", { input: "Hi", options: { output: { type: "object" } } }));
  assert.deepEqual(asked(), ["nothing", "json"]);
});
