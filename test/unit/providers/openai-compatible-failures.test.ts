/** The openai-compatible provider when things go wrong: time limits, aborts, refusals, cuts. */
import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { test } from "node:test";
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import { AbortSource } from "../../../core/lib/aborts.ts";
import { nextTurn } from "../../../core/lib/event-loop-turns.ts";
import openaiCompatible from "../../../core/models/openai-compatible/openai-compatible.ts";
import { ProviderQueueFull } from "../../../core/plugin/plugin.ts";
import { jumpingClock } from "../../support/jumping-clock.ts";
import { MODEL, openaiOver, rootOf, thrownBy, upstreamFor } from "../../support/openai-provider.ts";
import {
  cutsAfter,
  failsAfter,
  failure,
  type Reply,
  says,
  stallsAfter,
  stallsBeforeHead,
  stallsBeforeText,
  startOpenAIUpstream,
} from "../../support/openai-upstream.ts";
import { ask, batchesOf, chainOf, makeProvider, partsOf, settingsOf, soon, textOf } from "../../support/providers.ts";

const LIMITS = { connect: 5_000, firstByte: 5_000, idle: 5_000, total: 20_000 };

const STALLS: [string, () => Reply, Partial<typeof LIMITS>, string][] = [
  ["firstByte ends a call whose head does not come", stallsBeforeHead, { firstByte: 80 }, "firstByte"],
  ["firstByte ends a call whose head comes and whose body does not", stallsBeforeText, { firstByte: 80 }, "firstByte"],
  ["idle ends a call whose body stops", () => stallsAfter("hello"), { idle: 80 }, "idle"],
  [
    "total ends a call that trickles on",
    () => says("a b c d e f g h i j k l", { chunks: 12, delay: 40 }),
    { total: 200 },
    "total",
  ],
];

for (const [title, reply, timeouts, limit] of STALLS) {
  test(`timeouts.${title}`, async (context) => {
    const { upstream, chain } = await openaiOver(context, {}, { timeouts: { ...LIMITS, ...timeouts } });
    upstream.replies(reply());
    const error = await thrownBy(partsOf(chain, ask("hi")));
    assert.equal(error.message, "model provider failed: timed out");
    assert.equal(rootOf(error).limit, limit);
    await soon(upstream.requests[0]!.aborted, "the close of the upstream socket");
  });
}

test("timeouts.connect ends a call whose TLS handshake is not answered", async (context) => {
  const sockets = new Set<Socket>();
  const deaf = createServer((socket) => void sockets.add(socket.on("error", () => undefined)));
  await new Promise<void>((resolve) => deaf.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    for (const socket of sockets) socket.destroy();
    deaf.close();
  });
  const { port } = deaf.address() as { port: number };
  const config = { baseURL: `https://127.0.0.1:${port}/v1` };
  const timeouts = { ...LIMITS, connect: 100 };
  const provider = await makeProvider(context, openaiCompatible, config);
  const error = await thrownBy(partsOf(chainOf(provider, MODEL, 0, { timeouts }), ask("hi")));
  assert.equal(error.message, "model provider failed: timed out");
});

test("a call that waits for a free connection is not connecting: no time-out counts until it has one", async (context) => {
  const limits = { connect: 300, firstByte: 60_000, idle: 60_000 };
  const { upstream, chain } = await openaiOver(context, { connections: 1 }, { timeouts: limits });
  upstream.replies({ steps: [{ text: "busy" }, { wait: 1_000 }, { finish: "stop" }, { done: true }] });
  const first = await chain.stream(ask("first"));
  const second = partsOf(chain, ask("second"));
  assert.equal(textOf((await batchesOf(first)).flat()), "busy");
  assert.equal(textOf(await soon(second, "the second answer")), "second");
  assert.equal(await upstream.connections(), 1);
});

test("a call that finds the queue for a connection full fails at once with status 429 and Retry-After", async (context) => {
  const { upstream, provider, chain } = await openaiOver(context, { connections: 1, queue: 1 });
  upstream.replies(stallsAfter("busy"));
  const first = await chain.stream(ask("first"));
  const second = partsOf(chain, ask("second"));
  const model = provider.languageModel(MODEL, settingsOf());
  const error = await thrownBy(Promise.resolve(model.doStream(ask("third"))));
  assert.ok(error instanceof ProviderQueueFull);
  assert.equal(error.statusCode, 429);
  assert.match(error.responseHeaders["retry-after"]!, /^\d+$/);
  assert.equal(upstream.requests.length, 1);
  first.cancel();
  assert.equal(textOf(await soon(second, "the answer to the one that waited")), "second");
});

