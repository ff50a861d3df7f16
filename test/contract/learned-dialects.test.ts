/** What `openai-compatible` learns of a provider that the manifest says nothing of: one refused call for each thing, and none after it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { serveStrict } from "../support/strict-providers.ts";

const TEXT = "/agents/assistant/text";
const SUM = { name: "sum", input: { a: 1, b: 2 } };
const withTools = { tools: ["sum"] };
const rest = { tools: { sum: { use: "add" } }, provider: {} };
const schema = { type: "object", properties: { n: { type: "number" } }, required: ["n"], additionalProperties: false };

for (const name of ["Mistral"] as const)
  test(`POST /agents/:id/text on ${name}: a field of messages that the provider refuses is left out from then on`, async (t) => {
    const { service, upstream } = await serveStrict(t, name, withTools, rest);
    const ask = async () => {
      upstream.says({ thought: "A sum.", calls: [SUM] }, { text: "Three." });
      assert.equal((await dataOf(service.post(TEXT, { input: "Add" }))).text, "Three.");
    };
    await ask();
    const learned = upstream.refusals.length;
    assert.ok(learned > 0 && upstream.refusals.some((words) => words.includes("reasoning_content")));
    await ask();
    assert.equal(upstream.refusals.length, learned, "what was learned is remembered");
    const lines = service.log.filter(({ parameter }) => parameter === "reasoning_content");
    assert.equal(lines.length, 1);
  });

test("POST /agents/:id/text on Groq: JSON that the provider refuses beside tools is asked for by the prompt, and without tools by the provider still", async (t) => {
  const provider = { parameters: { omit: ["reasoning_content"] } };
  const { service, upstream } = await serveStrict(t, "Groq", withTools, { ...rest, provider });
  const ask = async () => {
    upstream.says({ text: '{"n":1}' });
    const options = { output: { type: "object", schema } };
    assert.deepEqual((await dataOf(service.post(TEXT, { input: "Count", options }))).output, { n: 1 });
    assert.equal(upstream.requests.at(-1).response_format, undefined);
  };
  await ask();
  const learned = upstream.refusals.length;
  await ask();
  assert.equal(upstream.refusals.length, learned, "what was learned is remembered");
  upstream.says({ text: '{"n":2}' });
  assert.deepEqual(await dataOf(service.post("/agents/assistant/object", { input: "Count", schema })), { n: 2 });
  assert.deepEqual(upstream.requests.at(-1).response_format, { type: "json_object" });
});

test("POST /agents/:id/text on Mistral: ids of calls that another provider gave are sent in the form that it takes", async (t) => {
  const { service, upstream } = await serveStrict(t, "Mistral", withTools, { tools: rest.tools });
  const call = (toolCallId: string) => ({ type: "tool-call", toolCallId, toolName: "sum", input: { a: 1, b: 2 } });
  const result = (toolCallId: string) => ({
    type: "tool-result",
    toolCallId,
    toolName: "sum",
    output: { type: "json", value: { sum: 3 } },
  });
  const ids = ["call_Zk3yQ0aPbVnX8R1mW5uT2cDe", "toolu_01", "abcDEF123"];
  const input = [
    { role: "user", content: "Add" },
    { role: "assistant", content: ids.map(call) },
    { role: "tool", content: ids.map(result) },
    { role: "user", content: "Thanks" },
  ];
  for (let turn = 0; turn < 2; turn++) {
    upstream.says({ text: "Welcome." });
    assert.equal((await dataOf(service.post(TEXT, { input }))).text, "Welcome.");
  }
  assert.equal(upstream.refusals.length, 1);
  const sent: Loose[] = upstream.requests.at(-1).messages;
  const called: string[] = sent.flatMap(({ tool_calls = [] }) => tool_calls.map(({ id }: Loose) => id));
  assert.equal(new Set(called).size, 3);
  assert.equal(called[2], "abcDEF123", "an id that it takes is sent as it is");
  assert.deepEqual(
    sent.flatMap(({ tool_call_id: id }) => id ?? []),
    called,
  );
});
