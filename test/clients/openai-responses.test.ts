/** Responses over agents: the real `openai` 7, and the AI SDK's packages for OpenAI's and for open Responses. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import OpenAI from "openai";
import { makeParseableTextFormat } from "openai/lib/parser";
import { calls, failsAfter, failure, says, saysJson } from "../support/openai-upstream.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { load } from "./chat.ts";

const TOOLS = { sum: { use: "add" } };
const PARAMETERS = { type: "object", properties: { location: { type: "string" } }, required: ["location"] };
const WEATHER = { type: "function", name: "get_weather", description: "The weather", parameters: PARAMETERS } as const;
const asksWeather = () => calls([{ id: "c1", name: "get_weather", input: { location: "Oslo" } }]);
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** The service, its upstream, and the client of `openai` 7. */
async function serve(t: TestContext, agent: object = {}, rest: object = {}) {
  const served = await serveUpstream(t, { tools: ["sum"], ...agent }, { tools: TOOLS, ...rest });
  const client: Loose = new OpenAI({ apiKey: "key", baseURL: `${served.service.url}/v1` });
  return { ...served, client };
}

const collect = async <T>(stream: AsyncIterable<T>): Promise<T[]> => {
  const all: T[] = [];
  for await (const each of stream) all.push(each);
  return all;
};
const said = (request: Loose) =>
  request.body.messages.map(({ role, content, tool_calls }: Loose) => [
    role,
    content ?? tool_calls.map((call: Loose) => call.function.name).join(),
  ]);

test("openai 7: POST /v1/responses answers a text with items, their text, and the usage", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(says("Hi there.", { usage: { prompt: 12, completion: 3, cached: 4, reasoning: 1 } }));
  const response = await client.responses.create({
    model: "assistant",
    instructions: "Be short.",
    input: "Hello",
    temperature: 1.5,
    max_output_tokens: 50,
    metadata: { order: "1042" },
  });
  assert.deepEqual([response.status, response.output_text, response.model], ["completed", "Hi there.", "assistant"]);
  assert.deepEqual(
    response.output.map(({ type, status, role }: Loose) => [type, status, role]),
    [["message", "completed", "assistant"]],
  );
  assert.deepEqual(response.usage, {
    input_tokens: 12,
    input_tokens_details: { cached_tokens: 4 },
    output_tokens: 3,
    output_tokens_details: { reasoning_tokens: 1 },
    total_tokens: 15,
  });
  assert.deepEqual([response.metadata, response.temperature], [{ order: "1042" }, 1.5]);
  assert.deepEqual(said(upstream.requests[0]), [
    ["system", "Help."],
    ["system", "Be short."],
    ["user", "Hello"],
  ]);
});

test("openai 7: the stream helper over POST /v1/responses gets every event in order, the text and the final response", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(says("One two three.", { chunks: 3, reasoning: "Counting." }));
  const stream = client.responses.stream({ model: "assistant", input: "Hello" });
  const events: Loose[] = [];
  stream.on("event", (event: Loose) => events.push(event));
  const response = await stream.finalResponse();
  assert.equal(response.output_text, "One two three.");
  assert.deepEqual(
    events.map(({ sequence_number }) => sequence_number),
    events.map((_event, index) => index),
  );
  const summary = "response.reasoning_summary";
  assert.deepEqual(
    events.map(({ type }) => type),
    [
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      `${summary}_part.added`,
      `${summary}_text.delta`,
      `${summary}_text.done`,
      `${summary}_part.done`,
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.delta",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ],
  );
});

test("openai 7: POST /v1/responses shows the agent's own tool calls as items of a type of their own, in streams and where they are included", async (t) => {
  const { client, upstream } = await serve(t);
  const turn = () => [calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("It is 3.")];
  upstream.replies(...turn(), ...turn());
  const include = ["penstock:tool_call"];
  const whole = await client.responses.create({ model: "assistant", input: "1 + 2?", include });
  const streamed = await client.responses.stream({ model: "assistant", input: "1 + 2?" }).finalResponse();
  for (const { output, output_text } of [whole, streamed, await client.responses.retrieve(whole.id)]) {
    const [call, message] = output;
    assert.deepEqual(
      [call.type, call.status, call.call_id, call.name, call.arguments, call.output, call.error],
      ["penstock:tool_call", "completed", "c1", "sum", '{"a":1,"b":2}', { sum: 3 }, null],
    );
    assert.deepEqual([message.type, output_text], ["message", "It is 3."]);
  }
});

