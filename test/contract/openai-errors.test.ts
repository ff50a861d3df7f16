/** Failures below `/v1`: OpenAI's shape on every path, with the field that is wrong, and nothing that a client would try again in vain. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AUTH, as, serveApprovals } from "../support/approvals.ts";
import { calls, failure, says } from "../support/openai-upstream.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const CHAT = "/v1/chat/completions";
const HELLO = [{ role: "user", content: "Hello" }];
const chat = (body: object) => ({ model: "assistant", messages: HELLO, ...body });
const named = (name: unknown) => ({ type: "function", function: { name } });

interface Seen {
  status: number;
  error: Loose;
  headers: Headers;
}

/** The failure of a reply, which has the four fields as texts and nothing else. */
async function seen(pending: Promise<Response>): Promise<Seen> {
  const { status, headers, ...reply } = await pending.then(async (each) => ({
    status: each.status,
    headers: each.headers,
    text: await each.text(),
  }));
  const { error, ...rest } = JSON.parse(reply.text);
  assert.deepEqual(rest, {}, reply.text);
  assert.deepEqual(Object.keys(error).sort(), ["code", "message", "param", "type"], reply.text);
  for (const [field, value] of Object.entries(error)) assert.equal(typeof value, "string", field);
  assert.notEqual(error.message, "");
  return { status, error, headers };
}

/** Bodies that are refused: the field that is named, and the code where it is not the usual one. */
const REFUSED: [body: unknown, param: string, code?: string][] = [
  ["{", ""],
  ["[]", ""],
  [{ messages: HELLO }, "model"],
  [{ model: "assistant" }, "messages"],
  [chat({ messages: [] }), "messages"],
  [chat({ messages: "Hello" }), "messages"],
  [chat({ messages: [{ role: "robot", content: "x" }] }), "messages[0].role"],
  [chat({ messages: [{ role: "user", content: 5 }] }), "messages[0].content"],
  [chat({ messages: [{ role: "user", content: "" }] }), "messages[0].content"],
  [chat({ messages: [{ role: "user", content: [{ type: "video" }] }] }), "messages[0].content[0].type"],
  [
    chat({ messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "ftp://x/y" } }] }] }),
    "messages[0].content[0].image_url.url",
  ],
  [chat({ messages: [...HELLO, { role: "tool", tool_call_id: "c9", content: "x" }] }), "messages[1].tool_call_id"],
  [chat({ temperature: 2.1 }), "temperature"],
  [chat({ presence_penalty: -3 }), "presence_penalty"],
  [chat({ max_tokens: 0 }), "max_tokens"],
  [chat({ max_completion_tokens: 600 }), "max_completion_tokens"],
  [chat({ n: 2 }), "n"],
  [chat({ logprobs: true }), "logprobs"],
  [chat({ top_logprobs: 2 }), "top_logprobs"],
  [chat({ logit_bias: { 50256: -100 } }), "logit_bias"],
  [chat({ audio: { voice: "alloy", format: "wav" } }), "audio"],
  [chat({ web_search_options: {} }), "web_search_options"],
  [chat({ modalities: ["audio"] }), "modalities[0]"],
  [chat({ functions: [] }), "functions"],
  [chat({ reasoning_effort: "high" }), "reasoning_effort"],
  [chat({ tools: [{ type: "web_search" }] }), "tools[0].type", "unsupported_parameter"],
  [chat({ tools: [named("not a name")] }), "tools[0].function.name"],
  [chat({ tools: [named("sum")] }), "tools[0].function.name"],
  [chat({ tools: [named("x"), named("x")] }), "tools[1].function.name"],
  [chat({ tool_choice: "required" }), "tool_choice"],
  [chat({ tools: [named("x")], tool_choice: named("y") }), "tool_choice"],
  [chat({ response_format: { type: "xml" } }), "response_format.type"],
  [chat({ response_format: { type: "json_schema", json_schema: {} } }), "response_format.json_schema.schema"],
  [
    chat({ response_format: { type: "json_schema", json_schema: { schema: { type: "object", $ref: "http://x" } } } }),
    "response_format.json_schema.schema",
  ],
];

