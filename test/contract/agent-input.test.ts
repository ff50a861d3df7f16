/** Contract, "Agents": the forms of `input`, as they reach an upstream in OpenAI's wire format. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const TEXT = "/agents/assistant/text";
const SYSTEM = { role: "system", content: "Help." };
/** One white pixel. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
const PNG = `data:image/png;base64,${PIXEL}`;
const PDF = Buffer.from("%PDF-1.4").toString("base64");
const SOUND = Buffer.from("RIFF").toString("base64");

const text = (content: string) => ({ type: "text", text: content });
const user = (...parts: object[]) => [{ role: "user", parts }];
const said = (...content: object[]) => [{ role: "user", content }];

interface Form {
  title: string;
  input: unknown;
  /** What the upstream gets behind the instructions. */
  messages: unknown[];
}

const FORMS: Form[] = [
  { title: "a string is one message of the user", input: "Hi", messages: [{ role: "user", content: "Hi" }] },
  {
    title: "UI messages: the text parts of a message",
    input: [
      { id: "m1", role: "user", parts: [text("Hi"), text(" there")] },
      { id: "m2", role: "assistant", parts: [{ type: "step-start" }, text("Hello.")] },
      { id: "m3", role: "user", parts: [text("Bye")], metadata: { seen: true } },
    ],
    messages: [
      { role: "user", content: [text("Hi"), text(" there")] },
      { role: "assistant", content: "Hello." },
      { role: "user", content: "Bye" },
    ],
  },
  {
    title: "UI messages: an image as a data URL",
    input: user(text("What is it?"), { type: "file", mediaType: "image/png", url: PNG }),
    messages: said(text("What is it?"), { type: "image_url", image_url: { url: PNG } }),
  },
  {
    title: "UI messages: an image on the web goes by its address",
    input: user(text("And this?"), { type: "file", mediaType: "image/jpeg", url: "https://shop.example/lamp.jpg" }),
    messages: said(text("And this?"), { type: "image_url", image_url: { url: "https://shop.example/lamp.jpg" } }),
  },
  {
    title: "UI messages: a PDF with its name",
    input: user(text("Sum up"), {
      type: "file",
      mediaType: "application/pdf",
      filename: "bill.pdf",
      url: `data:application/pdf;base64,${PDF}`,
    }),
    messages: said(text("Sum up"), {
      type: "file",
      file: { filename: "bill.pdf", file_data: `data:application/pdf;base64,${PDF}` },
    }),
  },
  {
    title: "UI messages: sound",
    input: user(text("Who?"), { type: "file", mediaType: "audio/wav", url: `data:audio/wav;base64,${SOUND}` }),
    messages: said(text("Who?"), { type: "input_audio", input_audio: { data: SOUND, format: "wav" } }),
  },
  {
    title: "UI messages: a text file is its text",
    input: user(text("Read"), { type: "file", mediaType: "text/plain", url: "data:text/plain,caf%C3%A9" }),
    messages: said(text("Read"), text("café")),
  },
  {
    title: "UI messages: tool parts, step by step, with their results and errors",
    input: [
      ...user(text("Add")),
      {
        role: "assistant",
        parts: [
          { type: "step-start" },
          { type: "tool-sum", toolCallId: "c1", state: "output-available", input: { a: 1 }, output: { sum: 3 } },
          {
            type: "dynamic-tool",
            toolName: "fail",
            toolCallId: "c2",
            state: "output-error",
            input: {},
            errorText: "closed",
          },
          { type: "step-start" },
          text("Three."),
        ],
      },
      ...user(text("Thanks")),
    ],
    messages: [
      { role: "user", content: "Add" },
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: "c1", type: "function", function: { name: "sum", arguments: '{"a":1}' } },
          { id: "c2", type: "function", function: { name: "fail", arguments: "{}" } },
        ],
      },
      { role: "tool", tool_call_id: "c1", content: '{"sum":3}' },
      { role: "tool", tool_call_id: "c2", content: "closed" },
      { role: "assistant", content: "Three." },
      { role: "user", content: "Thanks" },
    ],
  },
  {
    title: "model messages: system, user and assistant",
    input: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
      { role: "assistant", content: [text("Hello.")] },
      { role: "user", content: [text("Bye")] },
    ],
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
      { role: "assistant", content: "Hello." },
      { role: "user", content: "Bye" },
    ],
  },
  {
    title: "model messages: images as base64 and by address, and a file",
    input: said(
      { type: "image", image: PIXEL, mediaType: "image/png" },
      { type: "image", image: "https://shop.example/lamp.jpg" },
      { type: "file", data: PDF, mediaType: "application/pdf", filename: "bill.pdf" },
    ),
    messages: said(
      { type: "image_url", image_url: { url: PNG } },
      { type: "image_url", image_url: { url: "https://shop.example/lamp.jpg" } },
      { type: "file", file: { filename: "bill.pdf", file_data: `data:application/pdf;base64,${PDF}` } },
    ),
  },
  {
    title: "model messages: a tool call and its result",
    input: [
      { role: "user", content: "Add" },
      { role: "assistant", content: [{ type: "tool-call", toolCallId: "c1", toolName: "sum", input: { a: 1 } }] },
      {
        role: "tool",
        content: [
          { type: "tool-result", toolCallId: "c1", toolName: "sum", output: { type: "json", value: { sum: 3 } } },
        ],
      },
    ],
    messages: [
      { role: "user", content: "Add" },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c1", type: "function", function: { name: "sum", arguments: '{"a":1}' } }],
      },
      { role: "tool", tool_call_id: "c1", content: '{"sum":3}' },
    ],
  },
];