test("openai 7: function tools of POST /v1/responses go out to the client and come back, with the history and with previous_response_id", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(asksWeather(), says("Rain."), says("Rain again."));
  const input: Loose[] = [{ role: "user", content: "Weather?" }];
  const first = await client.responses.create({ model: "assistant", input, tools: [WEATHER] });
  const [call] = first.output;
  assert.deepEqual([call.type, call.call_id, call.name], ["function_call", "c1", "get_weather"]);
  assert.deepEqual([first.status, JSON.parse(call.arguments)], ["completed", { location: "Oslo" }]);
  const answer = { type: "function_call_output", call_id: call.call_id, output: "rain" };
  const second = await client.responses.create({
    model: "assistant",
    input: [...input, ...first.output, answer],
    tools: [WEATHER],
  });
  assert.equal(second.output_text, "Rain.");
  const third = await client.responses.create({
    model: "assistant",
    previous_response_id: first.id,
    input: [answer],
    tools: [WEATHER],
  });
  assert.equal(third.output_text, "Rain again.");
  assert.equal(third.previous_response_id, first.id);
  for (const request of upstream.requests.slice(1)) {
    assert.deepEqual(said(request), [
      ["system", "Help."],
      ["user", "Weather?"],
      ["assistant", "get_weather"],
      ["tool", "rain"],
    ]);
  }
});

test("openai 7: POST /v1/responses hands the files in the outputs of functions to the model, behind all outputs, since a tool's message has text alone", async (t) => {
  const { client, upstream } = await serve(t);
  const image = "data:image/png;base64,iVBORw0KGgo=";
  const call = (call_id: string): Loose => ({ type: "function_call", call_id, name: "get_weather", arguments: "{}" });
  const output: Loose = [
    { type: "input_text", text: "map" },
    { type: "input_image", image_url: image },
    { type: "input_image", image_url: "https://example.com/b.png" },
    { type: "input_file", file_data: "data:video/mp4;base64,AAAA" },
  ];
  await client.responses.create({
    model: "assistant",
    input: [
      { role: "user", content: "Weather?" },
      call("c1"),
      call("c2"),
      { type: "function_call_output", call_id: "c1", output },
      { type: "function_call_output", call_id: "c2", output: "rain" },
      { role: "user", content: "Well?" },
    ],
    tools: [WEATHER],
  });
  const told = upstream.requests[0]!.body.messages.slice(3);
  const place = "[The file is in the next message of the user.]";
  const left = "[A file was here, which this model does not take: video/mp4]";
  assert.deepEqual(told, [
    { role: "tool", tool_call_id: "c1", content: ["map", place, place, left].join("\n") },
    { role: "tool", tool_call_id: "c2", content: "rain" },
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: image } },
        { type: "image_url", image_url: { url: "https://example.com/b.png" } },
      ],
    },
    { role: "user", content: "Well?" },
  ]);
});

test("openai 7: parse over POST /v1/responses gives a value of the schema, whole and streamed, also when the model had to be asked again", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(says("Oslo, I think"), saysJson({ city: "Oslo" }), saysJson({ city: "Rome" }));
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const format = makeParseableTextFormat({ type: "json_schema", name: "city", schema }, JSON.parse);
  const request = { model: "assistant", input: "Where?", text: { format } };
  const whole = await client.responses.parse(request);
  assert.deepEqual(whole.output_parsed, { city: "Oslo" });
  const streamed = await client.responses.stream(request).finalResponse();
  assert.deepEqual(streamed.output_parsed, { city: "Rome" });
});

