/** The strict upstreams of the tests do refuse what the real providers refuse, so that an agent that they accept is right. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Loose } from "../support/served-upstream.ts";
import { anthropic } from "../support/strict-anthropic.ts";
import { gemini } from "../support/strict-gemini.ts";
import { openAIChat } from "../support/strict-openai-chat.ts";
import { openAIResponses } from "../support/strict-responses.ts";
import { type Dialect, startStrictUpstream } from "../support/strict-upstream.ts";

interface Api {
  readonly dialect: () => Dialect;
  readonly path: string;
  /** A body that is accepted. */
  readonly good: Loose;
  /** What a change of it is refused with. */
  readonly bad: readonly (readonly [change: Loose, refusal: RegExp])[];
}

const LONG = "x".repeat(65);
const OPEN_SCHEMA = { type: "object", properties: { a: { type: "string" } }, required: ["a"] };
const LOOSE_SCHEMA = { type: "object", properties: { a: { type: "string" } }, additionalProperties: false };
const user = (content: unknown) => ({ role: "user", content });

const call = (id: string) => ({ id, type: "function", function: { name: "add", arguments: "{}" } });
const chatTools = (name: string, rest: object = {}) => [{ type: "function", function: { name, ...rest } }];
const asked = [user("Add"), { role: "assistant", content: null, tool_calls: [call("c1"), call("c2")] }];
const format = (schema: object) => ({ type: "json_schema", json_schema: { name: "r", strict: true, schema } });

const functionCall = { type: "function_call", call_id: "c1", name: "add", arguments: "{}" };
const functionOutput = { type: "function_call_output", call_id: "c1", output: "3" };

const toolUse = (id: string, name = "add") => ({ type: "tool_use", id, name, input: {} });
const toolResult = (id: string) => ({ type: "tool_result", tool_use_id: id, content: "3" });
const says = (...content: object[]) => ({ role: "assistant", content });
const cached = { type: "text", text: "x", cache_control: { type: "ephemeral" } };
const image = (media_type: string, data: string) =>
  user([{ type: "image", source: { type: "base64", media_type, data } }]);

const model = (...parts: object[]) => ({ role: "model", parts });
const told = (...parts: object[]) => ({ role: "user", parts });
const signedCall = { functionCall: { name: "add", args: {} }, thoughtSignature: "skip_thought_signature_validator" };
const response = { functionResponse: { name: "add", response: {} } };

