/** Models that fail: which are left alone for a while, and how long a silent one is waited for. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { APICallError, type LanguageModelV3, type LanguageModelV3StreamPart } from "@ai-sdk/provider";
import type { ChainSettings } from "../../../core/models/chained-answer.ts";
import { createCircuits, createModelChain } from "../../../core/models/models.ts";
import { ModelMeter, NamedMeters } from "../../../core/observability/metrics/meters.ts";
import { type ModelTimeouts, ProviderQueueFull } from "../../../core/plugin/plugin.ts";
import { jumpingClock } from "../../support/jumping-clock.ts";
import { ask, partsOf, settingsOf, silent, soon, textOf } from "../../support/providers.ts";

const status = (statusCode: number) =>
  new APICallError({ message: `says ${statusCode}`, url: "http://x", requestBodyValues: {}, statusCode });

const FINISH = {
  type: "finish",
  finishReason: { unified: "stop", raw: undefined },
  usage: { inputTokens: {}, outputTokens: {} },
} as LanguageModelV3StreamPart;
const DELTA = { type: "text-delta", id: "1", delta: "hello" } as const;

/** A model that does what `act` says, and counts its calls. */
function acting(act: (call: number, signal: AbortSignal | undefined) => unknown) {
  const model = {
    calls: 0,
    specificationVersion: "v3",
    provider: "test",
    modelId: "m",
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error("unused")),
    async doStream({ abortSignal }: { abortSignal?: AbortSignal }) {
      const done = act(model.calls++, abortSignal);
      if (done instanceof ReadableStream) return { stream: done };
      if (done !== undefined) await Promise.reject(await done);
      return { stream: streamOf([DELTA, FINISH]) };
    },
  };
  return model as typeof model & LanguageModelV3;
}

/** Without a last part it stays open. */
const streamOf = (parts: readonly LanguageModelV3StreamPart[]) =>
  new ReadableStream<LanguageModelV3StreamPart>({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      if (parts.at(-1)?.type === "finish") controller.close();
    },
  });

function setUp(models: Record<string, LanguageModelV3>, { retries = 0, timeouts = settingsOf().timeouts } = {}) {
  const log: string[] = [];
  const note = (_: object, message: string) => void log.push(message);
  const meters = new NamedMeters(() => new ModelMeter(), Object.keys(models));
  const circuits = createCircuits({ info: note, warn: note } as never, meters);
  const chain = (...names: string[]) =>
    createModelChain(
      names.map((name) => ({ id: name, model: models[name]!, retries, timeouts, circuit: circuits.of(name) })),
      { logger: silent, backoff: 1 },
    );
  return { chain, log, meters };
}

type Chain = ReturnType<typeof createModelChain>;
const fails = (chain: Chain) => assert.rejects(partsOf(chain, ask("x")));
const answers = async (chain: Chain) => assert.equal(textOf(await partsOf(chain, ask("x"))), "hello");
const times = async (count: number, run: () => Promise<void>) => {
  for (let index = 0; index < count; index++) await run();
};

test("a model that has failed five times in a row is not called, in any chain, until one trial call after 10 seconds", async (context) => {
  const clock = jumpingClock(context);
  let works = false;
  const bad = acting(() => (works ? undefined : status(500)));
  const good = acting(() => undefined);
  const { chain, log, meters } = setUp({ "p/bad": bad, "p/good": good });
  await times(5, () => answers(chain("p/bad", "p/good")));
  assert.equal(bad.calls, 5);
  assert.equal(meters.of("p/bad").circuit, "open");
  await times(3, () => answers(chain("p/bad", "p/good")));
  assert.equal(bad.calls, 5, "it is spared");

  await assert.rejects(partsOf(chain("p/bad"), ask("x")), (error: { kind: string; facts: { retryAfter: number } }) => {
    assert.equal(error.kind, "unavailable");
    const wait = error.facts.retryAfter;
    assert.ok(wait >= 1 && wait <= 10, `retry-after ${wait}`);
    return true;
  });
  assert.equal(bad.calls, 5, "a chain of it alone answers without a call");

  clock.advance(10_001);
  await answers(chain("p/bad", "p/good"));
  assert.equal(bad.calls, 6, "the trial");
  await answers(chain("p/bad", "p/good"));
  assert.equal(bad.calls, 6, "it failed, and the next one is 10 seconds away");

  works = true;
  clock.advance(10_001);
  await times(2, () => answers(chain("p/bad")));
  assert.equal(bad.calls, 8);
  assert.equal(meters.of("p/bad").circuit, "closed");
  const short = log.map((line) => /circuit (closed|open|on trial)/.exec(line)?.[1]);
  assert.deepEqual(short, ["open", "on trial", "open", "on trial", "closed"]);
});

