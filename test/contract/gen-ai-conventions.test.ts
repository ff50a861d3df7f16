/** Spans are named, and their attributes typed, as OpenTelemetry's conventions for generative AI have them published. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, type TestContext, test } from "node:test";
import type { ProviderManifest } from "../../core/manifest/manifest.ts";
import { serverOf } from "../../core/models/providers.ts";
import { calls, failure, says } from "../support/openai-upstream.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";

const PUBLISHED: {
  attributes: Record<string, string | string[]>;
  spans: Record<string, { kind: number; name: string; required: string[] }>;
  roles: string[];
  finishReasons: string[];
  parts: Record<string, string[]>;
} = JSON.parse(readFileSync(new URL("../fixtures/gen-ai-conventions.json", import.meta.url), "utf8"));

const TYPES: Record<string, (value: unknown) => boolean> = {
  string: (value) => typeof value === "string",
  int: (value) => Number.isInteger(value),
  double: (value) => typeof value === "number",
  boolean: (value) => typeof value === "boolean",
  "string[]": (value) => Array.isArray(value) && value.every((each) => typeof each === "string"),
  any: (value) => typeof value === "string",
};

const { service, upstream } = await serveUpstream(
  { after } as Pick<TestContext, "after">,
  { tools: ["add"], instructions: "Be brief.", memory: "default" },
  {
    memory: { default: {} },
    tools: { add: { use: "add" } },
    agents: {
      lead: { name: "Lead", model: ["up/test-model", "up/second"], subAgents: ["assistant"] },
      scripted: { name: "Scripted", model: "demo/echo" },
    },
    providers: {
      demo: { use: "scripted" },
    },
    workflows: { flow: { name: "Flow", steps: [{ id: "ask", andAgent: { agent: "assistant", prompt: "hello" } }] } },
    observability: { content: "full" },
  },
);
const port = Number(new URL(upstream.baseURL).port);

/** The spans of the newest trace of an entity, once it has ended. */
async function spansOf(entityId: string): Promise<Loose[]> {
  let trace: Loose;
  await until(async () => {
    const { traces } = await dataOf(service.get(`/observability/traces?entityId=${entityId}&limit=1`));
    trace = traces[0];
    return trace !== undefined && trace.status !== "running";
  }, `a trace of ${entityId}`);
  return (await dataOf(service.get(`/observability/traces/${trace!.traceId}`))).spans;
}

function checkParts(parts: Loose[], where: string): void {
  for (const part of parts) {
    const required = PUBLISHED.parts[part.type];
    assert.ok(required !== undefined, `${where}: a part of type ${part.type}`);
    for (const name of required) assert.ok(part[name] !== undefined, `${where}: ${part.type} has ${name}`);
    if ("content" in part) assert.equal(typeof part.content, "string", where);
  }
}

function checkMessages(name: string, text: string): void {
  const list = JSON.parse(text);
  assert.ok(Array.isArray(list) && list.length > 0, name);
  if (name === "gen_ai.system_instructions") checkParts(list, name);
  else
    for (const { role, parts, finish_reason } of list) {
      assert.ok(PUBLISHED.roles.includes(role), `${name}: the role ${role}`);
      checkParts(parts, name);
      if (name === "gen_ai.output.messages") assert.ok(PUBLISHED.finishReasons.includes(finish_reason), finish_reason);
    }
}

/** @param own names of providers that no list has */
function checkSpans(spans: Loose[], own: string[] = []): void {
  for (const { name, kind, attributes } of spans) {
    const operation = attributes["gen_ai.operation.name"];
    for (const [key, value] of Object.entries<Loose>(attributes)) {
      if (!/^(gen_ai|server|error)\./.test(key)) continue;
      const type = PUBLISHED.attributes[key];
      assert.ok(type !== undefined, `${name}: ${key} is published`);
      if (typeof type === "string") assert.ok(TYPES[type]!(value), `${name}: ${key} is ${type}: ${value}`);
      else if (!own.includes(value)) assert.ok(type.includes(value), `${name}: ${key} is one of a list: ${value}`);
      if (/messages$|instructions$/.test(key)) checkMessages(key, value);
    }
    if (operation === undefined) continue;
    const span = PUBLISHED.spans[operation]!;
    for (const key of span.required) assert.ok(attributes[key] !== undefined, `${name}: has ${key}`);
    assert.deepEqual([name, kind], [`${operation} ${attributes[span.name]}`, span.kind]);
  }
}