test("openai 7: previous_response_id continues the conversation with its own tool calls, and without the instructions of before", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("3."), says("Yes."), says("Sure."));
  const model = "assistant";
  const first = await client.responses.create({ model, input: "1 + 2?", instructions: "Be short." });
  const second = await client.responses.create({ model, input: "Really?", previous_response_id: first.id });
  await client.responses.create({ model, input: "Sure?", previous_response_id: second.id });
  assert.deepEqual(said(upstream.requests[3]), [
    ["system", "Help."],
    ["user", "1 + 2?"],
    ["assistant", "sum"],
    ["tool", '{"sum":3}'],
    ["assistant", "3."],
    ["user", "Really?"],
    ["assistant", "Yes."],
    ["user", "Sure?"],
  ]);
});

test("openai 7: stored responses are read, their input is listed, and they are deleted; with store false there is nothing", async (t) => {
  const { client } = await serve(t);
  const input = ["One", "Two", "Three"].map((content) => ({ role: "user", content }));
  const response = await client.responses.create({ model: "assistant", input });
  const { output_text: _, ...created } = response;
  const { output_text, ...read } = await client.responses.retrieve(response.id);
  assert.deepEqual([read, output_text], [created, "Three"]);

  const texts = (items: Loose[]) => items.map(({ content }) => content[0].text);
  const page = await client.responses.inputItems.list(response.id, { limit: 2 });
  assert.deepEqual([texts(page.data), page.has_more], [["Three", "Two"], true]);
  assert.deepEqual(texts(await collect(page)), ["Three", "Two", "One"]);
  const ascending = await client.responses.inputItems.list(response.id, { order: "asc" });
  assert.deepEqual([texts(ascending.data), ascending.has_more], [["One", "Two", "Three"], false]);

  await client.responses.delete(response.id);
  const kept = await client.responses.create({ model: "assistant", input: "x", store: false });
  assert.equal(kept.store, false);
  for (const { id } of [response, kept]) {
    await assert.rejects(client.responses.retrieve(id), OpenAI.NotFoundError);
    await assert.rejects(client.responses.inputItems.list(id), OpenAI.NotFoundError);
    await assert.rejects(
      client.responses.create({ model: "assistant", input: "x", previous_response_id: id }),
      (error: Loose) => error.status === 400 && error.code === "previous_response_not_found",
    );
  }
});

test("openai 7: POST /v1/responses with background answers at once, and the response is there when the run has ended", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(says("Done at last.", { delay: 20 }));
  const begun = await client.responses.create({ model: "assistant", input: "Work", background: true });
  assert.deepEqual([begun.status, begun.background, begun.output], ["in_progress", true, []]);
  let response = begun;
  while (response.status === "in_progress") response = await client.responses.retrieve(begun.id);
  assert.deepEqual([response.status, response.output_text], ["completed", "Done at last."]);
});

test("openai 7: POST /v1/responses/:id/cancel stops the model, and a second time gives the same", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies({ steps: [{ text: "Some words" }, { stall: true }] });
  const begun = await client.responses.create({ model: "assistant", input: "Work", background: true });
  const request = await upstream.request(0);
  for (let round = 0; round < 2; round++) assert.equal((await client.responses.cancel(begun.id)).status, "cancelled");
  await request.aborted;
  assert.equal((await client.responses.retrieve(begun.id)).status, "cancelled");
  const { id } = await client.responses.create({ model: "assistant", input: "Hello" });
  await assert.rejects(client.responses.cancel(id), OpenAI.BadRequestError);
});

test("openai 7: DELETE /v1/responses/:id stops a response that runs in the background", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies({ steps: [{ text: "Some words" }, { stall: true }] });
  const { id } = await client.responses.create({ model: "assistant", input: "Work", background: true });
  const request = await upstream.request(0);
  await client.responses.delete(id);
  await request.aborted;
  await assert.rejects(client.responses.retrieve(id), OpenAI.NotFoundError);
});