const ENDPOINTS = ["text", "stream", "chat", "object", "stream-object"];

describe("input of the generation endpoints", () => {
  for (const { title, input, messages } of FORMS) {
    test(`POST /agents/:id/text takes ${title}`, async (t) => {
      const { service, upstream } = await serveUpstream(t);
      await dataOf(service.post(TEXT, { input }));
      assert.deepEqual(upstream.requests[0]!.body.messages, [SYSTEM, ...messages]);
    });
  }

  for (const endpoint of ENDPOINTS) {
    test(`POST /agents/:id/${endpoint} takes all three forms`, async (t) => {
      const { service, upstream } = await serveUpstream(t);
      const asked = '{"a":1}';
      for (const input of [asked, user(text(asked)), [{ role: "user", content: asked }]]) {
        const reply = await service.post(`/agents/assistant/${endpoint}`, { input, schema: { type: "object" } });
        assert.equal(reply.status, 200);
        await reply.text();
      }
      const expected = [SYSTEM, { role: "user", content: asked }];
      assert.deepEqual(
        upstream.requests.map(({ body }) => body.messages),
        [expected, expected, expected],
      );
    });
  }
});

const BAD: [title: string, input: unknown, error: RegExp][] = [
  ["a number", 7, /^input must be a string, an array of UI messages or an array of model messages$/],
  ["an empty list", [], /^input must not be empty$/],
  ["a message that is no object", ["hi"], /^input\[0\] must be object$/],
  ["a message without parts or content", [{ role: "user" }], /^input\[0\] needs `parts` .* or `content`/],
  ["an unknown role", [{ role: "wizard", content: "x" }], /^input\[0\]\.role must be one of "system", "user"/],
  ["a text part without text", user({ type: "text" }), /^input\[0\]\.parts\[0\]\.text must be string$/],
  ["an unknown part", user(text("x"), { type: "smell" }), /^input\[0\]\.parts\[1\]\.type "smell" is not a known part/],
  ["a file without an address", user({ type: "file" }), /^input\[0\]\.parts\[0\]\.url must be a non-empty string$/],
  [
    "a file on the local disk",
    user({ type: "file", mediaType: "image/png", url: "file:///etc/passwd" }),
    /^input\[0\]\.parts\[0\]\.url must be a data: or http\(s\) URL$/,
  ],
  ["content of the wrong type", [{ role: "user", content: 5 }], /^input\[0\]\.content must be string or array$/],
];

describe("input that makes no sense", () => {
  for (const [title, input, error] of BAD) {
    test(`POST /agents/:id/text and /stream: ${title} is 400 and named, a plain reply`, async (t) => {
      const service = await startService(t, manifestWith());
      for (const endpoint of ["text", "stream"]) {
        const answer = await errorOf(service.post(`/agents/assistant/${endpoint}`, { input }));
        assert.equal(answer.status, 400);
        assert.match(answer.error, error);
      }
    });
  }

  test("POST /agents/:id/chat names `messages` where the hook's body is wrong, and asks for input where there is none", async (t) => {
    const service = await startService(t, manifestWith());
    const wrong = await errorOf(service.post("/agents/assistant/chat", { id: "c", messages: [{ role: "user" }] }));
    assert.deepEqual([wrong.status, wrong.error.slice(0, 17)], [400, "messages[0] needs"]);
    const missing = await errorOf(service.post("/agents/assistant/chat", { id: "c" }));
    assert.equal(missing.status, 400);
    assert.match(missing.error, /^input is required/);
  });

  test("POST /agents/:id/text: a file that the provider cannot take is 400 and names the part", async (t) => {
    const { service } = await serveUpstream(t);
    const input = user({ type: "file", mediaType: "application/zip", url: "data:application/zip;base64,UEs=" });
    const reply = await service.post(TEXT, { input });
    assert.equal(reply.headers.get("x-error-code"), "invalid_input");
    assert.match(
      (await errorOf(reply)).error,
      /^part 1 of the last message: .* does not take this file \(application\/zip\)/,
    );
  });
});

test("POST /agents/:id/text hands the model neither ids nor metadata of UI messages", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  const input = [{ id: "secret-id", role: "user", metadata: { note: "secret-note" }, parts: [text("Hi")] }];
  await dataOf(service.post(TEXT, { input }));
  assert.doesNotMatch(JSON.stringify(upstream.requests[0]!.body as Loose), /secret/);
});
