/** What the service expects of every model provider. Run it against one with a model that behaves as `ModelsToTest` says. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { LanguageModelV3, LanguageModelV3FunctionTool, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { createModelChain, type ModelChain } from "../../core/models/models.ts";
import type { ModelProvider } from "../../core/plugin/plugin.ts";
import { ask, batchesOf, partOf, partsOf, settingsOf, silent, soon, textOf } from "../support/providers.ts";

interface ProviderUnderTest {
  provider: ModelProvider;
  /** Repeats the user's text; calls tool `add {a: 1, b: 2}` for the text `add`, and then says `the sum is 3`. */
  echo: string;
  /** Answers JSON that fits `{answer: string}` when asked for JSON. */
  json: string;
  /** Says at least a word at once, and is not done a minute later. */
  slow: string;
  /** Refuses every call. */
  broken: string;
}

const ADD: LanguageModelV3FunctionTool = {
  type: "function",
  name: "add",
  inputSchema: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
};

const SCHEMA = {
  type: "object" as const,
  properties: { answer: { type: "string" as const } },
  required: ["answer"],
  additionalProperties: false,
};

/** @param make a provider for each test */
export function providerSuite(name: string, make: (test: TestContext) => Promise<ProviderUnderTest>): void {
  const chain = (model: LanguageModelV3): ModelChain =>
    createModelChain([{ id: "x/y", model, retries: 0 }], { logger: silent });

  describe(`model provider ${name}`, () => {
    test("implements version 3 of the AI SDK's language model", async (context) => {
      const { provider, echo } = await make(context);
      const model = provider.languageModel(echo, settingsOf());
      assert.equal(model.specificationVersion, "v3");
      assert.equal(model.modelId, echo);
      assert.equal(typeof model.provider, "string");
    });

    test("a text comes between its start and its end, and a finish part with reason stop is last", async (context) => {
      const { provider, echo } = await make(context);
      const parts = await partsOf(chain(provider.languageModel(echo, settingsOf())), ask("Hello there, you"));
      assert.equal(textOf(parts), "Hello there, you");
      const types = parts.map((part) => part.type);
      assert.ok(types.indexOf("text-start") < types.indexOf("text-delta"));
      assert.ok(types.lastIndexOf("text-delta") < types.indexOf("text-end"));
      assert.equal(types.at(-1), "finish");
      assert.equal(partOf(parts, "finish").finishReason.unified, "stop");
      const ids = new Set(parts.flatMap((part) => (part.type.startsWith("text-") && "id" in part ? [part.id] : [])));
      assert.equal(ids.size, 1);
    });

    test("the finish part counts input and output tokens", async (context) => {
      const { provider, echo } = await make(context);
      const parts = await partsOf(chain(provider.languageModel(echo, settingsOf())), ask("one two three"));
      const { usage } = partOf(parts, "finish");
      assert.ok((usage.inputTokens.total ?? 0) > 0);
      assert.ok((usage.outputTokens.total ?? 0) > 0);
    });

    test("the standard stream of doStream has the same parts as the batches", async (context) => {
      const { provider, echo } = await make(context);
      const model = provider.languageModel(echo, settingsOf());
      const { stream } = await model.doStream(ask("the same either way"));
      const read: LanguageModelV3StreamPart[] = [];
      for await (const part of stream) read.push(part);
      const batched = await partsOf(chain(model), ask("the same either way"));
      assert.deepEqual(
        read.map((part) => part.type),
        batched.map((part) => part.type),
      );
      assert.equal(textOf(read), textOf(batched));
    });

    test("doGenerate gives the same text in one piece", async (context) => {
      const { provider, echo } = await make(context);
      const result = await provider.languageModel(echo, settingsOf()).doGenerate(ask("in one piece"));
      assert.deepEqual(
        result.content.map((part) => part.type === "text" && part.text),
        ["in one piece"],
      );
      assert.equal(result.finishReason.unified, "stop");
    });

    test("a tool call has JSON as input, and its result is answered in the next round", async (context) => {
      const { provider, echo } = await make(context);
      const model = chain(provider.languageModel(echo, settingsOf()));
      const options = ask("add", { tools: [ADD] });
      const parts = await partsOf(model, options);
      const call = partOf(parts, "tool-call");
      assert.equal(call.toolName, "add");
      assert.deepEqual(JSON.parse(call.input), { a: 1, b: 2 });
      assert.equal(partOf(parts, "finish").finishReason.unified, "tool-calls");

      const { toolCallId, toolName } = call;
      const next = await partsOf(model, {
        ...options,
        prompt: [
          ...options.prompt,
          { role: "assistant", content: [{ type: "tool-call", toolCallId, toolName, input: { a: 1, b: 2 } }] },
          {
            role: "tool",
            content: [{ type: "tool-result", toolCallId, toolName, output: { type: "json", value: { sum: 3 } } }],
          },
        ],
      });
      assert.equal(textOf(next), "the sum is 3");
    });

    test("asked for JSON with a schema it answers JSON that fits", async (context) => {
      const { provider, json } = await make(context);
      const model = chain(provider.languageModel(json, settingsOf()));
      const parts = await partsOf(model, ask("anything", { responseFormat: { type: "json", schema: SCHEMA } }));
      const value = JSON.parse(textOf(parts));
      assert.deepEqual(Object.keys(value), ["answer"]);
      assert.equal(typeof value.answer, "string");
    });

    test("an abort in the middle of an answer ends it at once", async (context) => {
      const { provider, slow } = await make(context);
      const controller = new AbortController();
      const options = ask("a b c d e f", { abortSignal: controller.signal });
      const stream = await chain(provider.languageModel(slow, settingsOf())).stream(options);
      const first = await soon(Promise.resolve(stream.next()), "the first part");
      assert.notEqual(textOf(first ?? []), "");
      const reason = new Error("the client has left");
      setTimeout(() => controller.abort(reason), 20);
      await assert.rejects(soon(batchesOf(stream), "the end of an aborted answer"), (thrown) => thrown === reason);
    });

    test("cancel in the middle of an answer ends it without an error", async (context) => {
      const { provider, slow } = await make(context);
      const stream = await chain(provider.languageModel(slow, settingsOf())).stream(ask("a b c d e f"));
      await soon(Promise.resolve(stream.next()), "the first part");
      const pending = Promise.resolve(stream.next());
      stream.cancel();
      assert.equal(await soon(pending, "the end of a cancelled answer"), null);
      assert.equal(await stream.next(), null);
      stream.cancel();
    });

    test("a refused call is an error whose message keeps the provider's own words to the log", async (context) => {
      const { provider, broken } = await make(context);
      await assert.rejects(partsOf(chain(provider.languageModel(broken, settingsOf())), ask("x")), (thrown: Error) => {
        assert.match(
          thrown.message,
          /^model provider failed: (rate limited|timed out|unavailable|refused the request)$/,
        );
        assert.ok(thrown.cause instanceof Error);
        return true;
      });
    });
  });
}