test("openai 7: a response in the background is streamed at once, and its stream is taken up again behind any of its events", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("It is 3.", { chunks: 3 }));
  const request = { model: "assistant", input: "Work", background: true, stream: true };
  const events = await collect<Loose>(await client.responses.create(request));
  const { id } = events[0].response;
  assert.deepEqual([events[0].type, events.at(-1).type], ["response.created", "response.completed"]);
  assert.deepEqual(
    events.map(({ sequence_number }) => sequence_number),
    events.map((_event, index) => index),
  );
  for (const after of [0, 4, events.length - 2]) {
    const rest = await client.responses.retrieve(id, { stream: true, starting_after: after });
    assert.deepEqual(await collect(rest), events.slice(after + 1));
  }
  const again = await client.responses.stream({ response_id: id }).finalResponse();
  const read = await client.responses.retrieve(id);
  const ids = ({ output }: Loose) => output.map((item: Loose) => [item.type, item.id]);
  assert.deepEqual([again.output_text, ids(again)], ["It is 3.", ids(read)]);
});

test("openai 7: the stream of a response in the background that failed, or was cancelled, ends with an error", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(failsAfter("Some words"), { steps: [{ text: "Some words" }, { stall: true }] });
  const request = { model: "assistant", input: "Work", background: true };
  const failed = await client.responses.create(request);
  const ends = (id: string) => collect(client.responses.stream({ response_id: id }));
  await assert.rejects(ends(failed.id), (error: Loose) => error.code === "model_error");
  const stalled = await client.responses.create(request);
  const reading = assert.rejects(ends(stalled.id), (error: Loose) => error.code === "cancelled");
  await upstream.request(1);
  await client.responses.cancel(stalled.id);
  await reading;
});

test("openai 7: a background response whose model fails is failed, and says why", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.fallback(failure(500));
  let response = await client.responses.create({ model: "assistant", input: "Work", background: true });
  while (response.status === "in_progress") response = await client.responses.retrieve(response.id);
  assert.deepEqual([response.status, response.error.code], ["failed", "model_error"]);
});

test("openai 7: a failure of POST /v1/responses is an error reply before the first event, and an error event after it", async (t) => {
  const { client, upstream } = await serve(t);
  upstream.replies(failure(500), failure(500), failsAfter("Some words"));
  const request = { model: "assistant", input: "Hello" };
  for (const stream of [false, true])
    await assert.rejects(client.responses.create({ ...request, stream }), (error: Loose) => error.status === 500);
  await assert.rejects(
    client.responses.stream(request).finalResponse(),
    (error: Loose) => error.code === "model_error",
  );
  assert.equal(upstream.requests.length, 3);
});

test("openai 7: POST /v1/responses hands images and files to the model", async (t) => {
  const { client, upstream } = await serve(t);
  const file = "data:application/pdf;base64,JVBERi0xLjQ=";
  const content = [
    { type: "input_text", text: "What is this?" },
    { type: "input_image", image_url: PIXEL, detail: "auto" },
    { type: "input_file", filename: "a.pdf", file_data: file },
  ];
  await client.responses.create({ model: "assistant", input: [{ role: "user", content }] });
  assert.deepEqual(upstream.requests[0]!.body.messages.at(-1).content, [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: PIXEL } },
    { type: "file", file: { filename: "a.pdf", file_data: file } },
  ]);
});

test("openai 7: tool_choice of POST /v1/responses: none and allowed_tools keep functions from the model, a name forces one", async (t) => {
  const { client, upstream } = await serve(t);
  const other = { ...WEATHER, name: "get_time" };
  const functions = (index: number) => upstream.requests[index]!.body.tools.map((tool: Loose) => tool.function.name);
  const ask = (tool_choice: unknown) =>
    client.responses.create({ model: "assistant", input: "x", tools: [WEATHER, other], tool_choice });
  await ask("none");
  await ask({ type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "get_time" }] });
  await ask({ type: "function", name: "get_weather" });
  assert.deepEqual([functions(0), functions(1)], [["sum"], ["sum", "get_time"]]);
  assert.deepEqual(upstream.requests[2]!.body.tool_choice, { type: "function", function: { name: "get_weather" } });
});

const SDKS = [
  ["ai", "@ai-sdk/openai", "ai-sdk-open-responses-1"],
  ["ai-7", "ai-sdk-openai-4", "@ai-sdk/open-responses"],
] as const;