test("an abort while a call waits for a free connection takes it out of the queue", async (context) => {
  const { upstream, chain } = await openaiOver(context, { connections: 1, queue: 1 });
  upstream.replies(stallsAfter("busy"));
  const first = await chain.stream(ask("first"));
  const controller = new AbortController();
  const left = partsOf(chain, ask("second", { abortSignal: controller.signal }));
  const reason = new Error("client left");
  controller.abort(reason);
  await assert.rejects(soon(left, "the end"), (thrown) => thrown === reason);
  const third = partsOf(chain, ask("third"));
  first.cancel();
  assert.equal(textOf(await soon(third, "the third answer")), "third");
  assert.deepEqual(
    upstream.requests.map(({ lastUserText }) => lastUserText),
    ["first", "third"],
  );
});

test("without connections in the manifest 200 calls at once have a connection each", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  upstream.fallback(() => ({ steps: [{ text: "on" }, { stall: true }] }));
  const streams = await Promise.all(Array.from({ length: 200 }, () => chain.stream(ask("hi"))));
  assert.equal(await upstream.connections(), 200);
  for (const stream of streams) stream.cancel();
});

test("a slow reader does not trip timeouts.idle, and holds the upstream back", async (context) => {
  const { upstream, chain } = await openaiOver(
    context,
    {},
    { timeouts: { ...LIMITS, idle: 30_000, total: 3_600_000 } },
  );
  const piece = "x".repeat(8192);
  const steps = Array.from({ length: 4000 }, () => ({ text: piece }));
  upstream.replies({ steps: [...steps, { finish: "stop" }, { done: true }] });
  const clock = jumpingClock(context);
  const stream = await chain.stream(ask("hi"));
  let length = textOf((await stream.next()) ?? []).length;
  // Jumps are shorter than the limit: what is still on its way may arrive between them.
  for (let jump = 0; jump < 20; jump++) {
    for (let turn = 0; turn < 20; turn++) await nextTurn();
    clock.advance(20_000);
  }
  assert.equal(upstream.requests[0]?.completed, false);
  for (const batch of await batchesOf(stream)) length += textOf(batch).length;
  assert.equal(length, 4000 * 8192);
});

const ABORTS: [string, () => Reply, boolean][] = [
  ["before the head", stallsBeforeHead, false],
  ["before the first token", stallsBeforeText, true],
  ["in the middle of the stream", () => stallsAfter("hello"), true],
];

for (const [title, reply, accepted] of ABORTS) {
  test(`an abort ${title} closes the upstream socket`, async (context) => {
    const { upstream, chain } = await openaiOver(context);
    upstream.replies(reply());
    const controller = new AbortController();
    const reason = new Error("client left");
    const opening = chain.stream(ask("hi", { abortSignal: controller.signal }));
    const request = await upstream.request(0);
    const ended: Promise<unknown> = accepted ? opening.then(batchesOf) : opening;
    if (accepted) await opening;
    setTimeout(() => controller.abort(reason), 30);
    await assert.rejects(soon(ended, "the end"), (thrown) => thrown === reason);
    await soon(request.aborted, "the close of the upstream socket");
  });
}

for (const [title, reply, accepted] of ABORTS) {
  test(`an abort ${title} closes the upstream socket although no signal is ever made`, async (context) => {
    const { upstream, chain } = await openaiOver(context);
    // The chain hands its options on as they are once it knows that the model answers in batches.
    await partsOf(chain, ask("first"));
    upstream.replies(reply());
    const source = new AbortSource();
    const reason = new Error("client left");
    const options = Object.create(null, {
      aborts: { value: source },
      abortSignal: { get: () => source.signal },
      prompt: { value: ask("hi").prompt },
    }) as Parameters<typeof chain.stream>[0];
    const opening = chain.stream(options);
    const request = await upstream.request(1);
    const ended: Promise<unknown> = accepted ? opening.then(batchesOf) : opening;
    if (accepted) await opening;
    assert.equal(source.hasSignal, false);
    source.abort(reason);
    await assert.rejects(soon(ended, "the end"), (thrown) => thrown === reason);
    await soon(request.aborted, "the close of the upstream socket");
  });
}

