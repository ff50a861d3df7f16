/** The tests of the Open Responses suite, written anew: what each sends, what it asserts, and every object and event checked against its schema. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { calls, says } from "../support/openai-upstream.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const object = (required: string[], properties: object = {}) => ({ type: "object", required, properties });
const text = { type: "string" };
const count = { type: "integer", minimum: 0 };
const orNull = (type: string) => ({ type: [type, "null"] });
const is = (value: unknown) => ({ const: value });
const list = (items: object) => ({ type: "array", items });
const STATUS = { enum: ["in_progress", "completed", "incomplete"] };

const OUTPUT_TEXT = object(["type", "text", "annotations"], {
  type: is("output_text"),
  text,
  annotations: list({ type: "object" }),
});
const SUMMARY_TEXT = object(["type", "text"], { type: is("summary_text"), text });
const ITEM = {
  oneOf: [
    object(["id", "type", "status", "role", "content"], {
      id: text,
      type: is("message"),
      status: STATUS,
      role: is("assistant"),
      content: list(OUTPUT_TEXT),
      phase: { enum: ["commentary", "final_answer"] },
    }),
    object(["id", "type", "call_id", "name", "arguments", "status"], {
      type: is("function_call"),
      id: text,
      call_id: { type: "string", minLength: 1, maxLength: 64 },
      name: text,
      arguments: text,
      status: STATUS,
    }),
    object(["id", "type", "summary"], { id: text, type: is("reasoning"), summary: list(SUMMARY_TEXT) }),
  ],
};
const USAGE = object(
  ["input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"],
  {
    input_tokens: count,
    output_tokens: count,
    total_tokens: count,
    input_tokens_details: object(["cached_tokens"], { cached_tokens: count }),
    output_tokens_details: object(["reasoning_tokens"], { reasoning_tokens: count }),
  },
);
const TOOL = object(["type", "name", "description", "parameters", "strict"], {
  type: is("function"),
  name: text,
  description: orNull("string"),
  parameters: orNull("object"),
  strict: orNull("boolean"),
});
const FIELDS: Record<string, object> = {
  id: { type: "string", pattern: "^resp_" },
  object: is("response"),
  created_at: count,
  completed_at: orNull("integer"),
  status: { enum: ["queued", "in_progress", "completed", "incomplete", "failed"] },
  incomplete_details: { anyOf: [object(["reason"], { reason: text }), { type: "null" }] },
  model: text,
  previous_response_id: orNull("string"),
  instructions: orNull("string"),
  output: list(ITEM),
  error: { anyOf: [object(["code", "message"], { code: text, message: text }), { type: "null" }] },
  tools: list(TOOL),
  tool_choice: { type: ["string", "object"] },
  truncation: { enum: ["auto", "disabled"] },
  parallel_tool_calls: { type: "boolean" },
  text: object(["format"], { format: object(["type"]) }),
  top_p: { type: "number" },
  presence_penalty: { type: "number" },
  frequency_penalty: { type: "number" },
  top_logprobs: count,
  temperature: { type: "number" },
  reasoning: { anyOf: [object(["effort", "summary"]), { type: "null" }] },
  usage: { anyOf: [USAGE, { type: "null" }] },
  max_output_tokens: orNull("integer"),
  max_tool_calls: orNull("integer"),
  store: { type: "boolean" },
  background: { type: "boolean" },
  service_tier: text,
  metadata: { type: "object" },
  safety_identifier: orNull("string"),
  prompt_cache_key: orNull("string"),
};
const RESOURCE = object(Object.keys(FIELDS), FIELDS);

const event = (type: string, fields: Record<string, object>) => {
  const own: Record<string, object> = { type: is(type), sequence_number: count, ...fields };
  return object(Object.keys(own), own);
};
const AT = { item_id: { type: "string", minLength: 1 }, output_index: count };
const CONTENT = { ...AT, content_index: count };
const SUMMARY = { ...AT, summary_index: count };
const LOGPROBS = { logprobs: { type: "array" } };
const EVENT = {
  oneOf: [
    ...["created", "in_progress", "completed", "incomplete", "failed"].map((state) =>
      event(`response.${state}`, { response: RESOURCE }),
    ),
    event("response.output_item.added", { output_index: count, item: ITEM }),
    event("response.output_item.done", { output_index: count, item: ITEM }),
    event("response.content_part.added", { ...CONTENT, part: OUTPUT_TEXT }),
    event("response.content_part.done", { ...CONTENT, part: OUTPUT_TEXT }),
    event("response.output_text.delta", { ...CONTENT, delta: text, ...LOGPROBS }),
    event("response.output_text.done", { ...CONTENT, text, ...LOGPROBS }),
    event("response.function_call_arguments.delta", { ...AT, delta: text }),
    event("response.function_call_arguments.done", { ...AT, arguments: text }),
    event("response.reasoning_summary_part.added", { ...SUMMARY, part: SUMMARY_TEXT }),
    event("response.reasoning_summary_part.done", { ...SUMMARY, part: SUMMARY_TEXT }),
    event("response.reasoning_summary_text.delta", { ...SUMMARY, delta: text }),
    event("response.reasoning_summary_text.done", { ...SUMMARY, text }),
    event("error", {
      error: object(["type", "code", "message", "param"], { type: text, code: text, message: text, param: text }),
    }),
  ],
};
const ajv = new Ajv2020({ allErrors: false, strict: false });
const [isResource, isEvent]: Loose[] = [ajv.compile(RESOURCE), ajv.compile(EVENT)];

const user = (content: unknown) => ({ type: "message", role: "user", content });
const WEATHER = {
  type: "function",
  name: "get_weather",
  description: "Get the current weather for a location",
  parameters: { type: "object", properties: { location: { type: "string" } }, required: ["location"] },
};
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

type Check = (response: Loose, events: readonly Loose[]) => void;
interface Template {
  readonly name: string;
  readonly body: object;
  readonly check?: Check;
}

const calledWeather: Check = ({ output }) => {
  const call = output.find(({ type }: Loose) => type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { location: "San Francisco" });
};

const TEMPLATES: readonly Template[] = [
  { name: "basic-response: one message of a user", body: { input: [user("Say hello in exactly 3 words.")] } },
  {
    name: "assistant-phase: a history with phases",
    body: {
      input: [
        user("What is 2 + 2?"),
        { type: "message", role: "assistant", phase: "commentary", content: "Let me think." },
        { type: "message", role: "assistant", phase: "final_answer", content: [{ type: "output_text", text: "4" }] },
        user("And 3 + 3?"),
      ],
    },
  },
  {
    name: "streaming-response: a stream whose events are all valid",
    body: { stream: true, input: [user("Count from 1 to 5.")] },
    check: (_response, events) => assert.ok(events.some(({ type }) => type === "response.output_text.delta")),
  },
  {
    name: "system-prompt: a system message before that of the user",
    body: { input: [{ type: "message", role: "system", content: "You are a pirate." }, user("Say hello.")] },
  },
  {
    name: "tool-calling: a function that the model calls",
    body: { input: [user("What's the weather like in San Francisco?")], tools: [WEATHER] },
    check: calledWeather,
  },
  {
    name: "tool-calling-streaming: the same in a stream",
    body: { stream: true, input: [user("What's the weather like in San Francisco?")], tools: [WEATHER] },
    check(response, events) {
      calledWeather(response, events);
      const types = events.map(({ type }) => type);
      for (const type of ["arguments.delta", "arguments.done"])
        assert.ok(types.includes(`response.function_call_${type}`), type);
      for (const type of ["added", "done"])
        assert.ok(
          events.some((each) => each.type === `response.output_item.${type}` && each.item.type === "function_call"),
        );
    },
  },
  {
    name: "image-input: an image as a data URL",
    body: {
      input: [
        user([
          { type: "input_text", text: "What do you see?" },
          { type: "input_image", image_url: PIXEL },
        ]),
      ],
    },
  },
  {
    name: "multi-turn: a conversation",
    body: {
      input: [
        user("My name is Alice."),
        { type: "message", role: "assistant", content: "Hello Alice!" },
        user("What is my name?"),
      ],
    },
  },
];

/** The events of a stream, each written in one piece: the suite's own reader needs that. */
function eventsOf(body: string): Loose[] {
  assert.ok(!body.includes("\r"));
  const blocks = body.split("\n\n").filter((block) => block !== "");
  assert.equal(blocks.pop(), "data: [DONE]");
  return blocks.map((block, index) => {
    const [name, data, ...none] = block.split("\n");
    assert.deepEqual(none, []);
    const sent = JSON.parse(data!.slice("data: ".length));
    assert.equal(name, `event: ${sent.type}`);
    assert.equal(sent.sequence_number, index);
    return sent;
  });
}