const APIS: Record<string, Api> = {
  "OpenAI chat completions": {
    dialect: openAIChat,
    path: "/chat/completions",
    good: { model: "gpt-4.1", messages: [user("Hi")], max_tokens: 10, temperature: 0.5, tools: chatTools("add") },
    bad: [
      [{ model: "gpt-5" }, /Unsupported parameter: 'max_tokens'.* Use 'max_completion_tokens' instead/],
      [{ model: "o3-mini", max_tokens: undefined }, /'temperature' does not support 0.5 with this model/],
      [{ model: "gpt-5", max_tokens: undefined, temperature: 1, top_p: 1 }, /Unsupported parameter: 'top_p'/],
      [{ tools: chatTools("shop.add") }, /Invalid 'tools\[0\].function.name': string does not match pattern/],
      [{ tools: chatTools(LONG) }, /maximum length 64, but got a string with length 65/],
      [{ tools: chatTools("add", { strict: true, parameters: OPEN_SCHEMA }) }, /'additionalProperties' is required/],
      [{ response_format: format(LOOSE_SCHEMA) }, /'required' is required.* Missing 'a'/],
      [{ response_format: { type: "json_object" } }, /must contain the word 'json'/],
      [{ messages: [] }, /empty array/],
      [
        { messages: [{ role: "tool", tool_call_id: "c1", content: "3" }] },
        /must be a response to a preceeding message/,
      ],
      [{ messages: asked }, /did not have response messages: c1, c2/],
      [
        { messages: [...asked, { role: "tool", tool_call_id: "c1", content: "3" }, user("Hm")] },
        /response messages: c2/,
      ],
      [
        { messages: [...asked, { role: "tool", tool_call_id: "c3", content: "3" }] },
        /'tool_call_id' of 'c3' not found/,
      ],
      [{ messages: [{ role: "assistant", content: null }] }, /expected a string, got null/],
      [
        { messages: [user([{ type: "image_url", image_url: { url: "data:image/bmp;base64,AAAA" } }])] },
        /unsupported image/,
      ],
    ],
  },
  "OpenAI Responses": {
    dialect: openAIResponses,
    path: "/responses",
    good: { model: "gpt-5", input: [user("Hi"), functionCall, functionOutput], max_output_tokens: 10 },
    bad: [
      [{ text: { format: { type: "json_object" } } }, /must contain the word 'json'/],
      [{ temperature: 0.5 }, /'temperature' does not support 0.5/],
      [{ top_p: 0.5 }, /Unsupported parameter: 'top_p'/],
      [{ max_tokens: 5 }, /Unknown parameter: 'max_tokens'/],
      [{ tools: [{ type: "function", name: "shop.add" }] }, /Invalid 'tools\[0\].name'/],
      [
        { text: { format: { type: "json_schema", name: "r", strict: true, schema: OPEN_SCHEMA } } },
        /Invalid schema for/,
      ],
      [{ input: [user("Hi"), functionCall] }, /No tool output found for function call c1/],
      [{ input: [user("Hi"), functionOutput] }, /No tool call found for function call output with call_id c1/],
      [{ input: [{ type: "item_reference", id: "rs_1" }] }, /Item with id 'rs_1' not found/],
      [
        { input: [{ type: "reasoning", id: "rs_1", summary: [], encrypted_content: "forged" }] },
        /could not be verified/,
      ],
    ],
  },
  Anthropic: {
    dialect: anthropic,
    path: "/messages",
    good: {
      model: "claude-sonnet-4-5",
      max_tokens: 2000,
      messages: [user("Hi")],
      system: "Help.",
      tools: [{ name: "add" }],
    },
    bad: [
      [{ max_tokens: undefined }, /max_tokens: Field required/],
      [{ temperature: 1.5 }, /temperature: range: 0..1/],
      [{ temperature: 0.5, top_p: 1 }, /cannot both be specified/],
      [{ temperature: 0.5, thinking: { type: "enabled", budget_tokens: 1024 } }, /may only be set to 1 when thinking/],
      [{ tools: [{ name: "shop.add" }] }, /tools.0.custom.name: String should match pattern/],
      [{ messages: [] }, /at least one message is required/],
      [{ messages: [says({ type: "text", text: "Hi" })] }, /first message must use the "user" role/],
      [{ messages: [user("Hi"), user("Ho")] }, /roles must alternate.* multiple "user" roles in a row/],
      [{ messages: [{ role: "system", content: "Help." }] }, /Unexpected role "system"/],
      [
        { messages: [user("Hi"), says(toolUse("t1")), user("Hm")] },
        /without `tool_result` blocks immediately after: t1/,
      ],
      [
        { messages: [user("Hi"), says(toolUse("t1")), user([{ type: "text", text: "Hm" }, toolResult("t1")])] },
        /without `tool_result` blocks immediately after: t1/,
      ],
      [{ messages: [user([toolResult("t1")])] }, /unexpected `tool_use_id` found/],
      [{ messages: [user("Hi"), says(toolUse("t1"), toolUse("t1")), user([toolResult("t1")])] }, /ids must be unique/],
      [{ messages: [user("Hi"), says(toolUse("t.1")), user([toolResult("t.1")])] }, /tool_use.id: String should match/],
      [
        { messages: [user("Hi"), says({ type: "thinking", thinking: "Hm", signature: "forged" })] },
        /Invalid `signature`/,
      ],
      [
        {
          thinking: { type: "enabled", budget_tokens: 1024 },
          messages: [user("Hi"), says(toolUse("t1")), user([toolResult("t1")])],
        },
        /Expected `thinking` or `redacted_thinking`, but found `tool_use`/,
      ],
      [{ messages: [user([{ type: "text", text: "" }])] }, /must be non-empty/],
      [{ messages: [image("image/bmp", "AAAA")] }, /media_type: Input should be/],
      [{ messages: [image("image/png", "/9j/4AAQ")] }, /does not match the provided media type image\/png/],
      [{ messages: [user([cached, cached, cached, cached, cached])] }, /maximum of 4 blocks with cache_control/],
    ],
  },
  Gemini: {
    dialect: gemini,
    path: "/models/gemini-3-pro-preview:streamGenerateContent?alt=sse",
    good: { contents: [told({ text: "Hi" }), model(signedCall), told(response)] },
    bad: [
      [{ contents: [] }, /contents is not specified/],
      [{ contents: [{ role: "system", parts: [{ text: "Help." }] }] }, /valid role: user, model/],
      [{ contents: [model(signedCall), told(response)] }, /function call turn comes immediately after a user turn/],
      [
        { contents: [told({ text: "Hi" }), told(response)] },
        /response turn comes immediately after a function call turn/,
      ],
      [
        { contents: [told({ text: "Hi" }), model(signedCall, signedCall), told(response)] },
        /number of function response/,
      ],
      [{ contents: [told({ text: "Hi" }), model({ text: "Ho" })] }, /end with a user role/],
      [
        { contents: [told({ text: "Hi" }), model({ functionCall: { name: "add", args: {} } }), told(response)] },
        /missing a thought_signature.* `default_api:add` , position 2/,
      ],
      [
        { contents: [told({ text: "Hi" }), model({ ...signedCall, thoughtSignature: "forged" }), told(response)] },
        /Corrupted thought signature/,
      ],
      [{ tools: [{ functionDeclarations: [{ name: "1st" }] }] }, /Must start with a letter or an underscore/],
      [{ contents: [told({ inlineData: { mimeType: "image/*", data: "AAAA" } })] }, /Unsupported MIME type: image/],
    ],
  },
};

for (const [name, { dialect, path, good, bad }] of Object.entries(APIS)) {
  describe(name, () => {
    test(`the strict upstream of ${name} answers a good request, and refuses a bad one in the provider's words`, async (t) => {
      const upstream = await startStrictUpstream(t, dialect());
      const post = (body: object) => fetch(upstream.baseURL + path, { method: "POST", body: JSON.stringify(body) });
      const reply = await post(good);
      assert.match(await reply.text(), /^(event|data): /);
      assert.deepEqual(upstream.refusals, []);
      for (const [change, refusal] of bad) {
        const refused = await post({ ...good, ...change });
        const body = await refused.text();
        assert.ok(refused.status >= 400, `${JSON.stringify(change)} was accepted`);
        assert.match(JSON.parse(body).error.message, refusal);
      }
    });
  });
}
