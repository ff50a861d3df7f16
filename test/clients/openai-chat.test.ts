/** Chat Completions over agents: the real `openai` 7, the AI SDK's OpenAI packages, and what chat user interfaces send. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import OpenAI from "openai";
import { makeParseableResponseFormat } from "openai/lib/parser";
import { calls, failsAfter, failure, says, saysJson } from "../support/openai-upstream.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { load } from "./chat.ts";

const TOOLS = { sum: { use: "add" } };
const HELLO = [{ role: "user" as const, content: "Hello" }];
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PDF = "data:application/pdf;base64,JVBERi0xLjQ=";
const WEATHER = {
  type: "function" as const,
  function: {
    name: "get_weather",
    description: "The weather",
    parameters: { type: "object", properties: { location: { type: "string" } }, required: ["location"] },
  },
};
const asksWeather = () => calls([{ id: "c1", name: "get_weather", input: { location: "Oslo" } }]);

/** The service, its upstream, and the client of `openai` 7. */
async function serve(t: TestContext, agent: object = {}, rest: object = {}) {
  const served = await serveUpstream(t, { tools: ["sum"], ...agent }, { tools: TOOLS, ...rest });
  const client = new OpenAI({ apiKey: "key", baseURL: `${served.service.url}/v1` });
  return { ...served, client };
}

const collect = async <T>(stream: AsyncIterable<T>): Promise<T[]> => {
  const all: T[] = [];
  for await (const each of stream) all.push(each);
  return all;
};

test("openai 7: GET /v1/models lists the agents, GET /v1/models/:id gives one, and an unknown one is 404", async (t) => {
  const { client } = await serve(t);
  assert.deepEqual(
    (await collect(client.models.list())).map(({ id, object, owned_by }) => [id, object, owned_by]),
    [["assistant", "model", "penstock"]],
  );
  assert.equal((await client.models.retrieve("assistant")).id, "assistant");
  await assert.rejects(client.models.retrieve("no/body"), (error: Loose) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.deepEqual([error.code, error.param], ["model_not_found", "model"]);
    return true;
  });
});

test("openai 7: POST /v1/chat/completions answers with the agent's text, its finish and its usage", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(says("Hi there.", { usage: { prompt: 12, completion: 3, cached: 4, reasoning: 1 } }));
  const completion = await client.chat.completions.create({
    model: "assistant",
    messages: [{ role: "developer", content: "Be short." }, ...HELLO],
    temperature: 1.5,
    max_completion_tokens: 50,
    stop: "END",
    seed: 7,
  });
  assert.deepEqual(completion.choices, [
    {
      index: 0,
      message: { role: "assistant", content: "Hi there.", refusal: null },
      logprobs: null,
      finish_reason: "stop",
    },
  ] as Loose);
  assert.deepEqual(completion.usage, {
    prompt_tokens: 12,
    completion_tokens: 3,
    total_tokens: 15,
    prompt_tokens_details: { cached_tokens: 4 },
    completion_tokens_details: { reasoning_tokens: 1 },
  } as Loose);
  assert.deepEqual([completion.object, completion.model], ["chat.completion", "assistant"]);
  const { messages, temperature, max_tokens, stop, seed } = upstream.requests[0]!.body;
  assert.deepEqual([temperature, max_tokens, stop, seed], [1.5, 50, ["END"], 7]);
  assert.deepEqual(
    messages.map(({ role, content }: Loose) => [role, content]),
    [
      ["system", "Help."],
      ["system", "Be short."],
      ["user", "Hello"],
    ],
  );
});

test("openai 7: POST /v1/chat/completions runs the agent's own tools inside, and says nothing of them", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(calls([{ name: "sum", input: { a: 1, b: 2 } }]), says("It is 3."));
  const { choices } = await client.chat.completions.create({ model: "assistant", messages: HELLO });
  assert.equal(choices[0]!.message.content, "It is 3.");
  assert.equal(choices[0]!.message.tool_calls, undefined);
  assert.deepEqual(upstream.requests[1]!.toolOutputs, ['{"sum":3}']);
});

test("openai 7: the stream helper over POST /v1/chat/completions gets deltas, the whole text and the usage", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(says("One two three.", { chunks: 3, reasoning: "Counting." }));
  const stream = client.chat.completions.stream({
    model: "assistant",
    messages: HELLO,
    stream_options: { include_usage: true },
  });
  const deltas: string[] = [];
  stream.on("content", (delta) => deltas.push(delta));
  const completion = await stream.finalChatCompletion();
  assert.equal(completion.choices[0]!.message.content, "One two three.");
  assert.ok(deltas.length >= 3);
  assert.equal(completion.usage!.total_tokens, 15);
  assert.equal((completion.choices[0]!.message as Loose).reasoning_content, "Counting.");
});