test("POST /v1/chat/completions refuses a bad body with 400 in OpenAI's shape, and names the field as param", async (t) => {
  const agent = { tools: ["sum"], options: { maxOutputTokens: { max: 500 } } };
  const { service, upstream } = await serveUpstream(t, agent, { tools: { sum: { use: "add" } } });
  for (const [body, param, code = "invalid_value"] of REFUSED) {
    const { status, error } = await seen(service.post(CHAT, body));
    const text = JSON.stringify(body);
    assert.deepEqual([status, error.type, error.param, error.code], [400, "invalid_request_error", param, code], text);
  }
  assert.equal(upstream.requests.length, 0);
});

const RESPONSES = "/v1/responses";
const schema = (given: object) => ({ text: { format: { type: "json_schema", name: "a", schema: given } } });
/** JSON that is nested more deeply than a body may be. */
const asks = (body: object) => ({ model: "assistant", input: "Hello", ...body });
const item = (fields: object) => asks({ input: [fields] });

const REFUSED_RESPONSES: [body: unknown, status: number, param: string, code?: string][] = [
  ["{", 400, ""],
  [{ input: "x" }, 400, "model"],
  [{ model: "assistant" }, 400, "input"],
  [asks({ model: "nobody" }), 404, "model", "model_not_found"],
  [asks({ input: [] }), 400, "input"],
  [asks({ input: 5 }), 400, "input"],
  [asks({ input: " " }), 400, "input[0].content"],
  [item({ type: "video" }), 400, "input[0].type"],
  [item({ role: "robot", content: "x" }), 400, "input[0].role"],
  [item({ role: "user", content: [{ type: "output_audio" }] }), 400, "input[0].content[0].type"],
  [
    item({ role: "user", content: [{ type: "input_image", file_id: "f" }] }),
    400,
    "input[0].content[0].file_id",
    "unsupported_parameter",
  ],
  [item({ type: "function_call", call_id: "c", name: "x", arguments: 5 }), 400, "input[0].arguments"],
  [item({ type: "function_call_output", call_id: "c", output: "x" }), 400, "input[0].call_id"],
  [item({ type: "item_reference", id: "msg_none" }), 404, "input", "item_not_found"],
  [asks({ text: "short" }), 400, "text"],
  [asks({ text: { format: { type: "grammar" } } }), 400, "text.format.type"],
  [asks(schema({ type: 7 })), 400, "text.format.schema"],
  [asks(schema({ type: "object", properties: { a: { pattern: "(" } } })), 400, "text.format.schema"],
  [asks({ temperature: 3 }), 400, "temperature"],
  [asks({ max_output_tokens: 600 }), 400, "max_output_tokens"],
  [asks({ conversation: "conv_1" }), 400, "conversation"],
  [asks({ top_logprobs: 2 }), 400, "top_logprobs"],
  [asks({ context_management: [{ type: "compaction", compact_threshold: 1000 }] }), 400, "context_management"],
  [asks({ prompt: { id: "pmpt_1" } }), 400, "prompt"],
  [asks({ metadata: { a: 5 } }), 400, "metadata.a"],
  [asks({ tools: [{ type: "mcp" }] }), 400, "tools[0].type", "unsupported_parameter"],
  [asks({ tools: [{ type: "function", name: "sum" }] }), 400, "tools[0].name"],
  [asks({ tools: [{ type: "function", name: "x", parameters: 5 }] }), 400, "tools[0].parameters"],
  [asks({ tool_choice: { type: "allowed_tools", tools: [] } }), 400, "tool_choice.tools"],
  [
    asks({ text: { format: { type: "json_schema", schema: { $ref: "http://x", type: "object" } } } }),
    400,
    "text.format.schema",
  ],
  [asks({ reasoning: { effort: "high" } }), 400, "reasoning.effort"],
  [asks({ background: true, store: false }), 400, "background"],
  [asks({ previous_response_id: "resp_none" }), 400, "previous_response_id", "previous_response_not_found"],
];

test("POST /v1/responses refuses a bad body in OpenAI's shape, and names the field as param", async (t) => {
  const agent = { tools: ["sum"], options: { maxOutputTokens: { max: 500 } } };
  const { service, upstream } = await serveUpstream(t, agent, { tools: { sum: { use: "add" } } });
  for (const [body, wanted, param, code = "invalid_value"] of REFUSED_RESPONSES) {
    const { status, error } = await seen(service.post(RESPONSES, body));
    assert.deepEqual([status, error.param, error.code], [wanted, param, code], JSON.stringify([body, error]));
  }
  for (const [path, param] of [
    ["?stream=perhaps", "stream"],
    ["?stream=true&starting_after=-1", "starting_after"],
    ["/input_items?limit=0", "limit"],
    ["/input_items?order=up", "order"],
  ]) {
    const { status, error } = await seen(service.get(`${RESPONSES}/resp_x${path}`));
    assert.deepEqual([status, error.param], [400, param]);
  }
  assert.equal(upstream.requests.length, 0);
});