const of = (spans: Loose[], start: string): Loose[] =>
  spans.filter(({ name }) => name.startsWith(start)).map(({ attributes }) => attributes);

test("POST /agents/:id/text: a tool loop in a conversation has the published attributes, with its messages", async () => {
  upstream.replies(calls([{ name: "add", input: { a: 2, b: 3 }, id: "call_1" }]), says("It is 5."));
  const options = { memory: { conversationId: "c1", userId: "ada" } };
  await dataOf(service.post("/agents/assistant/text", { input: "2 and 3?", options }));
  const spans = await spansOf("assistant");
  checkSpans(spans);
  const [run] = of(spans, "invoke_agent");
  const [first, last] = of(spans, "chat");
  for (const attributes of [run, first, last]) {
    assert.equal(attributes["gen_ai.provider.name"], "openai");
    assert.equal(attributes["gen_ai.request.model"], "test-model");
    assert.equal(attributes["gen_ai.response.model"], "test-model");
    assert.equal(attributes["gen_ai.conversation.id"], "c1");
    assert.equal(attributes["model.id"], "up/test-model");
  }
  assert.deepEqual([first["server.address"], first["server.port"]], [new URL(upstream.baseURL).hostname, port]);
  assert.equal(first["gen_ai.request.stream"], true);
  assert.equal(typeof first["gen_ai.response.id"], "string");
  const asked = { role: "user", parts: [{ type: "text", content: "2 and 3?" }] };
  const call = { type: "tool_call", id: "call_1", name: "add", arguments: { a: 2, b: 3 } };
  const said = { role: "assistant", finish_reason: "stop", parts: [{ type: "text", content: "It is 5." }] };
  assert.deepEqual(JSON.parse(run["gen_ai.input.messages"]), [asked]);
  assert.deepEqual(JSON.parse(run["gen_ai.output.messages"]), [said]);
  assert.deepEqual(JSON.parse(first["gen_ai.system_instructions"]), [{ type: "text", content: "Be brief." }]);
  assert.deepEqual(JSON.parse(first["gen_ai.input.messages"]), [asked]);
  assert.deepEqual(JSON.parse(first["gen_ai.output.messages"]), [
    { role: "assistant", finish_reason: "tool_call", parts: [call] },
  ]);
  assert.deepEqual(JSON.parse(last["gen_ai.input.messages"]), [
    asked,
    { role: "assistant", parts: [call] },
    { role: "tool", parts: [{ type: "tool_call_response", id: "call_1", response: { sum: 5 } }] },
  ]);
  assert.deepEqual(JSON.parse(last["gen_ai.output.messages"]), [said]);
});

test("POST /agents/:id/stream: a sub-agent after a fallback has the published attributes, and events name models in full", async () => {
  const task = { agentId: "assistant", task: "say hello" };
  upstream.replies(
    failure(500),
    calls([{ name: "delegate_task", input: task }]),
    says("hello"),
    says("It says hello.", { finishReason: "length" }),
  );
  await (await service.post("/agents/lead/stream", { input: "ask" })).text();
  const spans = await spansOf("lead");
  checkSpans(spans);
  assert.equal(of(spans, "invoke_agent").length, 2);
  const [lead] = of(spans, "invoke_agent");
  assert.equal(JSON.parse(lead["gen_ai.output.messages"])[0].finish_reason, "length");
  const [first] = spans.filter(({ name }) => name.startsWith("chat "));
  assert.deepEqual(
    [first.attributes["gen_ai.request.model"], first.attributes["gen_ai.response.model"], first.attributes["model.id"]],
    ["test-model", "second", "up/second"],
  );
  const [{ name, attributes }] = first.events;
  assert.equal(name, "model.fallback");
  assert.deepEqual([attributes["model.id"], attributes["fallback.model"]], ["up/test-model", "up/second"]);
});