test("while a trial call is under way no other is let through, and one that was given up is made good by the next", async (context) => {
  const clock = jumpingClock(context);
  let open: () => void = () => undefined;
  const model = acting((call, signal) => {
    if (call < 5) return status(500);
    if (call > 5) return undefined;
    return new Promise((resolve) => {
      signal?.addEventListener("abort", () => resolve(signal.reason));
      open();
    });
  });
  const { chain } = setUp({ "p/m": model });
  await times(5, () => fails(chain("p/m")));
  clock.advance(10_001);
  const controller = new AbortController();
  const called = new Promise<void>((resolve) => {
    open = resolve;
  });
  const trial = partsOf(chain("p/m"), ask("x", { abortSignal: controller.signal }));
  await called;
  await assert.rejects(partsOf(chain("p/m"), ask("x")), { kind: "unavailable" });
  assert.equal(model.calls, 6);
  controller.abort(new Error("left"));
  await assert.rejects(trial, /left/);
  await answers(chain("p/m"));
});

for (const code of [400, 401, 404, 409, 422]) {
  test(`requests that a model refuses with ${code} do not open its circuit`, async () => {
    const model = acting(() => status(code));
    const { chain, log } = setUp({ "p/m": model });
    await times(8, () => fails(chain("p/m")));
    assert.equal(model.calls, 8);
    assert.deepEqual(log, []);
  });
}

test("answers that are cut at timeouts.total, and calls for which the queue is full, do not open the circuit", async () => {
  const tooLong = Object.assign(new Error("too long"), { name: "TimeoutError", limit: "total" });
  const long = acting(() => streamOf([DELTA, { type: "error", error: tooLong }]));
  const crowded = acting((call) => (call % 2 === 0 ? new ProviderQueueFull(1, 0) : status(500)));
  const { chain, meters } = setUp({ "p/long": long, "p/crowded": crowded });
  await times(8, () => fails(chain("p/long")));
  assert.equal(long.calls, 8);
  await times(9, () => fails(chain("p/crowded")));
  assert.equal(meters.of("p/crowded").circuit, "closed");
  await fails(chain("p/crowded"));
  assert.equal(meters.of("p/crowded").circuit, "open", "nor does a full queue hide that the model fails");
});

test("a success between failures begins the count anew", async () => {
  const model = acting((call) => (call % 5 === 4 ? undefined : status(500)));
  const { chain, log } = setUp({ "p/m": model });
  for (let call = 0; call < 20; call++) await (call % 5 === 4 ? answers(chain("p/m")) : fails(chain("p/m")));
  assert.deepEqual(log, []);
});

test("five failures in a row among many answers of the same second are chance, and do not open the circuit; in the next second they do", async (context) => {
  const clock = jumpingClock(context);
  let failing = true;
  const model = acting(() => (failing ? status(500) : undefined));
  const { chain, meters } = setUp({ "p/m": model });
  await fails(chain("p/m"));
  failing = false;
  await times(20, () => answers(chain("p/m")));
  failing = true;
  await times(6, () => fails(chain("p/m")));
  assert.equal(meters.of("p/m").circuit, "closed");
  clock.advance(1_100);
  await fails(chain("p/m"));
  assert.equal(meters.of("p/m").circuit, "open");
});

test("answers that break off in the middle open the circuit too", async () => {
  const model = acting(() => streamOf([DELTA, { type: "error", error: status(500) }]));
  const { chain, log } = setUp({ "p/m": model });
  await times(6, () => fails(chain("p/m")));
  assert.equal(model.calls, 5);
  assert.equal(log.length, 1);
});

/** Longer than what the clock jumps. */
const HOURS = 2 ** 31 - 1;
const LONG: ModelTimeouts = { connect: 600_000, firstByte: 600_000, idle: 600_000 };

for (const [title, hang] of [
  ["does not answer", () => new Promise(() => undefined)],
  ["sends no part", () => streamOf([])],
  ["begins and thinks for ever", () => streamOf([{ type: "stream-start", warnings: [] }])],
] as const) {
  test(`a package's model that ${title} is left at timeouts.firstByte, once, and the next model of the chain answers`, async (context) => {
    const clock = jumpingClock(context);
    let called: () => void = () => undefined;
    let left: AbortSignal | undefined;
    const calling = new Promise<void>((resolve) => {
      called = resolve;
    });
    const hanging = acting((_, signal) => {
      left = signal;
      called();
      return hang();
    });
    const { chain } = setUp({ "p/a": hanging, "p/b": acting(() => undefined) }, { retries: 2, timeouts: LONG });
    const parts = partsOf(chain("p/a", "p/b"), ask("x"));
    await calling;
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(600_001);
    assert.equal(textOf(await soon(parts, "the answer")), "hello");
    assert.equal(hanging.calls, 1);
    assert.equal(left?.aborted, true, "the call is ended, so that its connection closes");
  });
}