test("openai 7: runTools over POST /v1/chat/completions runs the client's function, beside a tool of the agent, and ends with the answer", async (t) => {
  const { client, upstream } = await serve(t);
  const mixed = calls([
    { id: "c1", name: "get_weather", input: { location: "Oslo" } },
    { id: "c2", name: "sum", input: { a: 1, b: 2 } },
  ]);
  upstream.replies(mixed, says("Rain in Oslo."));
  const asked: string[] = [];
  const runner = client.chat.completions.runTools({
    model: "assistant",
    messages: HELLO,
    tools: [
      {
        type: "function",
        function: {
          ...WEATHER.function,
          parse: JSON.parse,
          function: ({ location }: Loose) => {
            asked.push(location);
            return "rain";
          },
        },
      },
    ],
  });
  assert.equal(await runner.finalContent(), "Rain in Oslo.");
  assert.deepEqual(asked, ["Oslo"]);
  const [first, second] = upstream.requests;
  assert.deepEqual(
    first!.body.tools.map((tool: Loose) => tool.function.name),
    ["sum", "get_weather"],
  );
  assert.deepEqual(second!.toolOutputs, ["rain"]);
});

test("openai 7: POST /v1/chat/completions with stream gives the calls of the client with index, id, type and arguments", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(asksWeather());
  const stream = client.chat.completions.stream({ model: "assistant", messages: HELLO, tools: [WEATHER] });
  const { choices } = await stream.finalChatCompletion();
  assert.equal(choices[0]!.finish_reason, "tool_calls");
  const [call] = choices[0]!.message.tool_calls as Loose[];
  assert.deepEqual([call.id, call.type, call.function.name], ["c1", "function", "get_weather"]);
  assert.deepEqual(JSON.parse(call.function.arguments), { location: "Oslo" });
});

test("openai 7: parse over POST /v1/chat/completions gives a value of the schema, also when the model had to be asked again", async (t) => {
  const { client, upstream } = await serve(t);
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  upstream.replies(says("Oslo, I think"), saysJson({ city: "Oslo" }), saysJson({ city: "Rome" }));
  const request = {
    model: "assistant",
    messages: HELLO,
    response_format: makeParseableResponseFormat(
      { type: "json_schema", json_schema: { name: "city", schema } },
      JSON.parse,
    ),
  };
  const { choices } = await client.chat.completions.parse(request);
  assert.deepEqual(choices[0]!.message.parsed, { city: "Oslo" });
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  assert.deepEqual(streamed.choices[0]!.message.parsed, { city: "Rome" });
});

test("openai 7: POST /v1/chat/completions hands images, files and audio to the model", async (t) => {
  const { client, upstream } = await serve(t);
  await client.chat.completions.create({
    model: "assistant",
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "What is this?" },
          { type: "image_url", image_url: { url: PIXEL, detail: "low" } },
          { type: "file", file: { filename: "a.pdf", file_data: PDF } },
          { type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } },
        ],
      },
    ],
  });
  const { content } = upstream.requests[0]!.body.messages.at(-1);
  assert.deepEqual(content, [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: PIXEL } },
    { type: "file", file: { filename: "a.pdf", file_data: PDF } },
    { type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } },
  ]);
});

test("openai 7: a failure of the model before the first chunk of POST /v1/chat/completions is an error reply, and is not tried again", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.fallback(failure(500));
  for (const stream of [false, true]) {
    await assert.rejects(
      client.chat.completions.create({ model: "assistant", messages: HELLO, stream }),
      (error: Loose) => {
        assert.deepEqual([error.status, error.type, error.code], [500, "server_error", "model_error"]);
        return true;
      },
    );
  }
  assert.equal(upstream.requests.length, 2);
});

test("openai 7: a failure in the middle of the stream of POST /v1/chat/completions is an error of the client", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(failsAfter("Some words"));
  const seen: string[] = [];
  await assert.rejects(
    async () => {
      const stream = await client.chat.completions.create({ model: "assistant", messages: HELLO, stream: true });
      for await (const chunk of stream) seen.push(chunk.choices[0]?.delta.content ?? "");
    },
    (error: Loose) => error instanceof OpenAI.APIError && error.code === "model_error",
  );
  assert.equal(seen.join(""), "Some words");
});

test("openai 7: POST /v1/chat/completions whose client leaves the stream stops the model", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies({ steps: [{ text: "Some words" }, { stall: true }] });
  const stream = await client.chat.completions.create({ model: "assistant", messages: HELLO, stream: true });
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
  await upstream.requests[0]!.aborted;
});

const SDKS = [
  ["ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible"],
  ["ai-7", "ai-sdk-openai-4", "ai-sdk-openai-compatible-3"],
] as const;

