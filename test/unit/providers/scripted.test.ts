/** The offline provider: rules, pace, tokens. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { LanguageModelV3CallOptions, LanguageModelV3Prompt } from "@ai-sdk/provider";
import { nextTurn } from "../../../core/lib/event-loop-turns.ts";
import scripted from "../../../core/models/scripted/scripted.ts";
import { jumpingClock } from "../../support/jumping-clock.ts";
import {
  ask,
  batchesOf,
  chainOf,
  makeProvider,
  partOf,
  partsOf,
  settingsOf,
  soon,
  textOf,
} from "../../support/providers.ts";

async function chain(test: TestContext, config: object = {}, model = "echo") {
  return chainOf(await makeProvider(test, scripted, config), model);
}

const TOOLS: LanguageModelV3CallOptions["tools"] = [
  { type: "function", name: "lookup", inputSchema: { type: "object" } },
];

/** The conversation after the model's call was answered. */
function afterCall(text: string, ...outputs: unknown[]): LanguageModelV3Prompt {
  const results = outputs.map((value, index) => ({
    type: "tool-result" as const,
    toolCallId: `c${index}`,
    toolName: "lookup",
    output: { type: "json" as const, value: value as never },
  }));
  return [...ask(text).prompt, { role: "tool", content: results }];
}

test("echo repeats the last text of the user, not what was said before", async (context) => {
  const model = await chain(context);
  const prompt: LanguageModelV3Prompt = [
    { role: "system", content: "Be helpful." },
    { role: "user", content: [{ type: "text", text: "first" }] },
    { role: "assistant", content: [{ type: "text", text: "first" }] },
    {
      role: "user",
      content: [
        { type: "text", text: "sec" },
        { type: "file", mediaType: "image/png", data: "AA==" },
        { type: "text", text: "ond" },
      ],
    },
  ];
  assert.equal(textOf(await partsOf(model, { prompt })), "second");
});

test("an empty text is answered with an empty text", async (context) => {
  const parts = await partsOf(await chain(context, { chunks: 5 }), ask(""));
  assert.equal(textOf(parts), "");
  assert.equal(partOf(parts, "finish").usage.outputTokens.total, 0);
});

test("words of the whole prompt and of the answer are counted as tokens", async (context) => {
  const model = await chain(context);
  const prompt: LanguageModelV3Prompt = [{ role: "system", content: "Be  very\nhelpful." }, ...ask("two words").prompt];
  const { usage } = partOf(await partsOf(model, { prompt }), "finish");
  assert.equal(usage.inputTokens.total, 5);
  assert.equal(usage.outputTokens.total, 2);
});

test("maxOutputTokens cuts the answer after as many words, with finish reason length", async (context) => {
  const parts = await partsOf(await chain(context), ask("one two  three four", { maxOutputTokens: 3 }));
  assert.equal(textOf(parts), "one two  three");
  assert.equal(partOf(parts, "finish").finishReason.unified, "length");
  assert.equal(partOf(parts, "finish").usage.outputTokens.total, 3);
});

for (const [chunks, text, expected] of [
  [1, "hello", ["hello"]],
  [3, "abcdefghi", ["abc", "def", "ghi"]],
  [9, "abc", ["a", "b", "c"]],
  [4, "👋👋👋👋", ["👋", "👋", "👋", "👋"]],
  [5, "a👋b", ["a", "👋", "b"]],
] as const) {
  test(`chunks: ${chunks} cuts ${JSON.stringify(text)} into ${expected.length} deltas`, async (context) => {
    const parts = await partsOf(await chain(context, { chunks }), ask(text));
    assert.deepEqual(
      parts.flatMap((part) => (part.type === "text-delta" ? [part.delta] : [])),
      expected,
    );
  });
}

test("rules are tried in order on the user's text, without regard to case, before the echo", async (context) => {
  const replies = [
    { when: "^hello", text: "Hi!" },
    { when: "hello|bye", text: "Goodbye!" },
  ];
  const model = await chain(context, { replies });
  const answers = [];
  for (const text of ["HELLO you", "well, bye", "other"]) answers.push(textOf(await partsOf(model, ask(text))));
  assert.deepEqual(answers, ["Hi!", "Goodbye!", "other"]);
});

