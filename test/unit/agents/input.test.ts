import assert from "node:assert/strict";
import { test } from "node:test";
import { acceptable } from "../../../core/agents/prompt/acceptable.ts";
import { buildPrompt } from "../../../core/agents/prompt/input.ts";
import { ServiceError } from "../../../core/lib/errors.ts";

const refuses = (input: unknown, message: string | RegExp) =>
  assert.throws(
    () => buildPrompt("", input),
    (error: unknown) => {
      assert.ok(error instanceof ServiceError, String(error));
      assert.equal(error.kind, "invalid_input");
      if (typeof message === "string") assert.equal(error.message, message);
      else assert.match(error.message, message);
      return true;
    },
  );

test("input as a string becomes one user message behind the instructions", () => {
  assert.deepEqual(buildPrompt("Be kind.", "hello"), [
    { role: "system", content: "Be kind." },
    { role: "user", content: [{ type: "text", text: "hello" }] },
  ]);
});

test("an agent without instructions sends no system message", () => {
  assert.deepEqual(buildPrompt("", "hello"), [{ role: "user", content: [{ type: "text", text: "hello" }] }]);
});

test("input as UI messages carries texts, images by data: URL and files by web address", () => {
  const parts = [
    { type: "text", text: "What is this?" },
    { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=", filename: "a.png" },
    { type: "file", mediaType: "application/pdf", url: "https://example.com/a.pdf" },
    { type: "file", url: "data:text/plain,hello%20you" },
    { type: "data-location", data: { x: 1 } },
  ];
  assert.deepEqual(buildPrompt("", [{ id: "m1", role: "user", parts }]), [
    {
      role: "user",
      content: [
        { type: "text", text: "What is this?" },
        { type: "file", data: "iVBORw0KGgo=", mediaType: "image/png", filename: "a.png" },
        { type: "file", data: new URL("https://example.com/a.pdf"), mediaType: "application/pdf" },
        { type: "file", data: Buffer.from("hello you").toString("base64"), mediaType: "text/plain" },
      ],
    },
  ]);
});

test("input as UI messages turns each step of an assistant into a message and its tool results", () => {
  const tool = (state: string, more: object) => ({
    type: "tool-add",
    toolCallId: state,
    state,
    input: { a: 1 },
    ...more,
  });
  const prompt = buildPrompt("", [
    { role: "system", parts: [{ type: "text", text: "Rules" }] },
    {
      role: "assistant",
      parts: [
        { type: "step-start" },
        { type: "reasoning", text: "hm" },
        tool("output-available", { output: { sum: 3 } }),
        tool("output-error", { errorText: "broken" }),
        tool("input-streaming", {}),
        { type: "step-start" },
        { type: "text", text: "Three" },
        { type: "source-url", sourceId: "s", url: "https://example.com" },
      ],
    },
    { role: "user", parts: [{ type: "text", text: "thanks" }] },
  ]);
  const call = (id: string) => ({ type: "tool-call", toolCallId: id, toolName: "add", input: { a: 1 } });
  const result = (id: string, output: object) => ({ type: "tool-result", toolCallId: id, toolName: "add", output });
  assert.deepEqual(prompt, [
    { role: "system", content: "Rules" },
    { role: "assistant", content: [{ type: "reasoning", text: "hm" }, call("output-available"), call("output-error")] },
    {
      role: "tool",
      content: [
        result("output-available", { type: "json", value: { sum: 3 } }),
        result("output-error", { type: "error-text", value: "broken" }),
      ],
    },
    { role: "assistant", content: [{ type: "text", text: "Three" }] },
    { role: "user", content: [{ type: "text", text: "thanks" }] },
  ]);
});

test("a tool call that was broken off or denied is given an answer, since models refuse calls without one", () => {
  const states = [
    { state: "input-available" },
    { state: "approval-requested", approval: { id: "a" } },
    { state: "approval-responded", approval: { id: "a", approved: false, reason: "too much" } },
    { state: "output-denied", approval: { id: "a", approved: false } },
  ];
  const parts = states.map((part, index) => ({
    type: "dynamic-tool",
    toolName: "x",
    toolCallId: `${index}`,
    input: {},
    ...part,
  }));
  const prompt = acceptable(
    buildPrompt("", [
      { role: "user", content: "Go" },
      { role: "assistant", parts },
    ]),
  );
  const [, , tool] = prompt as [unknown, unknown, { role: string; content: { output: unknown }[] }];
  assert.equal(tool.role, "tool");
  assert.deepEqual(
    tool.content.map((part) => part.output),
    [
      { type: "error-text", value: "The call was not completed." },
      { type: "text", value: "The call waits for a person's approval. It runs by itself once it is approved." },
      { type: "execution-denied", reason: "too much" },
      { type: "execution-denied" },
    ],
  );
});

test("a tool that the provider ran keeps its result in the assistant's message", () => {
  const part = {
    type: "tool-search",
    toolCallId: "c",
    state: "output-available",
    input: {},
    output: "found",
    providerExecuted: true,
  };
  assert.deepEqual(buildPrompt("", [{ role: "assistant", parts: [part] }]), [
    {
      role: "assistant",
      content: [
        { type: "tool-call", toolCallId: "c", toolName: "search", input: {}, providerExecuted: true },
        { type: "tool-result", toolCallId: "c", toolName: "search", output: { type: "text", value: "found" } },
      ],
    },
  ]);
});

test("input as model messages takes strings and parts in all four roles", () => {
  const prompt = buildPrompt("Mine", [
    { role: "system", content: "Theirs" },
    { role: "user", content: "hello" },
    {
      role: "user",
      content: [
        { type: "text", text: "look" },
        { type: "image", image: "iVBORw0KGgo=" },
        { type: "image", image: "https://example.com/a.png", mediaType: "image/png" },
        { type: "file", data: "data:application/pdf;base64,AAAA", mediaType: "application/pdf", filename: "b.pdf" },
      ],
    },
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "c", toolName: "add", input: { a: 1 } }] },
    {
      role: "tool",
      content: [
        { type: "tool-result", toolCallId: "c", toolName: "add", output: { type: "json", value: { sum: 1 } } },
        { type: "tool-result", toolCallId: "d", toolName: "add", output: { sum: 2 } },
      ],
    },
    { role: "assistant", content: "done" },
  ]);
  assert.deepEqual(prompt, [
    { role: "system", content: "Mine" },
    { role: "system", content: "Theirs" },
    { role: "user", content: [{ type: "text", text: "hello" }] },
    {
      role: "user",
      content: [
        { type: "text", text: "look" },
        { type: "file", data: "iVBORw0KGgo=", mediaType: "image/png" },
        { type: "file", data: new URL("https://example.com/a.png"), mediaType: "image/png" },
        { type: "file", data: "AAAA", mediaType: "application/pdf", filename: "b.pdf" },
      ],
    },
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "c", toolName: "add", input: { a: 1 } }] },
    {
      role: "tool",
      content: [
        { type: "tool-result", toolCallId: "c", toolName: "add", output: { type: "json", value: { sum: 1 } } },
        { type: "tool-result", toolCallId: "d", toolName: "add", output: { type: "json", value: { sum: 2 } } },
      ],
    },
    { role: "assistant", content: [{ type: "text", text: "done" }] },
  ]);
});

