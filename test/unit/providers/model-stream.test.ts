/** Chains over models as a plugin of a user could write them, good and bad. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LanguageModelV3, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { createModelChain } from "../../../core/models/models.ts";
import { ask, partsOf, silent, soon } from "../../support/providers.ts";

/** Models written for one test, as a plugin of a user could be. */
function modelOf(doStream: LanguageModelV3["doStream"]): LanguageModelV3 {
  return {
    specificationVersion: "v3",
    provider: "test",
    modelId: "m",
    supportedUrls: {},
    doStream,
    doGenerate: () => Promise.reject(new Error("unused")),
  };
}

const single = (model: LanguageModelV3, retries = 0) =>
  createModelChain([{ id: "test/m", model, retries }], { logger: silent, backoff: 1 });

const streamOf = (parts: LanguageModelV3StreamPart[], hooks: { cancel?: (reason: unknown) => void } = {}) =>
  new ReadableStream<LanguageModelV3StreamPart>({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      if (hooks.cancel === undefined) controller.close();
    },
    ...hooks,
  });

test("a provider that ignores the signal is left at once, while it is called and while it streams", async () => {
  const controllers = [new AbortController(), new AbortController()] as const;
  const deaf = single(modelOf(() => new Promise(() => undefined)));
  const calling = deaf.stream(ask("x", { abortSignal: controllers[0].signal }));
  controllers[0].abort(new Error("left"));
  await assert.rejects(soon(calling, "the end"), /left/);

  let cancelled: unknown;
  const stream = streamOf([{ type: "text-start", id: "1" }], {
    cancel: (reason) => {
      cancelled = reason;
    },
  });
  const streaming = await single(modelOf(() => Promise.resolve({ stream }))).stream(
    ask("x", { abortSignal: controllers[1].signal }),
  );
  assert.notEqual(await streaming.next(), null);
  const pending = Promise.resolve(streaming.next());
  controllers[1].abort(new Error("left too"));
  await assert.rejects(soon(pending, "the end"), /left too/);
  assert.match(String(cancelled), /left too/);
});

test("a provider that answers after it was left has its stream cancelled", async () => {
  const controller = new AbortController();
  let cancelled = false;
  let answer: (result: { stream: ReadableStream<LanguageModelV3StreamPart> }) => void = () => undefined;
  const model = modelOf(
    () =>
      new Promise((resolve) => {
        answer = resolve;
      }),
  );
  const calling = single(model).stream(ask("x", { abortSignal: controller.signal }));
  controller.abort(new Error("left"));
  await assert.rejects(calling, /left/);
  const cancel = () => {
    cancelled = true;
  };
  answer({ stream: streamOf([], { cancel }) });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(cancelled, true);
});

test("a stream that ends without a finish part is a failure, not an answer", async () => {
  const parts: LanguageModelV3StreamPart[] = [
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: "half" },
  ];
  const chain = single(modelOf(() => Promise.resolve({ stream: streamOf(parts) })));
  await assert.rejects(partsOf(chain, ask("x")), /^ServiceError: model provider failed: unavailable$/);
});

test("a doStream that throws synchronously is a failure like any other", async () => {
  let tries = 0;
  const model = modelOf(() => {
    tries++;
    throw new Error("bug");
  });
  await assert.rejects(partsOf(single(model, 2), ask("x")), /model provider failed: unavailable/);
  assert.equal(tries, 3);
});

test("the parts of a stream are read no further ahead than a few hundred", async () => {
  let produced = 0;
  const stream = new ReadableStream<LanguageModelV3StreamPart>(
    { pull: (controller) => controller.enqueue({ type: "text-delta", id: "1", delta: String(produced++) }) },
    { highWaterMark: 0 },
  );
  const source = await single(modelOf(() => Promise.resolve({ stream }))).stream(ask("x"));
  await source.next();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(produced < 1000, `${produced} parts`);
  source.cancel();
});