for (const { name, body, check } of TEMPLATES) {
  test(`POST /v1/responses passes Open Responses' ${name}`, async (t) => {
    const { service, upstream } = await serveUpstream(t);
    const weather = calls([{ name: "get_weather", input: { location: "San Francisco" } }]);
    upstream.fallback(({ body }) => (body.tools === undefined ? says("Hello there friend.", { chunks: 3 }) : weather));
    const reply = await service.post("/v1/responses", { model: "assistant", ...body });
    assert.equal(reply.status, 200);
    const sent = await reply.text();
    const streamed = "stream" in body;
    const events = streamed ? eventsOf(sent) : [];
    for (const each of events) assert.ok(isEvent(each), `${JSON.stringify(each)}: ${JSON.stringify(isEvent.errors)}`);
    const response: Loose = streamed ? events.at(-1).response : JSON.parse(sent);
    assert.ok(isResource(response), JSON.stringify(isResource.errors));
    assert.equal(response.status, "completed");
    assert.ok(response.output.length > 0);
    check?.(response, events);
  });
}

test("POST /v1/responses passes Open Responses' response-output-phase-schema: the phase of a message is kept with it", async (t) => {
  const { service } = await serveUpstream(t);
  const answer = { type: "message", role: "assistant", phase: "commentary", content: "Let me think." };
  const body = { model: "assistant", input: [user("Hello"), answer, user("Go on")] };
  const { id } = (await (await service.post("/v1/responses", body)).json()) as Loose;
  const { data } = (await (await service.get(`/v1/responses/${id}/input_items?order=asc`)).json()) as Loose;
  assert.deepEqual(
    data.map(({ role, phase }: Loose) => [role, phase]),
    [
      ["user", undefined],
      ["assistant", "commentary"],
      ["user", undefined],
    ],
  );
});

