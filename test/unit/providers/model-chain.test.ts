/** Retries and fallback over real providers: before the first visible byte, never after. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { ChainSettings } from "../../../core/models/chained-answer.ts";
import { createModelChain } from "../../../core/models/models.ts";
import openaiCompatible from "../../../core/models/openai-compatible/openai-compatible.ts";
import scripted from "../../../core/models/scripted/scripted.ts";
import type { ModelTimeouts } from "../../../core/plugin/plugin.ts";
import { jumpingClock } from "../../support/jumping-clock.ts";
import {
  calls,
  cutsAfter,
  failsAfter,
  failure,
  type OpenAIUpstream,
  type Reply,
  stallsBeforeHead,
  stallsBeforeText,
  startOpenAIUpstream,
} from "../../support/openai-upstream.ts";
import {
  ask,
  batchesOf,
  chainOf,
  makeProvider,
  type Part,
  partOf,
  partsOf,
  settingsOf,
  silent,
  soon,
  textOf,
} from "../../support/providers.ts";

interface Setup {
  first: OpenAIUpstream;
  second: OpenAIUpstream;
  chain: ReturnType<typeof createModelChain>;
  /** Messages that were logged. */
  log: string[];
}

/** Two upstreams, one the fallback of the other. */
async function setUp(
  test: TestContext,
  config: { retries?: number; timeouts?: ModelTimeouts; backoff?: number } = {},
): Promise<Setup> {
  const { retries = 2, timeouts = settingsOf().timeouts, backoff = 1 } = config;
  const upstreams = [await startOpenAIUpstream(), await startOpenAIUpstream()] as const;
  const log: string[] = [];
  const note = (_: object, message: string) => void log.push(message);
  const chained = [];
  for (const [index, upstream] of upstreams.entries()) {
    test.after(() => upstream.close());
    const provider = await makeProvider(test, openaiCompatible, { baseURL: upstream.baseURL });
    chained.push({
      id: `p${index}/m`,
      model: provider.languageModel(`model-${index}`, settingsOf({ timeouts })),
      retries,
    });
  }
  const logger = { info: note, warn: note } as unknown as ChainSettings["logger"];
  const chain = createModelChain(chained, { logger, backoff });
  return { first: upstreams[0], second: upstreams[1], chain, log };
}

test("the id of a chain is its first entry", async (context) => {
  assert.equal((await setUp(context)).chain.id, "p0/m");
});

const TRANSIENT: [string, () => Reply][] = [
  ["429", () => failure(429)],
  ["500", () => failure(500)],
  ["503", () => failure(503)],
  ["a cut before the first token", () => cutsAfter("")],
  ["an error event before the first token", () => failsAfter("")],
];
const STALLS: [string, () => Reply][] = [
  ["a stall before the head", stallsBeforeHead],
  ["a stall before the first token", stallsBeforeText],
];
const PATIENT = { connect: 600_000, firstByte: 600_000, idle: 600_000 };

for (const [title, reply] of TRANSIENT) {
  test(`${title} is tried again on the same model until it answers`, async (context) => {
    const { first, second, chain } = await setUp(context);
    first.replies(reply(), reply());
    assert.equal(textOf(await partsOf(chain, ask("hello"))), "hello");
    assert.equal(first.requests.length, 3);
    assert.equal(second.requests.length, 0);
  });

  test(`${title} on every try falls back to the next model of the chain`, async (context) => {
    const { first, second, chain, log } = await setUp(context, { retries: 1 });
    first.fallback(reply());
    assert.equal(textOf(await partsOf(chain, ask("hello"))), "hello");
    assert.equal(first.requests.length, 2);
    assert.equal(second.requests.length, 1);
    assert.equal(second.requests[0]?.body.model, "model-1");
    assert.equal(log.length, 2);
    assert.match(log[1] ?? "", /falling back$/);
  });
}

for (const [title, reply] of STALLS) {
  test(`${title} ends at timeouts.firstByte, and the next model of the chain answers without another try`, async (context) => {
    const { first, second, chain } = await setUp(context, { timeouts: PATIENT });
    first.fallback(reply());
    const clock = jumpingClock(context);
    const parts = partsOf(chain, ask("hello"));
    await first.request(0);
    clock.advance(11 * 60_000);
    assert.equal(textOf(await soon(parts, "the answer")), "hello");
    assert.equal(first.requests.length, 1);
    assert.equal(second.requests.length, 1);
  });
}

for (const status of [400, 401, 403, 404, 422]) {
  test(`${status} is not tried again, and falls back at once`, async (context) => {
    const { first, second, chain } = await setUp(context);
    first.fallback(failure(status));
    assert.equal(textOf(await partsOf(chain, ask("hello"))), "hello");
    assert.equal(first.requests.length, 1);
    assert.equal(second.requests.length, 1);
  });
}

test("when every model fails, the last failure is the one that is told", async (context) => {
  const { first, second, chain } = await setUp(context, { retries: 0 });
  first.fallback(failure(500));
  second.fallback(failure(429));
  await assert.rejects(partsOf(chain, ask("hello")), {
    kind: "rate_limited",
    source: "provider",
    message: "model provider failed: rate limited",
  });
});

test("a stream that was accepted and fails before anything visible is made good by another try: parts come once", async (context) => {
  const { first, chain } = await setUp(context);
  // A head, metadata and usage are no visible parts.
  first.replies({ steps: [{ usage: { prompt: 1 } }, { error: { message: "overloaded" } }] });
  const parts = await partsOf(chain, ask("hello"));
  assert.equal(first.requests.length, 2);
  assert.equal(parts.filter(({ type }) => type === "stream-start").length, 1);
  assert.equal(parts.filter(({ type }) => type === "response-metadata").length, 1);
  assert.equal(textOf(parts), "hello");
});

