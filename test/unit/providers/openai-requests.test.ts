/** The same calls by the provider `openai-compatible` and by the AI SDK's package: the bodies that they send must be the same. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type { LanguageModelV3CallOptions, LanguageModelV3Prompt } from "@ai-sdk/provider";
import { openaiOver } from "../../support/openai-provider.ts";
import { ask, settingsOf } from "../../support/providers.ts";

const USER = { role: "user" as const, content: [{ type: "text" as const, text: "hi" }] };
const PNG = new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10]);
const EXTRA = { openaiCompatible: { cache_control: { type: "ephemeral" } } };
const TOOL = {
  type: "function" as const,
  name: "add",
  description: "Adds.",
  inputSchema: { type: "object" as const, properties: { a: { type: "number" as const } } },
};
const prompt = (...messages: LanguageModelV3Prompt): Partial<LanguageModelV3CallOptions> => ({ prompt: messages });
const user = (...content: Extract<LanguageModelV3Prompt[number], { role: "user" }>["content"]) =>
  prompt({ role: "user", content });
const answered = (
  output: Extract<
    Extract<LanguageModelV3Prompt[number], { role: "tool" }>["content"][number],
    { type: "tool-result" }
  >["output"],
) =>
  prompt(
    USER,
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "c", toolName: "add", input: { a: 1 } }] },
    { role: "tool", content: [{ type: "tool-result", toolCallId: "c", toolName: "add", output }] },
  );

const CALLS: [string, Partial<LanguageModelV3CallOptions>][] = [
  ["a text", {}],
  [
    "every setting",
    {
      maxOutputTokens: 9,
      temperature: 0.5,
      topP: 0.9,
      frequencyPenalty: 1,
      presencePenalty: 1,
      seed: 3,
      stopSequences: ["x"],
    },
  ],
  [
    "a system message and a conversation",
    prompt(
      { role: "system", content: "Be brief." },
      USER,
      {
        role: "assistant",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
      USER,
    ),
  ],
  ["two texts in one message", user({ type: "text", text: "a" }, { type: "text", text: "b" })],
  ["an image as bytes", user({ type: "text", text: "a" }, { type: "file", data: PNG, mediaType: "image/png" })],
  ["an image of any type as base64", user({ type: "file", data: "iVBORw==", mediaType: "image/*" })],
  ["an image by URL", user({ type: "file", data: new URL("https://example.com/a.png"), mediaType: "image/png" })],
  ["sound", user({ type: "file", data: PNG, mediaType: "audio/mpeg" })],
  [
    "a PDF with and without a name",
    user(
      { type: "file", data: PNG, mediaType: "application/pdf" },
      { type: "file", data: PNG, mediaType: "application/pdf", filename: "a.pdf" },
    ),
  ],
  [
    "a text file",
    user({ type: "text", text: "see" }, { type: "file", data: Buffer.from("Grüße"), mediaType: "text/plain" }),
  ],
  [
    "reasoning and tool calls of the assistant",
    prompt(USER, {
      role: "assistant",
      content: [
        { type: "reasoning", text: "hm" },
        { type: "text", text: "I will" },
        { type: "tool-call", toolCallId: "c", toolName: "add", input: { a: 1 } },
      ],
    }),
  ],
  [
    "a signature of Gemini",
    prompt(USER, {
      role: "assistant",
      content: [
        {
          type: "tool-call",
          toolCallId: "c",
          toolName: "add",
          input: {},
          providerOptions: { google: { thoughtSignature: "c2ln" } },
        },
      ],
    }),
  ],
  ["a result of text", answered({ type: "text", value: "3" })],
  ["a result of JSON", answered({ type: "json", value: { sum: 3 } })],
  ["a result that is an error", answered({ type: "error-json", value: { no: 1 } })],
  ["a denied call", answered({ type: "execution-denied" })],
  ["tools", { tools: [TOOL, { ...TOOL, name: "now", strict: true }], toolChoice: { type: "auto" } }],
  ["one tool that must be called", { tools: [TOOL], toolChoice: { type: "tool", toolName: "add" } }],
  ["no tools, and a choice of them", { tools: [], toolChoice: { type: "required" } }],
  [
    "a schema",
    {
      responseFormat: {
        type: "json",
        schema: { ...TOOL.inputSchema, required: ["a"], additionalProperties: false },
        name: "sum",
        description: "The sum.",
      },
    },
  ],
  [
    "options that have a name of their own",
    {
      providerOptions: {
        demo: { reasoningEffort: "low", user: "ada", textVerbosity: "high" },
        openaiCompatible: { user: "eve" },
      },
    },
  ],
  [
    "options that the provider alone knows",
    { providerOptions: { demo: { service_tier: "flex", top_k: 3 }, other: { x: 1 } } },
  ],
  [
    "options of messages and parts",
    prompt(
      { role: "system", content: "s", providerOptions: EXTRA },
      {
        role: "user",
        content: [
          { type: "text", text: "a", providerOptions: EXTRA },
          { type: "text", text: "b" },
        ],
      },
    ),
  ],
];

for (const [title, options] of CALLS) {
  test(`openai-compatible sends ${title} with the same body as the AI SDK's package`, async (context) => {
    const { upstream, provider } = await openaiOver(context);
    const reference = createOpenAICompatible({
      name: "demo",
      baseURL: upstream.baseURL,
      includeUsage: true,
      supportsStructuredOutputs: true,
    });
    for (const model of [provider.languageModel("m", settingsOf()), reference.languageModel("m")]) {
      const { stream } = await model.doStream(ask("hi", options));
      await stream.cancel();
    }
    const [ours, theirs] = upstream.requests;
    assert.deepEqual(ours?.body, theirs?.body);
  });
}

test("openai-compatible refuses what chat completions have no form for, before anything is sent", async (context) => {
  const { upstream, provider } = await openaiOver(context);
  const model = provider.languageModel("m", settingsOf());
  const video = user({ type: "file", data: PNG, mediaType: "video/mp4" });
  await assert.rejects(Promise.resolve(model.doStream(ask("hi", video))), { name: "AI_UnsupportedFunctionalityError" });
  const options = { providerOptions: { demo: { reasoningEffort: 5 } } };
  await assert.rejects(Promise.resolve(model.doStream(ask("hi", options))), { name: "AI_InvalidArgumentError" });
  assert.equal(upstream.requests.length, 0);
});
