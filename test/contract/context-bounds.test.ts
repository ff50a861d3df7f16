/** What bounds a prompt: the size of tool results, the tokens of a memory and of a model, and the provider's own refusal. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { calls, failsAfter, failure, says } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";

const TEXT = "/agents/assistant/text";
const options = { memory: { userId: "ada", conversationId: "c" } };
const OTHER = { memory: { userId: "bob", conversationId: "d" } };

/** A server whose every answer is a JSON text of so many characters. */
async function pages(t: TestContext, length: number): Promise<string> {
  const server = createServer((_, reply) => {
    reply.setHeader("content-type", "application/json");
    reply.end(JSON.stringify(`begin ${"x".repeat(length)}`));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

interface Setting {
  length?: number;
  tool?: object;
  agent?: object;
  memory?: object;
  models?: object;
}

async function serve(t: TestContext, { length = 100, tool, agent, memory = {}, models = {} }: Setting = {}) {
  const page = { description: "Reads a page", http: { url: await pages(t, length) }, ...tool };
  const setting = { memory: { default: memory }, tools: { page }, provider: { models } };
  const { service, upstream } = await serveUpstream(t, { memory: "default", tools: ["page"], ...agent }, setting);
  return {
    service,
    upstream,
    say: (input: unknown) => dataOf(service.post(TEXT, { input, options })),
    prompt: (): Loose[] => upstream.requests.at(-1)!.body.messages,
    /** Texts of what was said, the system prompt left out. */
    told: () =>
      upstream.requests
        .at(-1)!
        .body.messages.filter(({ role }: Loose) => role === "user" || role === "assistant")
        .map(({ content }: Loose) => content),
  };
}

const results = (messages: Loose[]) => messages.filter(({ role }) => role === "tool").map(({ content }) => content);

for (const [title, setting, most] of [
  ["at 32 KiB by default", {}, 32 * 1024],
  ["at an agent's toolOutput", { agent: { toolOutput: "4KiB" } }, 4096],
  [
    "at a tool's toolOutput, which goes before the agent's",
    { agent: { toolOutput: "4KiB" }, tool: { toolOutput: 300 } },
    300,
  ],
] as const) {
  test(`POST /agents/:id/text and later turns show the model a tool's result cut ${title}; the client and the conversation have it whole`, async (t) => {
    const { service, upstream, say, prompt } = await serve(t, { length: 100_000, ...setting });
    upstream.replies(calls([{ name: "page", input: {} }]), says("Long"), says("Yes"));
    const { toolResults } = await say("Read");
    assert.equal(toolResults[0].output.length, 100_006);
    const [shown] = results(prompt());
    assert.match(shown, /^"?begin x+/);
    assert.match(shown, /\d+ of 100\d{3} bytes/);
    assert.ok(shown.length <= most + 200 && shown.length >= most / 2, `${shown.length} characters`);
    await say("And?");
    assert.deepEqual(results(prompt()), [shown]);
    const { messages } = await dataOf(service.get("/api/memory/conversations/c/messages"));
    assert.equal(messages[1].parts.find(({ type }: Loose) => type === "tool-page").output.length, 100_006);
  });
}

test("POST /agents/:id/stream sends the client a tool's result whole", async (t) => {
  const { service, upstream } = await serve(t, { length: 100_000 });
  upstream.replies(calls([{ name: "page", input: {} }]), says("Long"));
  const events = parseEvents(await (await service.post("/agents/assistant/stream", { input: "Read" })).text());
  const result = events.map(({ data }) => JSON.parse(data)).find(({ type }) => type === "tool-result");
  assert.equal(result.output.length, 100_006);
});

test("POST /agents/:id/text: memory.NAME.contextTokens leaves out the oldest turns, and never the system prompt and the last message", async (t) => {
  const { upstream, say, told, prompt } = await serve(t, { memory: { contextTokens: 500, contextLimit: 100 } });
  const line = (turn: number) => `question ${turn} ${"word ".repeat(100)}`;
  for (const turn of [1, 2, 3, 4, 5]) {
    upstream.replies(says(`answer ${turn}`, { usage: null }));
    await say(line(turn));
  }
  assert.deepEqual(told(), [line(3), "answer 3", line(4), "answer 4", line(5)].slice(-told().length));
  assert.ok(told().length >= 3 && told().length < 9, `${told().length} messages`);
  const long = "word ".repeat(4000);
  await say(long);
  assert.equal(prompt()[0].role, "system");
  assert.deepEqual(told(), [long]);
});

test("POST /agents/:id/text: memory.NAME.contextTokens leaves out a call together with its result", async (t) => {
  const { upstream, say, prompt } = await serve(t, { length: 3000, memory: { contextTokens: 1500 } });
  upstream.replies(calls([{ name: "page", input: {}, id: "first" }], { usage: null }), says("one", { usage: null }));
  await say("Read");
  upstream.replies(calls([{ name: "page", input: {}, id: "second" }], { usage: null }), says("two"));
  await say("Read again");
  const kept = prompt();
  assert.deepEqual(
    kept.filter(({ role }) => role !== "system").map(({ role }) => role),
    ["user", "assistant", "tool"],
  );
  assert.equal(kept.at(-1).tool_call_id, "second");
  assert.equal(kept.at(-2).tool_calls[0].id, "second");
});

test("POST /agents/:id/text: a model's contextWindow bounds the prompt within a run's steps too, whose oldest calls go with their results", async (t) => {
  const models = { "test-model": { contextWindow: 8000 } };
  const { upstream, say, prompt } = await serve(t, { length: 10_000, models, agent: { maxSteps: 10 } });
  const step = (id: string) => calls([{ name: "page", input: {}, id }], { usage: null });
  upstream.replies(step("c1"), step("c2"), step("c3"), step("c4"), says("Done"));
  await say("Read all of it");
  const ids = prompt().flatMap(({ role, tool_call_id }) => (role === "tool" ? [tool_call_id] : []));
  assert.ok(ids.length >= 1 && ids.length < 4, ids.join());
  assert.equal(ids.at(-1), "c4");
  assert.equal(prompt().find(({ role }) => role === "user").content, "Read all of it");
  const called = prompt().flatMap(({ tool_calls = [] }) => tool_calls.map(({ id }: Loose) => id));
  assert.deepEqual(called, ids, "every call has its result, and every result its call");
});

test("POST /agents/:id/text: a single result that is larger than the model's contextWindow is cut to fit", async (t) => {
  const models = { "test-model": { contextWindow: 4000 } };
  const { upstream, say, prompt } = await serve(t, { length: 30_000, models });
  upstream.replies(calls([{ name: "page", input: {} }]), says("Done"));
  await say("Read");
  assert.ok(results(prompt())[0].length < 4 * 4000, `${results(prompt())[0].length} characters`);
  assert.match(results(prompt())[0], /bytes/);
});

test("POST /agents/:id/text: what the provider counted for earlier calls corrects the estimate of a prompt", async (t) => {
  const turn = "word ".repeat(400);
  const after = async (prompt: number) => {
    const { upstream, say, told } = await serve(t, { memory: { contextTokens: 6000, contextLimit: 100 } });
    for (let count = 0; count < 10; count++) {
      upstream.fallback((request) => {
        const characters = JSON.stringify(request.body.messages).length;
        return says("ok", { usage: { prompt: Math.round(characters * prompt), completion: 1 } });
      });
      await say(turn);
    }
    return told().length;
  };
  const [cheap, dear] = [await after(0.2), await after(1)];
  assert.ok(dear < cheap / 2, `${dear} messages where a character is a token, ${cheap} where five are`);
});

const REFUSALS = {
  OpenAI: failure(400, {
    code: "context_length_exceeded",
    message: "This model's maximum context length is 2000 tokens. However, your messages resulted in 5000 tokens.",
  }),
  Anthropic: failure(400, { code: "invalid_request_error", message: "prompt is too long: 5000 tokens > 2000 maximum" }),
  Gemini: failure(400, {
    code: "INVALID_ARGUMENT",
    message: "The input token count (5000) exceeds the maximum number of tokens allowed (2000).",
  }),
};

for (const [provider, refusal] of Object.entries(REFUSALS)) {
  test(`POST /agents/:id/text: a prompt that is too long for the model is shortened once, as ${provider} says it, and the next turn begins with a short one`, async (t) => {
    const { upstream, say, told } = await serve(t, { memory: { contextLimit: 100 } });
    const line = (turn: number) => `question ${turn} ${"word ".repeat(200)}`;
    for (const turn of [1, 2, 3, 4, 5]) await say(line(turn));
    const before = upstream.requests.length;
    upstream.replies(refusal, says("Fine"));
    const { text } = await say(line(6));
    assert.equal(text, "Fine");
    assert.equal(upstream.requests.length, before + 2);
    const whole = upstream.requests[before]!.body.messages.length;
    assert.ok(told().length < whole - 1, `${told().length} messages instead of ${whole}`);
    assert.equal(told().at(-1), line(6));
    upstream.replies(says("Good"));
    await say(line(7));
    assert.ok(told().length < whole - 1, "the limit is remembered");
    assert.equal(upstream.requests.length, before + 3);
  });
}

for (const [title, message] of [
  ["that the next call shows to be wrong", "This model's maximum context length is 20 tokens, not 5000 tokens."],
  ["in the client's own words", "Bad file name: 'maximum context length is 20 tokens, not 5000 tokens'"],
] as const) {
  test(`POST /agents/:id/text: a limit ${title} is not remembered for other conversations`, async (t) => {
    const { service, upstream, say, told } = await serve(t, { memory: { contextLimit: 100 } });
    for (const turn of [1, 2, 3]) await say(`question ${turn}`);
    const input = [
      { role: "user", content: `${"word ".repeat(2000)} maximum context length is 20 tokens, not 5000 tokens` },
      { role: "assistant", content: "ok" },
      { role: "user", content: "go on" },
    ];
    upstream.replies(failure(400, { message }), title.startsWith("that") ? failure(400) : says("Fine"));
    await service.post(TEXT, { input });
    await say("question 4");
    assert.equal(told().length, 7);
  });
}

test("POST /agents/:id/text: what a file counts says nothing of the tokens of other prompts", async (t) => {
  const { service, upstream, say, told } = await serve(t, { memory: { contextLimit: 100, contextTokens: 400 } });
  for (const turn of [1, 2, 3]) await say(`question ${turn}`);
  const image = { type: "image", image: "data:image/png;base64,iVBORw0KGgo=" };
  const text = { type: "text", text: "word ".repeat(100) };
  for (let count = 0; count < 8; count++) {
    upstream.replies(says("seen", { usage: { prompt: 200_000 } }));
    await dataOf(service.post(TEXT, { input: [{ role: "user", content: [text, image] }], options: OTHER }));
  }
  await say("question 4");
  assert.equal(told().length, 7);
});

test("POST /agents/:id/text: an id of a call that is not open is named with 128 characters at most", async (t) => {
  const { service } = await serve(t);
  const content = [{ type: "tool-result", toolCallId: "x".repeat(100_000), toolName: "page", output: 1 }];
  const { status, error } = await errorOf(service.post(TEXT, { input: [{ role: "tool", content }], options }));
  assert.equal(status, 400);
  assert.equal(error, `input: the call "${"x".repeat(128)}" is not open in the conversation`);
});

test("POST /agents/:id/text: a prompt that stays too long after it was shortened is an error that is called context_length", async (t) => {
  const { service, upstream, say } = await serve(t);
  await say("one");
  await say("two");
  upstream.replies(REFUSALS.OpenAI, REFUSALS.OpenAI);
  const before = upstream.requests.length;
  const reply = await service.post(TEXT, { input: "three", options });
  assert.equal(reply.headers.get("x-error-code"), "context_length");
  assert.match((await errorOf(reply)).error, /context_length/);
  assert.equal(upstream.requests.length, before + 2);
  upstream.replies(REFUSALS.OpenAI);
  const alone = await service.post(TEXT, { input: "nothing to leave out" });
  assert.equal(alone.headers.get("x-error-code"), "context_length");
  assert.equal(upstream.requests.length, before + 3, "there is nothing to shorten");
});

test("POST /agents/:id/stream names context_length in its error event when the provider says it within the stream", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(failsAfter("", { code: "context_length_exceeded" }));
  const reply = await (await service.post("/agents/assistant/stream", { input: "long" })).text();
  assert.match(reply, /context_length/);
});

test("POST /agents/:id/text: a tool's toolOutput holds for a tool whose name models are told in another form, in its own run and in later turns", async (t) => {
  const page = { description: "Reads a page", http: { url: await pages(t, 100_000) }, toolOutput: 300 };
  const rest = { memory: { default: {} }, tools: { "shop.page": page } };
  const { service, upstream } = await serveUpstream(t, { memory: "default", tools: ["shop.page"] }, rest);
  upstream.fallback((request) =>
    request.toolOutputs.length > 0 || request.lastUserText !== "Read"
      ? says("Long")
      : calls([{ name: request.body.tools[0].function.name, input: {} }]),
  );
  for (const input of ["Read", "And?"]) {
    await dataOf(service.post(TEXT, { input, options }));
    const [shown] = results(upstream.requests.at(-1)!.body.messages);
    assert.ok(shown.length < 500, `${shown.length} characters of the result are shown`);
  }
});

/** A chain of two models on one upstream, which tells them by their names. */
async function serveChain(t: TestContext, models: object, memory: object = {}) {
  const rest = { memory: { default: memory }, provider: { models } };
  const served = await serveUpstream(t, { model: ["up/first", "up/second"], memory: "default" }, rest);
  return { ...served, say: (input: unknown) => dataOf(served.service.post(TEXT, { input, options })) };
}

test("POST /agents/:id/text: what a fallback counts of its prompts does not change how those of the first model are estimated", async (t) => {
  const told = async (fallbackCounts: number) => {
    const { upstream, say } = await serveChain(t, {}, { contextTokens: 3000, contextLimit: 100 });
    const turn = "word ".repeat(100);
    for (let count = 0; count < 12; count++) {
      upstream.fallback(({ body }) => {
        if (body.model === "first" && count < 11) return failure(401);
        const characters = JSON.stringify(body.messages).length;
        return says("ok", { usage: { prompt: Math.round(characters * fallbackCounts), completion: 1 } });
      });
      await say(turn);
    }
    return upstream.requests.at(-1)!.body.messages.length;
  };
  const [cheap, dear] = [await told(0.25), await told(1)];
  assert.equal(dear, cheap);
});

test("POST /agents/:id/text: a prompt that was shortened for one model is shortened again for a fallback that takes less", async (t) => {
  const { upstream, say } = await serveChain(t, {}, { contextLimit: 100 });
  for (const turn of [1, 2, 3, 4, 5, 6, 7, 8]) await say(`question ${turn} ${"word ".repeat(200)}`);
  const refuses = (limit: number, used: number) =>
    failure(400, {
      code: "context_length_exceeded",
      message: `This model's maximum context length is ${limit} tokens. However, your messages resulted in ${used} tokens.`,
    });
  upstream.replies(refuses(4000, 5000), failure(401), refuses(1000, 3500), says("Fine"));
  assert.equal((await say("and now?")).text, "Fine");
  assert.deepEqual(
    upstream.requests.slice(-4).map(({ body }) => body.model),
    ["first", "first", "second", "second"],
  );
  const lengths = upstream.requests.slice(-4).map(({ body }) => body.messages.length);
  assert.ok(lengths[3]! < lengths[1]!, lengths.join());
});

test("POST /agents/:id/text: a correction of a structured answer that is too long for the model is shortened, and keeps the request and the correction", async (t) => {
  const { service, upstream } = await serve(t, { memory: { contextLimit: 100 } });
  for (const turn of [1, 2, 3, 4])
    await dataOf(service.post(TEXT, { input: `${turn} ${"word ".repeat(200)}`, options }));
  const schema = { type: "object", properties: { sum: { type: "number" } }, required: ["sum"] };
  upstream.replies(says("no JSON"), REFUSALS.OpenAI, says('{"sum":3}'));
  const input = "How much?";
  const output = { type: "object", schema };
  const data = await dataOf(service.post(TEXT, { input, options: { ...options, output } }));
  assert.deepEqual(data.output, { sum: 3 });
  const said = upstream.requests.at(-1)!.body.messages.map(({ content }: Loose) => content);
  assert.ok(said.length < upstream.requests.at(-2)!.body.messages.length);
  assert.ok(said.includes(input));
  assert.match(said.at(-1), /That answer does not fit/);
});