test("a text and a tool's input may use the groups of when", async (context) => {
  const replies = [
    { when: "order (\\d+)", call: { tool: "lookup", input: { id: "{{ match[1] }}", asked: "{{ input }}" } } },
    { when: "I am (\\w+)", text: "Hello {{ match[1] }}!" },
  ];
  const model = await chain(context, { replies });
  const call = partOf(await partsOf(model, ask("where is order 42?", { tools: TOOLS })), "tool-call");
  assert.deepEqual(JSON.parse(call.input), { id: "42", asked: "where is order 42?" });
  assert.equal(textOf(await partsOf(model, ask("I am Ada"))), "Hello Ada!");
});

test("after a rule's call the next round says the tool's output as JSON", async (context) => {
  const model = await chain(context, { replies: [{ when: "go", call: { tool: "lookup" } }] });
  assert.equal(textOf(await partsOf(model, { prompt: afterCall("go", { sum: 3 }), tools: TOOLS })), '{"sum":3}');
});

test("after a rule's call the next round says the rule's then, a template over result", async (context) => {
  const replies = [
    { when: "go", call: { tool: "lookup" }, then: "It is {{ result.state }}, {{ result.days + 1 }} days." },
  ];
  const model = await chain(context, { replies });
  const prompt = afterCall("go", { state: "shipped", days: 2 });
  assert.equal(textOf(await partsOf(model, { prompt, tools: TOOLS })), "It is shipped, 3 days.");
});

test("a rule may call several tools at once: result is then the list of their outputs", async (context) => {
  const call = [
    { tool: "lookup", input: { id: 1 } },
    { tool: "lookup", input: { id: 2 } },
  ];
  const model = await chain(context, { replies: [{ when: "go", call, then: "{{ result[0] }} and {{ result[1] }}" }] });
  const parts = await partsOf(model, ask("go", { tools: TOOLS }));
  const made = parts.flatMap((part) => (part.type === "tool-call" ? [part] : []));
  assert.deepEqual(
    made.map(({ input }) => JSON.parse(input)),
    [{ id: 1 }, { id: 2 }],
  );
  assert.equal(new Set(made.map(({ toolCallId }) => toolCallId)).size, 2);
  assert.equal(partOf(parts, "finish").finishReason.unified, "tool-calls");
  assert.equal(textOf(await partsOf(model, { prompt: afterCall("go", "a", "b"), tools: TOOLS })), "a and b");
});

test("a model that is offered no tools calls none, and echoes", async (context) => {
  const model = await chain(context, { replies: [{ when: "go", call: { tool: "lookup" } }] });
  assert.equal(textOf(await partsOf(model, ask("go"))), "go");
  assert.equal(textOf(await partsOf(model, ask("go", { tools: TOOLS, toolChoice: { type: "none" } }))), "go");
});

test("a rule's object is said as JSON", async (context) => {
  const model = await chain(context, { replies: [{ when: "who", object: { name: "Ada", said: "{{ input }}" } }] });
  assert.deepEqual(JSON.parse(textOf(await partsOf(model, ask("who?")))), { name: "Ada", said: "who?" });
});

test("asked for JSON, the user's own JSON is taken over where it fits the schema", async (context) => {
  const schema = {
    type: "object" as const,
    properties: { name: { type: "string" as const }, age: { type: "integer" as const } },
    required: ["name", "age"],
  };
  const options = ask('{"name": "Ada", "age": "old"}', { responseFormat: { type: "json", schema } });
  assert.deepEqual(JSON.parse(textOf(await partsOf(await chain(context), options))), { name: "Ada", age: 0 });
});

for (const error of ["rate limited", "timed out", "unavailable", "refused the request"]) {
  test(`error: ${error} fails as such a provider does, before the answer is accepted`, async (context) => {
    const model = await chain(context, { replies: [{ error }] });
    await assert.rejects(model.stream(ask("x")), { message: `model provider failed: ${error}` });
  });
}