test("POST /v1/responses is previous_response_not_found over a chain that is unknown or was not stored, and goes on with a clean turn", async (t) => {
  const { service } = await serveUpstream(t);
  const ask = async (body: object) => {
    const reply = await service.post("/v1/responses", { model: "assistant", ...body });
    return { status: reply.status, body: (await reply.json()) as Loose };
  };
  const unstored = await ask({ input: [user("One")], store: false });
  for (const id of [unstored.body.id, "resp_unknown", "x/y"]) {
    const { status, body } = await ask({ input: [user("Two")], previous_response_id: id });
    assert.deepEqual(
      [status, body.error.code, body.error.param],
      [400, "previous_response_not_found", "previous_response_id"],
    );
  }
  assert.equal((await ask({ input: [user("Three")] })).body.status, "completed");
});

test("POST /v1/responses refuses an output for a call that is not open, in the request and in what it continues", async (t) => {
  const { service } = await serveUpstream(t);
  const first = (await (await service.post("/v1/responses", { model: "assistant", input: "Hello" })).json()) as Loose;
  const output = { type: "function_call_output", call_id: "c9", output: "x" };
  for (const more of [{}, { previous_response_id: first.id }]) {
    const reply = await service.post("/v1/responses", { model: "assistant", input: [output], ...more });
    assert.equal(reply.status, 400);
    assert.equal(((await reply.json()) as Loose).error.param, "input[0].call_id");
  }
});

const isCompaction: Loose = ajv.compile(
  object(["id", "object", "created_at", "output", "usage"], {
    id: text,
    object: is("response.compaction"),
    created_at: count,
    output: list(
      object(["id", "type", "encrypted_content"], {
        id: text,
        type: is("compaction"),
        encrypted_content: { type: "string", minLength: 1 },
      }),
    ),
    usage: USAGE,
  }),
);

test("POST /v1/responses/compact passes Open Responses' compact-response: a compaction item", async (t) => {
  const { service } = await serveUpstream(t);
  const input = [user("Say hello."), { type: "message", role: "assistant", content: "Hello!" }, user("Go on")];
  const reply = await service.post("/v1/responses/compact", { model: "assistant", input, prompt_cache_key: "key" });
  assert.equal(reply.status, 200);
  const compaction: Loose = await reply.json();
  assert.ok(isCompaction(compaction), JSON.stringify(isCompaction.errors));
  assert.equal(compaction.output.length, 1);
});

test("POST /v1/responses/compact passes Open Responses' compact-missing-model: 400", async (t) => {
  const { service } = await serveUpstream(t);
  const reply = await service.post("/v1/responses/compact", { input: [user("Hello")] });
  assert.equal(reply.status, 400);
  assert.equal(((await reply.json()) as Loose).error.param, "model");
});