const CACHED = { anthropic: { cacheControl: { type: "ephemeral" } } };

test("what messages and parts of the input carry for the provider goes to it", () => {
  const carried = { providerOptions: CACHED };
  const call = { type: "tool-call", toolCallId: "c", toolName: "add", input: {}, ...carried };
  const result = {
    type: "tool-result",
    toolCallId: "c",
    toolName: "add",
    output: { type: "json", value: 1 },
    ...carried,
  };
  const messages = [
    { role: "system", content: "Theirs", ...carried },
    { role: "user", content: [{ type: "text", text: "hello", ...carried }], ...carried },
    { role: "assistant", content: [{ type: "reasoning", text: "Hm", ...carried }, call], ...carried },
    { role: "tool", content: [result], ...carried },
  ];
  assert.deepEqual(buildPrompt("", messages), messages);
});

test("what the provider said of the parts of a UI message goes back to it, but for a part that was not finished", () => {
  const providerMetadata = CACHED;
  const call = { type: "tool-add", toolCallId: "c", state: "output-available", input: {}, output: 1 };
  const prompt = buildPrompt("", [
    { role: "user", parts: [{ type: "text", text: "hello", providerMetadata }] },
    {
      role: "assistant",
      parts: [
        { type: "reasoning", text: "", providerMetadata },
        { type: "file", url: "data:image/png;base64,AAAA", mediaType: "image/png", providerMetadata },
        { type: "text", text: "", providerMetadata },
        { ...call, callProviderMetadata: CACHED, resultProviderMetadata: CACHED },
        { type: "text", text: "cut", state: "streaming", providerMetadata },
      ],
    },
  ]);
  const carried = { providerOptions: CACHED };
  assert.deepEqual(prompt, [
    { role: "user", content: [{ type: "text", text: "hello", ...carried }] },
    {
      role: "assistant",
      content: [
        { type: "reasoning", text: "", ...carried },
        { type: "file", data: "AAAA", mediaType: "image/png", ...carried },
        { type: "text", text: "", ...carried },
        { type: "tool-call", toolCallId: "c", toolName: "add", input: {}, ...carried },
        { type: "text", text: "cut" },
      ],
    },
    {
      role: "tool",
      content: [
        { type: "tool-result", toolCallId: "c", toolName: "add", output: { type: "json", value: 1 }, ...carried },
      ],
    },
  ]);
  refuses(
    [{ role: "user", parts: [{ type: "text", text: "x", providerMetadata: { anthropic: 1 } }] }],
    "input[0].parts[0].providerMetadata must be an object of objects, one for each provider",
  );
  refuses(
    [{ role: "user", content: "x", providerOptions: [] }],
    "input[0].providerOptions must be an object of objects, one for each provider",
  );
});