for (const [sdk, openai, compatible] of SDKS) {
  describe(`${sdk} over POST /v1/chat/completions`, async () => {
    const ai: Loose = await load(sdk);
    const [{ createOpenAI }, { createOpenAICompatible }]: Loose[] = await Promise.all([
      import(openai),
      import(compatible),
    ]);
    const modelsOf = (url: string): [string, Loose][] => [
      [openai, createOpenAI({ apiKey: "key", baseURL: `${url}/v1` }).chat("assistant")],
      [compatible, createOpenAICompatible({ name: "penstock", apiKey: "key", baseURL: `${url}/v1` })("assistant")],
    ];

    test(`${sdk}: POST /v1/chat/completions answers generateText and streamText of ${openai} and ${compatible}`, async (t) => {
      const { service, upstream } = await serve(t);
      for (const [name, model] of modelsOf(service.url)) {
        upstream.replies(says("Hi there."), says("One two three.", { chunks: 3 }));
        const { text, finishReason, usage } = await ai.generateText({ model, prompt: "Hello" });
        assert.deepEqual([text, finishReason, usage.totalTokens], ["Hi there.", "stop", 15], name);
        const streamed = ai.streamText({ model, prompt: "Hello" });
        assert.equal((await collect(streamed.textStream)).join(""), "One two three.", name);
        assert.equal(await streamed.finishReason, "stop", name);
      }
    });

    test(`${sdk}: POST /v1/chat/completions lets ${openai} and ${compatible} run a tool of the client's, whole and streamed`, async (t) => {
      const { service, upstream } = await serve(t);
      for (const [name, model] of modelsOf(service.url)) {
        upstream.replies(asksWeather(), says("Rain."), asksWeather(), says("Rain."));
        const inputs: Loose[] = [];
        const tools = {
          get_weather: ai.tool({
            description: "The weather",
            inputSchema: ai.jsonSchema(WEATHER.function.parameters),
            execute: async (input: Loose) => {
              inputs.push(input);
              return "rain";
            },
          }),
        };
        const settings = { model, prompt: "Hello", tools, stopWhen: (ai.stepCountIs ?? ai.isStepCount)(3) };
        assert.equal((await ai.generateText(settings)).text, "Rain.", name);
        assert.equal(await ai.streamText(settings).text, "Rain.", name);
        assert.deepEqual(inputs, [{ location: "Oslo" }, { location: "Oslo" }], name);
      }
    });
  });
}

test("POST /v1/chat/completions takes what Open WebUI sends: a stream with usage, parts in the question, keys of its own", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(says("Hi there.", { chunks: 2 }));
  const reply = await service.post(
    "/v1/chat/completions",
    {
      stream: true,
      model: "assistant",
      messages: [
        { role: "system", content: "You are helpful." },
        { role: "user", content: "Hello" },
        { role: "assistant", content: "" },
        { role: "user", content: [{ type: "text", text: "Again" }] },
      ],
      stream_options: { include_usage: true },
      chat_id: "5f1c",
      features: { web_search: false },
      params: {},
    },
    { authorization: "Bearer sk-anything" },
  );
  assert.equal(reply.status, 200);
  assert.match(reply.headers.get("content-type")!, /^text\/event-stream/);
  const lines = (await reply.text()).split("\n\n").filter((line) => line !== "");
  assert.equal(lines.pop(), "data: [DONE]");
  const chunks = lines.map((line) => JSON.parse(line.slice("data: ".length)));
  assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.total_tokens, 15);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
  assert.ok(chunks.slice(0, -1).every(({ usage }) => usage === null));
});

test("POST /v1/chat/completions takes what LibreChat sends: nulls for what is not set, a name, and user", async (t) => {
  const { service } = await serve(t);
  const reply = await service.post("/v1/chat/completions", {
    model: "assistant",
    messages: [{ role: "user", content: "Hello", name: "ada" }],
    temperature: null,
    top_p: null,
    max_tokens: null,
    stop: null,
    tools: null,
    response_format: null,
    user: "65f0",
    stream: false,
  });
  const completion = (await reply.json()) as Loose;
  assert.equal(completion.choices[0].message.content, "Hello");
});

test("openai 7 with its Idempotency-Key: what it sends again when a reply of POST /v1/chat/completions or /v1/responses was lost runs once", async (t) => {
  const { service, upstream } = await serve(t);
  const keys: (string | null)[] = [];
  /** Answers as the service does, but loses every first reply. */
  const lossy: typeof fetch = async (address, init) => {
    const reply = await fetch(address, init);
    keys.push(new Headers(init?.headers).get("idempotency-key"));
    if (keys.length % 2 === 0) return reply;
    await reply.text();
    throw new Error("the connection is gone");
  };
  const client = new OpenAI({ apiKey: "key", baseURL: `${service.url}/v1`, fetch: lossy });
  Object.assign(client, { idempotencyHeader: "Idempotency-Key" });
  upstream.fallback(() => says(`Answer ${upstream.requests.length}`));
  const chat = { model: "assistant", messages: HELLO };
  const response = { model: "assistant", input: "Hello" };
  const whole = await client.chat.completions.create(chat);
  const chunks = await collect(await client.chat.completions.create({ ...chat, stream: true }));
  const answered = await client.responses.create(response);
  const events = await collect(await client.responses.create({ ...response, stream: true }));
  const streamed = events.flatMap((event) => (event.type === "response.output_text.done" ? [event.text] : []));
  assert.deepEqual(
    [
      whole.choices[0]!.message.content,
      chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join(""),
      answered.output_text,
      ...streamed,
    ],
    ["Answer 1", "Answer 2", "Answer 3", "Answer 4"],
  );
  assert.equal(upstream.requests.length, 4);
  assert.equal(keys.length, 8);
  assert.equal(new Set(keys).size, 4);
  for (const key of keys) assert.match(key!, /^stainless-node-retry-/);
});
