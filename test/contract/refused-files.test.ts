/** Files that the model of a conversation does not take: notes in place of those of earlier messages, and a 400 for the one that is sent now. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { failure, says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { anthropic } from "../support/strict-anthropic.ts";
import { gemini } from "../support/strict-gemini.ts";
import { openAIChat } from "../support/strict-openai-chat.ts";
import { PROJECT, serveStrict } from "../support/strict-providers.ts";
import { openAIResponses } from "../support/strict-responses.ts";
import { type Dialect, Refusal, type StrictUpstream, startStrictUpstream } from "../support/strict-upstream.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const TEXT = "/agents/assistant/text";
const NOTE = /A file was here, which this model does not take: (?:image|dot)/;

/** The provider refuses whatever has an image, in these words. */
const textOnly = (dialect: Dialect, status: number, body: object): Dialect => ({
  ...dialect,
  check(sent, path) {
    if (/iVBORw0KGgo/.test(JSON.stringify(sent))) throw new Refusal(status, "it has an image", body);
    dialect.check(sent, path);
  },
});
const error = (message: string, more: object = {}) => ({ error: { message, type: "invalid_request_error", ...more } });

/** How providers say so. */
const PROVIDERS: Record<string, { use: string; model: string; dialect: Dialect }> = {
  "a server of chat completions": {
    use: "openai-compatible",
    model: "m",
    dialect: textOnly(openAIChat(), 400, error("this model does not support image input")),
  },
  DeepSeek: {
    use: "openai-compatible",
    model: "m",
    dialect: textOnly(
      openAIChat(),
      422,
      error("Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`"),
    ),
  },
  Groq: {
    use: "openai-compatible",
    model: "m",
    dialect: textOnly(openAIChat(), 400, error("messages[0].content must be a string")),
  },
  OpenRouter: {
    use: "openai-compatible",
    model: "m",
    dialect: textOnly(openAIChat(), 404, error("No endpoints found that support image input")),
  },
  vLLM: {
    use: "openai-compatible",
    model: "m",
    dialect: textOnly(openAIChat(), 400, { message: "m is not a multimodal model", code: 400 }),
  },
  "llama.cpp": {
    use: "openai-compatible",
    model: "m",
    dialect: textOnly(
      openAIChat(),
      500,
      error("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    ),
  },
  "OpenAI's Responses through its package": {
    use: "@ai-sdk/openai",
    model: "gpt-4.1",
    dialect: textOnly(
      openAIResponses(),
      400,
      error("Invalid content type. image_url is only supported by certain models."),
    ),
  },
  "Anthropic through its package": {
    use: "@ai-sdk/anthropic",
    model: "claude-sonnet-4-5",
    dialect: textOnly(anthropic(), 400, { type: "error", ...error("'claude-2.1' does not support image input.") }),
  },
  "Gemini through its package": {
    use: "@ai-sdk/google",
    model: "gemini-2.5-pro",
    dialect: textOnly(gemini(), 400, {
      error: { code: 400, message: "Image input modality is not enabled for models/gemma", status: "INVALID_ARGUMENT" },
    }),
  },
};

async function serve(t: Parameters<typeof startService>[0], named: typeof PROVIDERS) {
  const upstreams: StrictUpstream[] = [];
  const providers: Record<string, object> = {};
  const model: string[] = [];
  for (const { use, model: id, dialect } of Object.values(named)) {
    const upstream = await startStrictUpstream(t, dialect);
    const connection = { baseURL: upstream.baseURL, apiKey: "test" };
    const key = `up${upstreams.push(upstream)}`;
    providers[key] = { use, retries: 0, ...(use === "openai-compatible" ? connection : { options: connection }) };
    model.push(`${key}/${id}`);
  }
  const manifest = manifestWith({ model, memory: "default" }, { providers, memory: { default: {} } });
  const service = await startService(t, manifest, { project: PROJECT });
  const stored = async (conversationId: string, ...parts: object[]) => {
    await service.post("/api/memory/conversations", { conversationId, userId: "u" });
    const messages = [
      { role: "user", parts: [{ type: "text", text: "look" }, ...parts] },
      { role: "assistant", parts: [{ type: "text", text: "a dot" }] },
    ];
    const saved = await service.post("/api/memory/save-messages", { conversationId, userId: "u", messages });
    assert.equal(saved.status, 200, await saved.text());
    return { options: { memory: { conversationId, userId: "u" } } };
  };
  return { service, upstreams, stored };
}

/** What a file of that type begins with: one that is a PNG is sent as one, whatever its type says. */
const HEAD: Readonly<Record<string, string>> = {
  "image/png": PNG,
  "image/heic": "AAAAGGZ0eXBoZWlj",
  "image/bmp": "Qk0BAgMEAAAAAAAAAAAA",
  "video/mp4": "AAAAGGZ0eXBpc29t",
};
const image = (mediaType = "image/png") => ({
  type: "file",
  mediaType,
  url: `data:${mediaType};base64,${HEAD[mediaType] ?? PNG}`,
});

describe("a model that takes no images", () => {
  for (const [name, provider] of Object.entries(PROVIDERS))
    test(`POST /agents/:id/text on ${name}: an image of an earlier message becomes a note, which is learned with one refusal, and an image of the new message is 400`, async (t) => {
      const { service, upstreams, stored } = await serve(t, { [name]: provider });
      const [upstream] = upstreams as [StrictUpstream];
      const { options } = await stored("c1", image());
      for (const input of ["hello", "again"]) {
        upstream.says({ text: "Fine." });
        assert.equal((await dataOf(service.post(TEXT, { input, options }))).text, "Fine.");
        assert.match(JSON.stringify(upstream.requests.at(-1)), NOTE);
        assert.equal(upstream.refusals.length, 1);
      }
      const content = [
        { type: "text", text: "And this?" },
        { type: "image", image: PNG },
      ];
      const reply = await service.post(TEXT, { input: [{ role: "user", content }], options });
      const { error: said }: Loose = await reply.json();
      assert.equal(reply.status, 400);
      assert.match(said, /^part 2 of the last message: up1\/\S+ does not take this file \(image\/png\)$/);
      upstream.says({ text: "Fine." });
      assert.equal((await dataOf(service.post(TEXT, { input: "and now", options }))).text, "Fine.");
    });
});

test("POST /agents/:id/text: a file of the new message that the first model does not take goes to the next of the chain", async (t) => {
  const seeing = { use: "openai-compatible", model: "m", dialect: openAIChat() };
  const { service, upstreams } = await serve(t, { blind: PROVIDERS["llama.cpp"]!, seeing });
  upstreams[1]!.says({ text: "A dot." });
  const content = [{ type: "image", image: PNG }];
  const data = await dataOf(service.post(TEXT, { input: [{ role: "user", content }] }));
  assert.equal(data.text, "A dot.");
  assert.equal(data.model, "up2/m");
});

test("POST /agents/:id/text: a type that a provider does not take, or its package does not send, becomes a note, and images of other types are still sent", async (t) => {
  const types: Record<string, [Dialect, string, string]> = {
    "openai-compatible": [openAIChat(), "m", "image/heic"],
    "@ai-sdk/google": [gemini(), "gemini-2.5-pro", "image/bmp"],
    "@ai-sdk/anthropic": [anthropic(), "claude-sonnet-4-5", "video/mp4"],
  };
  for (const [use, [dialect, model, mediaType]] of Object.entries(types)) {
    const { service, upstreams, stored } = await serve(t, { one: { use, model, dialect } });
    const { options } = await stored("c1", image(), image(mediaType));
    for (const input of ["hello", "again"]) {
      upstreams[0]!.says({ text: "Fine." });
      assert.equal((await dataOf(service.post(TEXT, { input, options }))).text, "Fine.", use);
      const sent = JSON.stringify(upstreams[0]!.requests.at(-1));
      assert.match(sent, new RegExp(`does not take: ${mediaType}`));
      assert.match(sent, /iVBORw0KGgo/);
    }
    assert.ok(upstreams[0]!.refusals.length <= 1);
  }
});

test("POST /agents/:id/text: an image that is broken becomes a note, and images are sent to the model after it", async (t) => {
  const chat = openAIChat();
  const dialect: Dialect = {
    ...chat,
    check(body, path) {
      if (/QlJPS0VO/.test(JSON.stringify(body))) throw new Refusal(400, "broken", error("Could not process image"));
      chat.check(body, path);
    },
  };
  const { service, upstreams, stored } = await serve(t, { one: { use: "openai-compatible", model: "m", dialect } });
  const broken = { type: "file", mediaType: "image/png", url: "data:image/png;base64,QlJPS0VO" };
  upstreams[0]!.says({ text: "Fine." }, { text: "A dot." });
  await dataOf(service.post(TEXT, { input: "hello", ...(await stored("c1", broken)) }));
  await dataOf(service.post(TEXT, { input: "hello", ...(await stored("c2", image())) }));
  assert.match(JSON.stringify(upstreams[0]!.requests.at(-1)), /iVBORw0KGgo/);
});

test("POST /agents/:id/text: ids of calls, messages of one role in a row and blank texts that only one provider refuses are changed for it, and that is remembered", async (t) => {
  const chat = openAIChat();
  const claude = anthropic();
  const dialect: Dialect = {
    ...chat,
    check(body, path) {
      const roles = body.messages.map(({ role }: Loose) => role);
      const isTwice = (role: string, at: number) => role !== "tool" && role === roles[at + 1];
      if (roles.some(isTwice))
        throw new Refusal(400, "roles", error("Conversation roles must alternate user/assistant/user/assistant/..."));
      chat.check(body, path);
    },
  };
  const call = (toolCallId: string) => ({ type: "tool-call", toolCallId, toolName: "sum", input: {} });
  const result = (toolCallId: string) => ({ type: "tool-result", toolCallId, toolName: "sum", output: " " });
  const signed = { type: "text", text: "\n", providerOptions: { openai: { itemId: "msg_1" } } };
  const input = [
    { role: "user", content: "Add" },
    { role: "user", content: "Please" },
    { role: "assistant", content: [signed, call("functions.sum:0")] },
    { role: "tool", content: [result("functions.sum:0")] },
    { role: "assistant", content: "One." },
    { role: "assistant", content: "Two." },
    { role: "user", content: "Thanks" },
  ];
  for (const provider of [
    { use: "openai-compatible", model: "m", dialect },
    { use: "@ai-sdk/anthropic", model: "claude-sonnet-4-5", dialect: claude },
  ]) {
    const { service, upstreams } = await serve(t, { one: provider });
    const [upstream] = upstreams as [StrictUpstream];
    upstream.says({ text: "Fine." }, { text: "Fine." });
    await dataOf(service.post(TEXT, { input }));
    const learned = upstream.refusals.length;
    assert.ok(learned > 0);
    await dataOf(service.post(TEXT, { input }));
    assert.equal(upstream.refusals.length, learned, String(upstream.refusals));
  }
});

test("POST /agents/:id/text: a provider that accepts each call, and refuses an image in the place of its answer, is asked a few times and no more", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.fallback({ steps: [{ error: { message: "failed to decode image", type: "invalid_request_error" } }] });
  const input = [
    { role: "user", content: [{ type: "image", image: PNG }] },
    { role: "assistant", content: "A dot." },
    { role: "user", content: "hello" },
  ];
  const reply = await service.post(TEXT, { input });
  assert.equal(reply.status, 500, await reply.text());
  assert.equal(upstream.requests.length, 2);
});

test("POST /agents/:id/text: an image with broken bytes that is refused with the list of formats says nothing of others of its type, and nothing else is changed", async (t) => {
  const { service, upstream } = await serveStrict(t, "OpenAI chat completions");
  const image = (data: string) => ({ role: "user", content: [{ type: "file", mediaType: "image/png", data }] });
  const call = { type: "tool-call", toolCallId: "an id of 1", toolName: "ask", input: {} };
  const result = { type: "tool-result", toolCallId: "an id of 1", toolName: "ask", output: "yes" };
  const history = [
    { role: "user", content: "Ask" },
    { role: "assistant", content: [call] },
    { role: "tool", content: [result] },
  ];
  const next = { role: "user", content: "Go on." };
  const bmp = { role: "user", content: [{ type: "file", mediaType: "image/bmp", data: "Qk0BAgMEAAAAAAAAAAAA" }] };
  for (const files of [[image("bm8gaW1hZ2U=")], [bmp], [image(PNG)]])
    await dataOf(service.post("/agents/assistant/text", { input: [...history, ...files, next] }));
  assert.equal(upstream.refusals.length, 2);
  const { messages } = upstream.requests.at(-1);
  assert.match(JSON.stringify(messages), /data:image\/png;base64,iVBORw0KGgo/);
  assert.equal(messages[2].tool_calls[0].id, "an id of 1");
  assert.deepEqual(
    messages.map(({ role }: Loose) => role),
    ["system", "user", "assistant", "tool", "user", "user"],
  );
});

/** Refusals of Bedrock and llama.cpp as they were recorded, and of which messages they are. */
const RECORDED: Record<string, [status: number, message: string, isRefused: (messages: Loose[]) => boolean]> = {
  "Bedrock: an empty result of a failed call": [
    400,
    "The content field at messages.12.content.10.toolResult cannot be empty when status value is error.",
    (messages) => messages.some(({ role, content }) => role === "tool" && content === ""),
  ],
  "Bedrock: an id of a call": [
    400,
    "1 validation error detected: Value 'functions.ask:0' at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
    (messages) => messages.some(({ tool_call_id: id = "" }) => !/^[a-zA-Z0-9_-]*$/.test(id)),
  ],
  "llama.cpp: roles": [
    500,
    "\n------------\nWhile executing CallExpression at line 47, column 32 in source:\n...\nError: Jinja Exception: After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.",
    (messages) => messages.some(({ role }, index) => role === "user" && messages[index + 1]?.role === "user"),
  ],
  "llama.cpp: an image": [
    500,
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    (messages) => JSON.stringify(messages).includes("image_url"),
  ],
};

for (const [what, [status, message, isRefused]] of Object.entries(RECORDED))
  test(`POST /agents/:id/text goes on after the refusal of ${what}, and it is remembered`, async (t) => {
    const { service, upstream } = await serveUpstream(t);
    let refusals = 0;
    upstream.fallback(({ body }) => {
      if (!isRefused(body.messages)) return says("Fine.");
      refusals++;
      return failure(status, { message });
    });
    const named = { toolCallId: "functions.ask:0", toolName: "ask" };
    const input = [
      { role: "user", content: [{ type: "file", mediaType: "image/png", data: PNG }] },
      { role: "user", content: "Ask" },
      { role: "assistant", content: [{ type: "tool-call", ...named, input: {} }] },
      { role: "tool", content: [{ type: "tool-result", ...named, output: { type: "error-text", value: "" } }] },
      { role: "user", content: "Go on." },
    ];
    for (const turn of [1, 2])
      assert.equal((await dataOf(service.post(TEXT, { input }))).text, "Fine.", `turn ${turn}`);
    assert.equal(refusals, 1);
  });