for (const [sdk, openai, open] of SDKS) {
  describe(`${sdk} over POST /v1/responses`, async () => {
    const ai: Loose = await load(sdk);
    const [{ createOpenAI }, { createOpenResponses }]: Loose[] = await Promise.all([import(openai), import(open)]);
    const modelsOf = (url: string): [string, Loose][] => [
      [openai, createOpenAI({ apiKey: "key", baseURL: `${url}/v1` })("assistant")],
      [open, createOpenResponses({ name: "penstock", apiKey: "key", url: `${url}/v1/responses` })("assistant")],
    ];

    test(`${sdk}: POST /v1/responses answers generateText and streamText of ${openai} and ${open}, reasoning and the agent's own calls beside`, async (t) => {
      const { service, upstream } = await serve(t);
      for (const [name, model] of modelsOf(service.url)) {
        const own = calls([{ name: "sum", input: { a: 1, b: 2 } }]);
        upstream.replies(own, says("It is 3."), own, says("One two three.", { chunks: 3, reasoning: "Counting." }));
        const whole = await ai.generateText({ model, prompt: "Hello" });
        assert.deepEqual([whole.text, whole.finishReason, whole.toolCalls], ["It is 3.", "stop", []], name);
        assert.equal(whole.usage.totalTokens, 30, name);
        const streamed = ai.streamText({ model, prompt: "Hello" });
        assert.equal((await collect(streamed.textStream)).join(""), "One two three.", name);
        assert.deepEqual([await streamed.finishReason, await streamed.toolCalls], ["stop", []], name);
        assert.equal(await streamed.reasoningText, "Counting.", name);
      }
    });

    test(`${sdk}: POST /v1/responses lets ${openai} and ${open} run a tool of the client's, whole and streamed, with store and without`, async (t) => {
      const { service, upstream } = await serve(t);
      for (const [name, model] of modelsOf(service.url)) {
        for (const store of [true, false]) {
          upstream.replies(asksWeather(), says("Rain."), asksWeather(), says("Rain."));
          const inputs: Loose[] = [];
          const tools = {
            get_weather: ai.tool({
              description: "The weather",
              inputSchema: ai.jsonSchema(PARAMETERS),
              execute: async (input: Loose) => {
                inputs.push(input);
                return "rain";
              },
            }),
          };
          const settings = {
            model,
            prompt: "Hello",
            tools,
            stopWhen: (ai.stepCountIs ?? ai.isStepCount)(3),
            providerOptions: { openai: { store } },
          };
          assert.equal((await ai.generateText(settings)).text, "Rain.", name);
          assert.equal(await ai.streamText(settings).text, "Rain.", name);
          assert.deepEqual(inputs, [{ location: "Oslo" }, { location: "Oslo" }], name);
          assert.deepEqual(said(upstream.requests.at(-1)).slice(-2), [
            ["assistant", "get_weather"],
            ["tool", "rain"],
          ]);
        }
      }
    });

    test(`${sdk}: a failure of POST /v1/responses reaches ${openai} and ${open} with its message, whole and in the middle of a stream`, async (t) => {
      const { service, upstream } = await serve(t);
      for (const [name, model] of modelsOf(service.url)) {
        upstream.replies(failure(500), failsAfter("Some words"));
        await assert.rejects(
          ai.generateText({ model, prompt: "Hello", maxRetries: 0 }),
          (error: Loose) => error.statusCode === 500 && /upstream says 500|provider/.test(error.message),
          name,
        );
        const streamed = ai.streamText({ model, prompt: "Hello", maxRetries: 0, onError: () => {} });
        const parts: Loose[] = await collect(streamed.fullStream ?? streamed.stream);
        assert.equal(parts.findLast(({ type }) => type === "finish").finishReason, "error", name);
        const errors = parts.filter(({ type }) => type === "error").map(({ error }) => error);
        // The oldest of them tells the end alone.
        if (open !== "ai-sdk-open-responses-1" || name !== open)
          assert.match(JSON.stringify(errors.map((error) => error.message ?? error)), /model/, name);
      }
    });
  });
}