test("POST /workflows/:id/execute and a model that fails have the published attributes", async () => {
  upstream.replies(says("hello"));
  await dataOf(service.post("/workflows/flow/execute", { input: {} }));
  const spans = await spansOf("flow");
  checkSpans(spans);
  assert.deepEqual(spans.map(({ name }) => name.split(" ")[0]).slice(0, 3), [
    "invoke_workflow",
    "andAgent",
    "invoke_agent",
  ]);
  upstream.replies(failure(400));
  await service.post("/agents/assistant/text", { input: "x" });
  checkSpans(await spansOf("assistant"));
});

test("POST /agents/:id/text: messages that are cut are still whole messages, and files are told by their type", async () => {
  const file = { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" };
  const turn = (role: string, text: string) => ({ role, parts: [{ type: "text", text }] });
  const long = "many words ".repeat(300);
  upstream.replies(says(long.repeat(9)));
  const input = [
    { role: "user", parts: [file, { type: "text", text: "what is this" }] },
    ...Array.from({ length: 9 }, (_, index) => turn(index % 2 === 0 ? "assistant" : "user", long)),
    turn("user", "well?"),
  ];
  await dataOf(service.post("/agents/assistant/text", { input }));
  const spans = await spansOf("assistant");
  checkSpans(spans);
  const [{ "gen_ai.input.messages": text }] = of(spans, "invoke_agent");
  assert.ok(text.length < 9000);
  assert.deepEqual(JSON.parse(text)[0].parts, [
    { type: "blob", modality: "image", content: "", mime_type: "image/png" },
    { type: "text", content: "what is this" },
  ]);
});

test("a provider that is on no list has the name of its wire, or its own", async () => {
  await dataOf(service.post("/agents/scripted/text", { input: "hello" }));
  const spans = await spansOf("scripted");
  checkSpans(spans, ["demo"]);
  assert.equal(of(spans, "chat")[0]["gen_ai.provider.name"], "demo");
  assert.equal(of(spans, "chat")[0]["server.address"], undefined);
});

test("providers of packages and of known hosts have their published names, and the address that is configured", () => {
  const served = (entry: object) => serverOf("mine", entry as ProviderManifest);
  for (const [use, name] of [
    ["@ai-sdk/openai", "openai"],
    ["@ai-sdk/anthropic", "anthropic"],
    ["@ai-sdk/google", "gcp.gemini"],
    ["@ai-sdk/google-vertex/anthropic", "gcp.vertex_ai"],
    ["@ai-sdk/azure", "azure.ai.openai"],
    ["@ai-sdk/amazon-bedrock", "aws.bedrock"],
    ["@ai-sdk/xai", "x_ai"],
    ["some-package", "mine"],
  ] as const)
    assert.deepEqual(served({ use }), { provider: name });
  for (const [baseURL, name, port] of [
    ["https://api.groq.com/openai/v1", "groq", 443],
    ["https://eu-aiplatform.googleapis.com/v1", "gcp.vertex_ai", 443],
    ["https://my.openai.azure.com:8443/v1", "azure.ai.openai", 8443],
    ["http://10.0.0.1/v1", "openai", 80],
  ] as const) {
    const { hostname } = new URL(baseURL);
    assert.deepEqual(served({ use: "openai-compatible", baseURL }), { provider: name, address: hostname, port });
    if (name !== "openai") assert.ok(PUBLISHED.attributes["gen_ai.provider.name"]!.includes(name));
  }
  const proxied = served({ use: "@ai-sdk/anthropic", options: { baseURL: "https://proxy.example/v1" } });
  assert.deepEqual(proxied, { provider: "anthropic", address: "proxy.example", port: 443 });
});