/** The events of the next response of a socket, each checked, or the error that is there in its place. */
async function turn(socket: TestSocket, body: object): Promise<{ response?: Loose; error?: Loose; events: Loose[] }> {
  socket.send({ type: "response.create", model: "assistant", ...body });
  const events: Loose[] = [];
  for (;;) {
    const event = await socket.next();
    if (event.type === "error" && events.length === 0) {
      assert.equal(typeof event.status, "number");
      return { error: event.error, events };
    }
    assert.ok(isEvent(event), `${JSON.stringify(event)}: ${JSON.stringify(isEvent.errors)}`);
    assert.equal(event.sequence_number, events.push(event) - 1);
    if (/^response\.(completed|incomplete|failed)$/.test(event.type)) {
      assert.ok(isResource(event.response), JSON.stringify(isResource.errors));
      return { response: event.response, events };
    }
  }
}

interface Turns {
  readonly name: string;
  run(open: () => Promise<TestSocket>, service: Loose): Promise<void>;
}

const completes = async (socket: TestSocket, body: object): Promise<Loose> => {
  const { response, error } = await turn(socket, body);
  assert.equal(response?.status, "completed", JSON.stringify(error));
  assert.ok(response.output.length > 0);
  return response;
};
const failsWith = async (socket: TestSocket, body: object, code: string): Promise<void> => {
  const { error } = await turn(socket, body);
  assert.equal(error?.code, code);
};

const WS_TEMPLATES: readonly Turns[] = [
  {
    name: "websocket-response: one response",
    async run(open) {
      const { events, response } = await turn(await open(), { input: [user("Say hello.")] });
      assert.equal(response.status, "completed");
      assert.ok(events.some(({ type }) => type === "response.output_text.delta"));
    },
  },
  {
    name: "websocket-sequential-responses: two that are not stored",
    async run(open) {
      const socket = await open();
      for (const text of ["One", "Two"]) await completes(socket, { store: false, input: [user(text)] });
    },
  },
  {
    name: "websocket-continuation: one that is not stored is continued on its socket",
    async run(open) {
      const socket = await open();
      const { id } = await completes(socket, { store: false, input: [user("My name is Alice.")] });
      await completes(socket, { store: false, previous_response_id: id, input: [user("What is my name?")] });
    },
  },
  {
    name: "websocket-reconnect-store-false-recovery: on another socket it does not exist, and a clean turn goes on there",
    async run(open) {
      const { id } = await completes(await open(), { store: false, input: [user("One")] });
      const socket = await open();
      const input = [user("Two")];
      await failsWith(socket, { store: false, previous_response_id: id, input }, "previous_response_not_found");
      await completes(socket, { store: false, input });
    },
  },
  {
    name: "websocket-previous-response-not-found: an unknown response",
    async run(open) {
      const body = { previous_response_id: "resp_unknown", input: [user("One")] };
      await failsWith(await open(), body, "previous_response_not_found");
    },
  },
  {
    name: "websocket-failed-continuation-evicts-cache: after a turn that failed its response cannot be continued",
    async run(open) {
      const socket = await open();
      const { id } = await completes(socket, { store: false, input: [user("One")] });
      const more = { store: false, previous_response_id: id };
      const output = { type: "function_call_output", call_id: "call_unknown", output: "x" };
      await failsWith(socket, { ...more, input: [output] }, "invalid_value");
      await failsWith(socket, { ...more, input: [user("Two")] }, "previous_response_not_found");
    },
  },
  {
    name: "websocket-compact-new-chain: what a conversation was compacted to begins another one",
    async run(open, service) {
      const body = { model: "assistant", input: [user("My name is Alice."), user("I like tea.")] };
      const { output } = await (await service.post("/v1/responses/compact", body)).json();
      await completes(await open(), { store: false, tools: [], input: [...output, user("What is my name?")] });
    },
  },
];

for (const transport of TRANSPORTS) {
  for (const { name, run } of WS_TEMPLATES) {
    test(`WS /v1/responses over ${transport} passes Open Responses' ${name}`, async (t) => {
      const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
      upstream.fallback(() => says("Hello there friend.", { chunks: 3 }));
      const sockets: TestSocket[] = [];
      t.after(() => Promise.all(sockets.map((socket) => socket.close())));
      await run(async () => {
        sockets.push(await openSocket(`${service.url}/v1/responses`));
        return sockets.at(-1)!;
      }, service);
    });
  }
}