const AFTER: [string, () => Reply, Part["type"]][] = [
  ["text", () => cutsAfter("half"), "text-delta"],
  ["text and an error event", () => failsAfter("half"), "text-delta"],
  ["reasoning", () => ({ steps: [{ reasoning: "hm" }, { wait: 10 }, { cut: true }] }), "reasoning-delta"],
  [
    "the start of a tool call",
    () => ({ steps: [...(calls([{ name: "add" }]).steps ?? []).slice(0, 1), { wait: 10 }, { cut: true }] }),
    "tool-input-start",
  ],
];

for (const [title, reply, type] of AFTER) {
  test(`a failure after ${title} is neither tried again nor handed to another model`, async (context) => {
    const { first, second, chain } = await setUp(context);
    first.fallback(reply());
    const stream = await chain.stream(ask("hello"));
    const seen: Part[] = [];
    await assert.rejects(
      (async () => {
        for (let batch = await stream.next(); batch !== null; batch = await stream.next()) seen.push(...batch);
      })(),
      { kind: "provider_failed", message: "model provider failed: unavailable" },
    );
    assert.ok(seen.some((part) => part.type === type));
    assert.equal(first.requests.length, 1);
    assert.equal(second.requests.length, 0);
  });
}

test("Retry-After in seconds is waited for, instead of the shorter back-off", async (context) => {
  const { first, chain } = await setUp(context);
  first.replies(failure(429, { retryAfter: 1 }));
  const start = performance.now();
  await partsOf(chain, ask("hello"));
  assert.ok(performance.now() - start >= 990);
  assert.equal(first.requests.length, 2);
});

test("a Retry-After of an hour is not waited for: the next model takes over", async (context) => {
  const { first, second, chain } = await setUp(context);
  first.fallback(failure(429, { retryAfter: 3600 }));
  assert.equal(textOf(await soon(partsOf(chain, ask("hello")), "the fallback")), "hello");
  assert.equal(first.requests.length, 1);
  assert.equal(second.requests.length, 1);
});

test("an abort during the pause between two tries ends it at once", async (context) => {
  const { first, chain } = await setUp(context, { backoff: 60_000 });
  first.fallback(failure(500));
  const controller = new AbortController();
  const reason = new Error("client left");
  const opening = chain.stream(ask("hello", { abortSignal: controller.signal }));
  await first.request(0);
  setTimeout(() => controller.abort(reason), 50);
  await assert.rejects(soon(opening, "the end"), (thrown) => thrown === reason);
  assert.equal(first.requests.length, 1);
});

test("an abort while a model is called neither tries again nor falls back", async (context) => {
  const { first, second, chain } = await setUp(context);
  first.fallback(stallsBeforeHead());
  const controller = new AbortController();
  const opening = chain.stream(ask("hello", { abortSignal: controller.signal }));
  const request = await first.request(0);
  controller.abort(new Error("client left"));
  await assert.rejects(soon(opening, "the end"), /client left/);
  await soon(request.aborted, "the close of the upstream socket");
  assert.equal(first.requests.length, 1);
  assert.equal(second.requests.length, 0);
});

test("stream() resolves when the model has accepted the call, before its first token", async (context) => {
  const { first, chain } = await setUp(context);
  first.replies(stallsBeforeText());
  const stream = await soon(chain.stream(ask("hello")), "the acceptance");
  stream.cancel();
  await soon(first.requests[0]!.aborted, "the close of the upstream socket");
});

test("a scripted answer is there in one batch and without a promise, and reads no signal", async (context) => {
  const provider = await makeProvider(context, scripted, { chunks: 32 });
  const chain = chainOf(provider, "echo");
  await partsOf(chain, ask("the first call learns that the model answers in batches"));
  const options = ask("one text that is cut into thirty-two deltas");
  Object.defineProperty(options, "abortSignal", { get: () => assert.fail("the signal was read") });
  const stream = await chain.stream(options);
  const batch = stream.next();
  assert.ok(Array.isArray(batch));
  assert.equal(batch.filter(({ type }) => type === "text-delta").length, 32);
  assert.equal(stream.next(), null);
});

test("a scripted failure falls back like that of a real provider", async (context) => {
  const config = {
    models: {
      broken: { replies: [{ error: "rate limited" }] },
      late: { firstDelay: "10ms", replies: [{ error: "timed out" }] },
    },
  };
  const provider = await makeProvider(context, scripted, config);
  const chained = ["broken", "late", "echo"].map((id) => ({
    id: `demo/${id}`,
    model: provider.languageModel(id, settingsOf()),
    retries: 0,
  }));
  const parts = await partsOf(createModelChain(chained, { logger: silent }), ask("hello"));
  assert.equal(textOf(parts), "hello");
  assert.equal(partOf(parts, "finish").finishReason.unified, "stop");
});

test("batches of one answer join to the same text as its deltas, however often it is read late", async (context) => {
  const provider = await makeProvider(context, scripted, { chunks: 8, delay: "5ms" });
  const stream = await chainOf(provider, "echo").stream(ask("one two three four"));
  await new Promise((resolve) => setTimeout(resolve, 25));
  const batches = await batchesOf(stream);
  assert.equal(textOf(batches.flat()), "one two three four");
  assert.ok(batches.length < 8);
});
