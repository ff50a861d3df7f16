/** `POST /v1/responses/compact`: what the model sums up, what stands for it, whose conversations it reads, and what it refuses. Beside it `input_tokens`. */
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { AUTH, as } from "../support/approvals.ts";
import { calls, failure, says } from "../support/openai-upstream.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const PATH = "/v1/responses/compact";
const INPUT = [
  { role: "user", content: "My name is Alice." },
  { type: "function_call", call_id: "c1", name: "weather", arguments: '{"city":"Oslo"}' },
  { type: "function_call_output", call_id: "c1", output: "rain" },
  {
    role: "user",
    content: [
      { type: "input_text", text: "And this?" },
      { type: "input_image", image_url: "https://example.com/a.png" },
    ],
  },
];

test("openai 7: POST /v1/responses/compact has the model sum up all items, and its item stands for them in the next response", async (t) => {
  const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools: { sum: { use: "add" } } });
  upstream.replies(says("Alice, rain in Oslo.", { usage: { prompt: 12, completion: 3 } }), says("Alice."));
  const client: Loose = new OpenAI({ apiKey: "key", baseURL: `${service.url}/v1` });
  const compacted = await client.responses.compact({ model: "assistant", instructions: "Be short.", input: INPUT });
  assert.deepEqual([compacted.object, compacted.usage.total_tokens], ["response.compaction", 15]);
  const [asked] = upstream.requests;
  const told = asked!.body.messages.at(-1).content;
  for (const part of [
    "system: Be short.",
    "user: My name is Alice.",
    "weather",
    "Oslo",
    "rain",
    "And this?",
    "(an image)",
  ])
    assert.ok(JSON.stringify(told).includes(part.replaceAll('"', '\\"')), part);
  assert.equal(asked!.body.tools, undefined, "none of the agent's tools can be called");

  const input = [...compacted.output, { role: "user", content: "What is my name?" }];
  const response = await client.responses.create({ model: "assistant", input });
  assert.equal(response.output_text, "Alice.");
  const [own, summary, question] = upstream.requests[1]!.body.messages;
  assert.deepEqual([own.role, summary.role, question.content], ["system", "system", "What is my name?"]);
  assert.match(summary.content, /<summary>\nAlice, rain in Oslo\.\n<\/summary>/);
  const more = { model: "assistant", previous_response_id: response.id, input: "And the weather?" };
  await client.responses.create(more);
  assert.match(JSON.stringify(upstream.requests[2]!.body.messages), /Alice, rain in Oslo/);
});

test("POST /v1/responses/compact sums up a stored response and those before it, with the agent's own calls, and a long text in several calls", async (t) => {
  const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools: { sum: { use: "add" } } });
  upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("It is 3."));
  const ask = async (path: string, body: object): Promise<Loose> =>
    (await service.post(path, { model: "assistant", ...body })).json();
  const first = await ask("/v1/responses", { input: "1 + 2?" });
  upstream.replies(says("One."), says("Two."), says("Three."));
  const long = `begin ${"x".repeat(100_000)} end`;
  const { output } = await ask(PATH, { previous_response_id: first.id, input: long });
  assert.equal(output[0].type, "compaction");
  const told = upstream.requests.slice(2).map(({ body }) => JSON.stringify(body.messages));
  assert.equal(told.length, 3);
  assert.match(told[0]!, /1 \+ 2\?.*calls sum.*It is 3\./);
  assert.match(told[1]!, /<summary>\\nOne\./);
  assert.match(told[2]!, /<summary>\\nTwo\..* end/);
});

test("POST /v1/responses/compact cuts a long text between characters, never inside one", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.replies(...["One.", "Two.", "Three.", "Four."].map((text) => says(text)));
  const input = `${"x".repeat(11)}${"😀".repeat(25_000)}`;
  for (const each of [input, `x${input}`]) {
    const reply = await service.post(PATH, { model: "assistant", input: each });
    assert.equal(reply.status, 200);
  }
  for (const { body } of upstream.requests) assert.doesNotMatch(JSON.stringify(body), /\\ud[89a-f]/i);
});

test("POST /v1/responses/compact makes at most 16 calls of the model, in larger pieces where its context window is known, and refuses what needs more before the first", async (t) => {
  const bounded = async (model: object, longest: number, calls: number) => {
    const { service, upstream } = await serveUpstream(t, {}, { provider: { models: { "test-model": model } } });
    upstream.fallback(() => says("So far."));
    const send = (characters: number) => service.post(PATH, { model: "assistant", input: "x".repeat(characters) });
    // Each message has a word before its text.
    const reply = await send(longest - "user: ".length);
    assert.equal(reply.status, 200, await reply.clone().text());
    assert.equal(upstream.requests.length, calls);
    const refused = await send(longest);
    const { error } = (await refused.json()) as Loose;
    assert.deepEqual([refused.status, error.param, error.code], [400, "input", "context_length_exceeded"]);
    assert.equal(upstream.requests.length, calls, "the model is not asked");
    return error.message;
  };
  assert.equal(
    await bounded({}, 16 * 48_000, 16),
    "input is more text than up/test-model is given to sum up, which is 16 calls with 48000 characters each",
  );
  await bounded({ contextWindow: 128_000 }, 16 * 120_000, 16);
  await bounded({ contextWindow: 1_000_000 }, 2 * 1024 * 1024, 11);
});