test("any other error text counts as unavailable, and is the cause", async (context) => {
  const model = await chain(context, { replies: [{ error: "the disk is full" }] });
  await assert.rejects(model.stream(ask("x")), (thrown: Error) => {
    assert.equal(thrown.message, "model provider failed: unavailable");
    assert.equal((thrown.cause as Error).message, "the disk is full");
    return true;
  });
});

test("an error beside a text breaks the answer off behind it", async (context) => {
  const model = await chain(context, { replies: [{ text: "half an ans", error: "unavailable" }] });
  const stream = await model.stream(ask("x"));
  assert.equal(textOf((await stream.next()) ?? []), "half an ans");
  await assert.rejects(async () => stream.next(), /model provider failed: unavailable/);
});

test("firstDelay passes inside the stream, and delay between the deltas", async (context) => {
  const model = await chain(context, { chunks: 4, firstDelay: "60s", delay: "20s" });
  const clock = jumpingClock(context);
  const stream = await model.stream(ask("a b c d"));
  const texts: string[] = [];
  const read = batchesOf(stream, (batch) => texts.push(textOf(batch)));
  for (const [milliseconds, count] of [
    [50_000, 0],
    [10_000, 1],
    [10_000, 1],
    [10_000, 2],
    [20_000, 3],
    [20_000, 4],
  ] as const) {
    clock.advance(milliseconds);
    await nextTurn();
    assert.equal(texts.length, count);
  }
  await read;
  assert.equal(texts.join(""), "a b c d");
});

for (const [title, config] of [
  ["before the first delta", { firstDelay: "60s" }],
  ["between two deltas", { chunks: 2, delay: "60s" }],
] as const) {
  test(`an abort ${title} ends the answer at once, and leaves no timer behind`, async (context) => {
    const model = await chain(context, config);
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
    // Others may have some in this process, which end meanwhile.
    const before = timers();
    const controller = new AbortController();
    const stream = await model.stream(ask("one two", { abortSignal: controller.signal }));
    setTimeout(() => controller.abort(new Error("left")), 20);
    await assert.rejects(soon(batchesOf(stream), "the end"), /left/);
    assert.ok(timers() <= before);
  });
}

test("models add more models with rules of their own", async (context) => {
  const config = {
    replies: [{ text: "echo's rule" }],
    models: { poet: { replies: [{ when: ".", text: "Roses are red" }] } },
  };
  assert.equal(textOf(await partsOf(await chain(context, config, "poet"), ask("x"))), "Roses are red");
  assert.equal(textOf(await partsOf(await chain(context, config), ask("x"))), "echo's rule");
});

test("an unknown model is an error that lists the known ones", async (context) => {
  const provider = await makeProvider(context, scripted, { models: { poet: {} } });
  assert.throws(() => provider.languageModel("gpt", settingsOf()), /no model "gpt": the models are echo, poet/);
});

for (const [config, message] of [
  [{ replies: [{ when: "x" }] }, /replies\[0\]: exactly one of text, call, object, error is needed/],
  [{ replies: [{ text: "a" }, { text: "a", object: {} }] }, /replies\[1\]: exactly one of/],
  [{ replies: [{ when: "(", text: "a" }] }, /replies\[0\]\.when: Invalid regular expression/],
  [{ replies: [{ text: "{{ inptu }}" }] }, /replies\[0\]\.text: .*unknown name "inptu", did you mean "input"/],
  [{ replies: [{ text: "a", then: "b" }] }, /replies\[0\]\.then: only a rule with call has one/],
  [{ models: { a: { replies: [{}] } } }, /models\.a\.replies\[0\]: exactly one of/],
  [{ models: { a: { delay: "soon" } } }, /models\.a\.delay: "soon" is not a duration/],
  [{ models: { echo: {} } }, /models\.echo: configure model echo by the keys beside use/],
  [{ chunks: 0 }, /chunks must be >= 1/],
  [{ replys: [] }, /replys is not a known key/],
] as const) {
  test(`the configuration ${JSON.stringify(config)} is refused`, async (context) => {
    await assert.rejects(makeProvider(context, scripted, config), message);
  });
}