test("what is given up already is told to a new listener at once, and to no listener twice", () => {
  const source = new AbortSource();
  const heard: unknown[] = [];
  const listen = (name: string) => ({ aborted: (reason: unknown) => void heard.push([name, reason]) });
  const [first, left, last] = [listen("first"), listen("left"), listen("last")];
  source.add(first);
  source.add(left);
  source.remove(left);
  source.abort("gone");
  source.abort("again");
  source.add(last);
  assert.deepEqual(heard, [
    ["first", "gone"],
    ["last", "gone"],
  ]);
  assert.equal(source.signal.reason, "gone");
});

test("cancel in the middle of the stream closes the upstream socket, without a signal", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  upstream.replies(stallsAfter("hello"));
  const stream = await chain.stream(ask("hi"));
  assert.notEqual(await stream.next(), null);
  stream.cancel();
  await soon(upstream.requests[0]!.aborted, "the close of the upstream socket");
});

test("a call whose signal is aborted already never reaches the upstream", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  await assert.rejects(chain.stream(ask("hi", { abortSignal: AbortSignal.abort(new Error("gone")) })), /gone/);
  assert.equal(upstream.requests.length, 0);
});

test("listeners on the caller's signal are gone when the answer is complete", async (context) => {
  const { chain } = await openaiOver(context);
  const { signal } = new AbortController();
  let listening = 0;
  const counted = new Proxy(signal, {
    get(target, key) {
      if (key === "addEventListener") listening++;
      if (key === "removeEventListener") listening--;
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  await partsOf(chain, ask("hi", { abortSignal: counted } as Partial<LanguageModelV3CallOptions>));
  assert.equal(listening, 0);
});

const FAILURES: [string, () => Reply, string][] = [
  ["429", () => failure(429), "rate limited"],
  ["500", () => failure(500), "unavailable"],
  ["503 without a body", () => ({ status: 503, json: "" }), "overloaded"],
  ["401", () => failure(401, { message: "Incorrect API key provided: sk-12345" }), "refused the request"],
  ["404", () => failure(404), "refused the request"],
  ["a cut before the first token", () => cutsAfter(""), "unavailable"],
  ["an error event before the first token", () => failsAfter(""), "unavailable"],
  [
    "a rate limit event before the first token",
    () => failsAfter("", { message: "slow", code: "rate_limit_exceeded" }),
    "rate limited",
  ],
  ["a stream that ends without a finish reason", () => ({ steps: [{ done: true }] }), "unavailable"],
  ["a body that is not a stream of events", () => ({ json: { hello: "world" } }), "unavailable"],
  ["an event that is not JSON", () => ({ steps: [{ raw: "data: {nonsense\n\n" }] }), "unavailable"],
];

for (const [title, reply, reason] of FAILURES) {
  test(`${title} is "model provider failed: ${reason}", with the upstream's own words in the cause alone`, async (context) => {
    const { upstream, chain } = await openaiOver(context);
    upstream.replies(reply());
    const error = await thrownBy(partsOf(chain, ask("hi")));
    assert.equal(error.message, `model provider failed: ${reason}`);
    assert.notEqual(error.cause, undefined);
  });
}

test("a cut after the first token is an error of next(), after the parts that came", async (context) => {
  const { upstream, chain } = await openaiOver(context);
  upstream.replies(cutsAfter("half an ans"));
  const stream = await chain.stream(ask("hi"));
  let text = "";
  const error = await thrownBy(
    (async () => {
      for (let batch = await stream.next(); batch !== null; batch = await stream.next()) text += textOf(batch);
    })(),
  );
  assert.equal(text, "half an ans");
  assert.equal(error.message, "model provider failed: unavailable");
});

test("a port that nobody listens on is unavailable", async (context) => {
  const upstream = await startOpenAIUpstream();
  await upstream.close();
  const provider = await makeProvider(context, openaiCompatible, { baseURL: upstream.baseURL });
  const error = await thrownBy(partsOf(chainOf(provider, MODEL, 0), ask("hi")));
  assert.equal(error.message, "model provider failed: unavailable");
  assert.equal(rootOf(error).code, "ECONNREFUSED");
});

test("a redirect is not followed: the key stays with the configured host", async (context) => {
  const { upstream, chain } = await openaiOver(context, { apiKey: "sk-secret" });
  const other = await upstreamFor(context);
  upstream.replies({ status: 307, headers: { location: `${other.baseURL}/chat/completions` }, json: {} });
  const error = await thrownBy(partsOf(chain, ask("hi")));
  assert.match(error.message, /^model provider failed: /);
  assert.equal(other.requests.length, 0);
});