test("a stream that stops is ended at timeouts.idle, and one whose reader is slow is not", async (context) => {
  const clock = jumpingClock(context);
  const timeouts = { ...LONG, idle: 300_000 };
  let controller: ReadableStreamDefaultController<LanguageModelV3StreamPart> | undefined;
  const stream = () =>
    new ReadableStream<LanguageModelV3StreamPart>({
      start(given) {
        controller = given;
        for (let count = 0; count < 400; count++) given.enqueue(DELTA);
      },
    });
  const { chain } = setUp({ "p/m": acting(stream) }, { timeouts });
  const answer = await chain("p/m").stream(ask("x"));
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(3_600_000);
  assert.equal((await answer.next())?.length, 256, "what was read ahead");
  let read = 0;
  while (read < 400 - 256) read += (await answer.next())?.length ?? 0;
  const pending = Promise.resolve(answer.next());
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(299_000);
  controller?.enqueue(DELTA);
  assert.equal((await pending)?.length, 1);
  const silentEnd = Promise.resolve(answer.next());
  clock.advance(299_000);
  clock.advance(2_000);
  await assert.rejects(soon(silentEnd, "the end"), /model provider failed: timed out/);
});

test("a model may think for 100 seconds after its stream has begun, by default", async (context) => {
  const clock = jumpingClock(context);
  let controller: ReadableStreamDefaultController<LanguageModelV3StreamPart> | undefined;
  const thinking = new ReadableStream<LanguageModelV3StreamPart>({
    start(given) {
      controller = given;
      given.enqueue({ type: "stream-start", warnings: [] });
      given.enqueue({ type: "response-metadata", id: "r1" });
      given.enqueue({ type: "reasoning-start", id: "1" });
    },
  });
  const { chain } = setUp({ "p/m": acting(() => thinking) });
  const parts = partsOf(chain("p/m"), ask("x"));
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(100_000);
  await new Promise((resolve) => setImmediate(resolve));
  for (const part of [DELTA, FINISH]) controller?.enqueue(part);
  controller?.close();
  assert.equal(textOf(await soon(parts, "the answer")), "hello");
});

for (const [title, total, ends] of [
  ["ends an answer that is longer than timeouts.total where that is set", 400_000, true],
  ["goes on for hours without timeouts.total", undefined, false],
] as const) {
  test(`a stream that flows ${title}`, async (context) => {
    const clock = jumpingClock(context);
    const open: ReadableStreamDefaultController<LanguageModelV3StreamPart>[] = [];
    const stream = new ReadableStream<LanguageModelV3StreamPart>({
      start(given) {
        open.push(given);
      },
      cancel() {
        open.pop();
      },
    });
    const timeouts = total === undefined ? LONG : { ...LONG, total };
    const { chain } = setUp({ "p/m": acting(() => stream) }, { timeouts });
    const answer = await chain("p/m").stream(ask("x"));
    const flow = (async () => {
      for (let count = 0; count < 30; count++) {
        open[0]?.enqueue(DELTA);
        await answer.next();
        clock.advance(300_000);
      }
    })();
    if (ends) await assert.rejects(soon(flow, "the end", HOURS), /timed out/);
    else await soon(flow, "the flow", HOURS);
    answer.cancel();
  });
}

test("a provider's warnings are told once for each call, as events of its span", async (_context) => {
  const warnings = [{ type: "unsupported", feature: "seed", details: "it is ignored" }] as const;
  const model = acting(() => streamOf([{ type: "stream-start", warnings: [...warnings] }, DELTA, FINISH]));
  const told: string[] = [];
  const settings: ChainSettings = { logger: silent, warned: (id, text) => void told.push(`${id}: ${text}`) };
  const chain = createModelChain([{ id: "p/m", model, retries: 0 }], settings);
  const seen: unknown[] = [];
  const span = { event: (name: string, attributes: unknown) => void seen.push([name, attributes]) };
  const stream = await chain.stream(ask("x"), span as never);
  while ((await stream.next()) !== null);
  assert.deepEqual(told, ["p/m: unsupported: seed (it is ignored)"]);
  assert.deepEqual(seen, [
    ["model.warning", { "model.id": "p/m", "warning.message": "unsupported: seed (it is ignored)" }],
  ]);
});