test("GET /v1/responses/:id?stream=true is 400 for a response that did not run in the background, and 404 for one that does not exist", async (t) => {
  const service = await startService(t, manifestWith());
  const { id } = (await (await service.post(RESPONSES, asks({}))).json()) as Loose;
  const own = await seen(service.get(`${RESPONSES}/${id}?stream=true`));
  assert.deepEqual([own.status, own.error.param, own.error.code], [400, "stream", "unsupported_parameter"]);
  const none = await seen(service.get(`${RESPONSES}/resp_none?stream=true`));
  assert.deepEqual([none.status, none.error.param], [404, "response_id"]);
});

const BAD_IMAGE = "ftp://x/y";
const part = (fields: object) => ({ role: "user", content: [{ type: "text", text: "Look" }, fields] });
const inputPart = (fields: object) => ({ role: "user", content: [{ type: "input_text", text: "Look" }, fields] });
const CALLED = [
  { type: "function_call", call_id: "c", name: "x", arguments: "{}" },
  { type: "function_call_output", call_id: "c", output: "y" },
];

test("POST /v1/chat/completions and POST /v1/responses name what is wrong in a message by its place in the request, whatever stands before it", async (t) => {
  const { service } = await serveUpstream(t);
  const silent = { role: "assistant", content: "" };
  const chats: [message: object, param: string][] = [
    [part({ type: "image_url", image_url: { url: BAD_IMAGE } }), "content[1].image_url.url"],
    [part({ type: "image_url", image_url: BAD_IMAGE }), "content[1].image_url"],
    [part({ type: "file", file: { file_data: "data:application/pdf;base64,%" } }), "content[1].file.file_data"],
    [part({ type: "input_audio", input_audio: { format: "wav", data: "%" } }), "content[1].input_audio.data"],
    [{ role: "user", content: [] }, "content"],
  ];
  for (const [message, param] of chats) {
    const { status, error } = await seen(service.post(CHAT, chat({ messages: [...HELLO, silent, message] })));
    assert.deepEqual([status, error.param], [400, `messages[2].${param}`], error.message);
    assert.ok(error.message.startsWith(`messages[2].${param} `), error.message);
  }
  const items: [item: object, param: string][] = [
    [inputPart({ type: "input_image", image_url: BAD_IMAGE }), "content[1].image_url"],
    [inputPart({ type: "input_file", file_data: "data:application/pdf;base64,%" }), "content[1].file_data"],
    [inputPart({ type: "input_file", file_url: "data:x" }), "content[1].file_url"],
    [{ role: "user", content: [] }, "content"],
  ];
  const first = (await (await service.post(RESPONSES, asks({}))).json()) as Loose;
  for (const [message, param] of items) {
    for (const more of [{}, { instructions: "Be short." }, { previous_response_id: first.id }]) {
      const { status, error } = await seen(service.post(RESPONSES, asks({ input: [...CALLED, message], ...more })));
      assert.deepEqual([status, error.param], [400, `input[2].${param}`], error.message);
    }
  }
});

test("POST /v1/chat/completions for an unknown agent is 404 with model_not_found", async (t) => {
  const service = await startService(t, manifestWith());
  const { status, error } = await seen(service.post(CHAT, { model: "nobody", messages: HELLO }));
  assert.deepEqual([status, error.code, error.param], [404, "model_not_found", "model"]);
});