test("openai 7: POST /v1/responses/input_tokens estimates the tokens of conversation, instructions, tools and images, and asks no model", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  const client: Loose = new OpenAI({ apiKey: "key", baseURL: `${service.url}/v1` });
  const count = async (body: object): Promise<number> => {
    const { object, input_tokens } = await client.responses.inputTokens.count({ model: "assistant", ...body });
    assert.equal(object, "response.input_tokens");
    return input_tokens;
  };
  const text = "a".repeat(4_000);
  const short = await count({ input: "Hi" });
  assert.ok(short > 0 && short < 30, String(short));
  const long = await count({ input: text });
  assert.ok(long >= 1_000 && long < 1_100, String(long));
  assert.ok((await count({ input: text, instructions: text })) >= 2_000);
  const parameters = { type: "object", properties: { city: { type: "string", description: text } } };
  assert.ok((await count({ input: text, tools: [{ type: "function", name: "sea", parameters }] })) >= 2_000);
  const part = (more: object) => ({ input: [{ role: "user", content: [more] }] });
  const image = await count(part({ type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=" }));
  const file = await count(part({ type: "input_file", file_data: "data:application/pdf;base64,JVBERi0=" }));
  assert.deepEqual([Math.floor(image / 1_000), Math.floor(file / 1_000)], [1, 3]);
  assert.equal(upstream.requests.length, 0);
  upstream.replies(says(text));
  const { id } = await client.responses.create({ model: "assistant", input: text });
  assert.ok((await count({ input: "Hi", previous_response_id: id })) >= 2_000);
  const refused = await service.post("/v1/responses/input_tokens", { model: "nobody", input: "Hi" });
  assert.deepEqual([refused.status, ((await refused.json()) as Loose).error.code], [404, "model_not_found"]);
});

test("POST /v1/responses/compact and /v1/responses/input_tokens do not read the responses of other users", async (t) => {
  const service = await startService(t, manifestWith({}, { auth: { ...AUTH, isolation: "user" } }));
  const body = { model: "assistant", input: "My secret" };
  const { id } = (await (await service.post("/v1/responses", body, as("ada"))).json()) as Loose;
  const request = { model: "assistant", previous_response_id: id };
  for (const [path, body] of [
    [PATH, request],
    ["/v1/responses/input_tokens", { ...request, input: "x" }],
  ] as const) {
    const refused = await service.post(path, body, as("bob"));
    const { error } = (await refused.json()) as Loose;
    assert.deepEqual([refused.status, error.code], [400, "previous_response_not_found"], path);
    assert.equal((await service.post(path, body, as("ada"))).status, 200, path);
  }
});

const REFUSED: [body: object, param: string, code?: string][] = [
  [{}, "input"],
  [{ input: [] }, "input"],
  [{ input: " " }, "input"],
  [{ input: [{ role: "robot", content: "x" }] }, "input[0].role"],
  [{ input: "x".repeat(2 * 1024 * 1024) }, "input", "context_length_exceeded"],
  [{ input: [{ type: "compaction", encrypted_content: "x" }] }, "input[0].encrypted_content"],
  [{ input: [{ type: "compaction" }] }, "input[0].encrypted_content"],
];

test("POST /v1/responses/compact refuses a bad body in OpenAI's shape, and says when the model fails or says nothing", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  for (const [body, param, code = "invalid_value"] of REFUSED) {
    const reply = await service.post(PATH, { model: "assistant", ...body });
    const { error } = (await reply.json()) as Loose;
    assert.deepEqual([reply.status, error.param, error.code], [400, param, code], JSON.stringify(error));
  }
  assert.equal(upstream.requests.length, 0);
  upstream.replies(failure(500), says(" "));
  for (let round = 0; round < 2; round++) {
    const reply = await service.post(PATH, { model: "assistant", input: "x" });
    assert.deepEqual([reply.status, ((await reply.json()) as Loose).error.code], [500, "model_error"]);
  }
});

test("POST /v1/responses/compact: a summary that is cut off is asked for once more with a larger limit, and fails when that is cut off too; one that is filtered is not repeated", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  const compact = async () => (await service.post(PATH, { model: "assistant", input: INPUT })).status;
  const cut = () => says("Ali", { finishReason: "length" });
  upstream.replies(cut(), says("Alice."), cut(), cut(), says("Ali", { finishReason: "content_filter" }));
  assert.deepEqual([await compact(), upstream.requests.length], [200, 2]);
  assert.deepEqual([await compact(), upstream.requests.length], [500, 4]);
  assert.deepEqual([await compact(), upstream.requests.length], [500, 5]);
});