test("files without a media type, or with a wildcard, are known by their bytes", () => {
  const bytes: Record<string, number[]> = {
    "image/png": [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
    "image/jpeg": [0xff, 0xd8, 0xff, 0xe0],
    "image/gif": [...Buffer.from("GIF89a")],
    "image/webp": [...Buffer.from("RIFF1234WEBP")],
    "application/pdf": [...Buffer.from("%PDF-1.7")],
    "audio/wav": [...Buffer.from("RIFF1234WAVE")],
    "video/mp4": [...Buffer.from("1234ftypisom")],
  };
  for (const [mediaType, head] of Object.entries(bytes)) {
    const data = Buffer.from([...head, 0, 0, 0]).toString("base64");
    for (const part of [
      { type: "file", data },
      { type: "image", image: data },
      { type: "image", image: data, mediaType: "image/*" },
      { type: "file", data: `data:;base64,${data}` },
    ]) {
      const [message] = buildPrompt("", [{ role: "user", content: [part] }]);
      assert.deepEqual(message!.content, [{ type: "file", data, mediaType }]);
    }
  }
});

test("UI and model messages may stand side by side in one input", () => {
  const prompt = buildPrompt("", [
    { role: "user", content: "one" },
    { role: "assistant", parts: [{ type: "text", text: "two" }] },
    { role: "user", parts: [{ type: "text", text: "three" }] },
  ]);
  assert.deepEqual(
    prompt.map((message) => message.role),
    ["user", "assistant", "user"],
  );
});

test("input that makes no sense is refused with the path of the trouble", () => {
  refuses([], "input must not be empty");
  refuses(5, "input must be a string, an array of UI messages or an array of model messages");
  refuses(null, /^input must be a string/);
  refuses(["x"], "input[0] must be object");
  refuses([{ role: "user" }], "input[0] needs `parts` (a UI message) or `content` (a model message)");
  refuses([{ role: "robot", content: "x" }], /^input\[0\]\.role must be one of/);
  refuses([{ role: "robot", parts: [{ type: "text", text: "x" }] }], /^input\[0\]\.role must be one of/);
  refuses([{ role: "user", parts: [] }], "input[0].parts must not be empty");
  refuses([{ role: "user", content: [] }], "input[0].content must not be empty");
  refuses([{ role: "user", content: 5 }], "input[0].content must be string or array");
  refuses([{ role: "user", parts: [{ type: "text" }] }], "input[0].parts[0].text must be string");
  refuses(
    [{ role: "user", parts: [{ type: "txt", text: "x" }] }],
    /^input\[0\]\.parts\[0\]\.type "txt" is not a known part/,
  );
  refuses(
    [{ role: "user", content: [{ type: "txt", text: "x" }] }],
    /^input\[0\]\.content\[0\]\.type must be one of "text"/,
  );
  refuses([{ role: "tool", content: "x" }], "input[0].content must be an array of tool results");
  refuses(
    [{ role: "assistant", parts: [{ type: "tool-add", toolCallId: "c", state: "odd" }] }],
    /state is not a known state/,
  );
});

test("files that cannot be read are refused with the path of the trouble", () => {
  const ui = (part: object) => [{ role: "user", parts: [{ type: "file", ...part }] }];
  refuses(ui({ mediaType: "image/png" }), "input[0].parts[0].url must be a non-empty string");
  refuses(ui({ url: "https://example.com/x" }), "input[0].parts[0].mediaType is required");
  refuses(
    ui({ url: "file:///etc/passwd", mediaType: "text/plain" }),
    "input[0].parts[0].url must be a data: or http(s) URL",
  );
  refuses(ui({ url: "data:image/png;base64,@@@" }), "input[0].parts[0].url is not valid base64");
  refuses(ui({ url: "https://", mediaType: "text/plain" }), "input[0].parts[0].url is not a valid URL");
  // Bare base64 is for model messages alone, whatever else a UI part says.
  refuses(
    ui({ url: "AAAA", mediaType: "text/plain", allowBase64: true }),
    "input[0].parts[0].url must be a data: or http(s) URL",
  );
});