for (const transport of TRANSPORTS) {
  test(`every path below /v1 fails in OpenAI's shape on ${transport}: unknown paths, other methods, credentials, types and sizes`, async (t) => {
    const limits = { body: { default: "1KiB", generation: "1KiB" } };
    const service = await startService(t, manifestWith({}, { auth: AUTH, server: { transport, limits } }));
    const ask = (method: string, path: string, headers: Record<string, string> = as("ada"), body?: string) =>
      seen(fetch(service.url + path, { method, headers: { "content-type": "application/json", ...headers }, body }));
    const expected: [Promise<Seen>, number, string, string][] = [
      [ask("GET", "/v1/unknown"), 404, "invalid_request_error", "not_found"],
      [ask("GET", "/v1"), 404, "invalid_request_error", "not_found"],
      [ask("PUT", "/v1/models"), 405, "invalid_request_error", "method_not_allowed"],
      [ask("GET", "/v1/models", {}), 401, "authentication_error", "invalid_api_key"],
      [ask("GET", "/v1/unknown", {}), 401, "authentication_error", "invalid_api_key"],
      [ask("POST", CHAT, { authorization: "Bearer no" }, "{}"), 401, "authentication_error", "invalid_api_key"],
      [ask("POST", CHAT, as("ada"), "x".repeat(2000)), 413, "invalid_request_error", "request_too_large"],
      [
        ask("POST", CHAT, { ...as("ada"), "content-type": "text/plain" }, "x"),
        415,
        "invalid_request_error",
        "unsupported_media_type",
      ],
    ];
    for (const [pending, status, type, code] of expected) {
      const found = await pending;
      assert.deepEqual([found.status, found.error.type, found.error.code], [status, type, code]);
      assert.ok(found.headers.get("x-request-id"));
    }
    const elsewhere = await service.get("/unknown", as("ada"));
    assert.equal(((await elsewhere.json()) as Loose).success, false);
  });
}

test("POST /v1/chat/completions says 429 with retry-after when a user sends too many new schemas", async (t) => {
  const service = await startService(t, manifestWith());
  let last: Seen | undefined;
  for (let count = 0; count < 5_000 && last === undefined; count++) {
    const properties = { [`p${count}`]: { type: "string", description: "x".repeat(40_000) } };
    const schema = { type: "object", properties };
    const format = { type: "json_schema", json_schema: { name: "x", schema } };
    const reply = await service.post(CHAT, chat({ response_format: format }));
    if (reply.status === 429) last = await seen(Promise.resolve(reply));
    else await reply.arrayBuffer();
  }
  assert.deepEqual([last!.error.type, last!.error.code], ["rate_limit_error", "rate_limit_exceeded"]);
  assert.ok(last!.headers.get("retry-after"));
  assert.equal(last!.headers.get("x-should-retry"), null);
});

test("POST /v1/chat/completions tells clients not to repeat a run that has failed, which may have had effects", async (t) => {
  const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools: { sum: { use: "add" } } });
  upstream.replies(calls([{ name: "sum", input: { a: 1, b: 2 } }]), failure(500));
  const { status, headers, error } = await seen(service.post(CHAT, chat({})));
  assert.deepEqual([status, error.code, headers.get("x-should-retry")], [500, "model_error", "false"]);
});

test("POST /v1/chat/completions says 400 with context_length_exceeded when the conversation is too long for the model", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.fallback(failure(400, { code: "context_length_exceeded", message: "maximum context length is 10 tokens" }));
  const { status, error } = await seen(service.post(CHAT, chat({})));
  assert.deepEqual([status, error.code], [400, "context_length_exceeded"]);
});

test("server.openai: false switches off /v1, whose paths are then like any other that does not exist", async (t) => {
  const service: TestService = await startService(t, manifestWith({}, { server: { openai: false } }));
  for (const reply of [await service.get("/v1/models"), await service.post(CHAT, chat({}))]) {
    assert.equal(reply.status, 404);
    assert.equal(((await reply.json()) as Loose).success, false);
  }
});

test("POST /v1/chat/completions does not run a tool that needs approval, and tells the model so", async (t) => {
  const { ran } = await import("../support/approvals.ts");
  ran.length = 0;
  const { startOpenAIUpstream } = await import("../support/openai-upstream.ts");
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  upstream.replies(calls([{ name: "pay", input: { amount: 5 } }]), says("It waits for approval."));
  const providers = { up: { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test" } };
  const agents = { payer: { instructions: "Pay.", model: "up/m", tools: ["pay"], memory: false } };
  const service = await serveApprovals(t, { providers, agents });
  const reply = await service.post(CHAT, { model: "payer", messages: HELLO });
  assert.equal(((await reply.json()) as Loose).choices[0].message.content, "It waits for approval.");
  assert.deepEqual(ran, []);
  assert.match(upstream.requests[1]!.toolOutputs[0]!, /waits for a person's approval/);
  const { data } = (await (await service.get("/approvals")).json()) as Loose;
  assert.deepEqual(
    data.map(({ toolName, status }: Loose) => [toolName, status]),
    [["pay", "open"]],
  );
});
