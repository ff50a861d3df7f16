/** Which model answered, and what it cost, in replies, history, traces and metrics. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { calls, failure, type Reply, says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";

const TEXT = "/agents/assistant/text";
/** USD per million tokens. */
const PRICES = { input: 2, output: 10, cachedInput: 0.5, asOf: "2026-11-22" };
const CHEAP = { input: 0.1, output: 0.4 };
const PRICED = { provider: { models: { "test-*": { prices: PRICES }, cheap: { prices: CHEAP } } } };
/** 60 tokens that were not cached, 40 that were, 20 written of which 15 were reasoning. */
const USED = { usage: { prompt: 100, cached: 40, completion: 20, reasoning: 15 } };
const COST = 0.00034;
const CHEAP_COST = 0.000018;

const metrics = async (service: TestService) => (await service.get("/metrics")).text();
const spansOf = async (service: TestService): Promise<Loose[]> => {
  for (;;) {
    const { traces } = await dataOf(service.get("/observability/traces"));
    const done = traces.find((trace: Loose) => trace.status !== "running");
    if (done !== undefined) return (await dataOf(service.get(`/observability/traces/${done.traceId}`))).spans;
  }
};

describe("a model with prices", () => {
  test("POST /agents/:id/text: usage.cost prices cached tokens as such and reasoning as output, and model names who answered", async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, PRICED);
    upstream.replies(says("hello", USED));
    const { usage, model } = await dataOf(service.post(TEXT, { input: "x" }));
    assert.equal(usage.cost, COST);
    assert.equal(model, "up/test-model");
  });

  test("POST /agents/:id/text: without cachedInput cached tokens cost what input costs", async (t) => {
    const { service, upstream } = await serveUpstream(t, { model: "up/cheap" }, PRICED);
    upstream.replies(says("hello", USED));
    assert.equal((await dataOf(service.post(TEXT, { input: "x" }))).usage.cost, CHEAP_COST);
  });

  test("POST /agents/:id/stream: the parts finish-step and finish have the cost and the model", async (t) => {
    const { service, upstream } = await serveUpstream(
      t,
      { tools: ["add"] },
      { ...PRICED, tools: { add: { use: "add" } } },
    );
    upstream.replies(calls([{ name: "add", input: { a: 1, b: 2 } }], USED), says("hello", USED));
    const events = await eventsOf(service, "/agents/assistant/stream", { input: "x" });
    const steps = events.filter(({ type }) => type === "finish-step");
    assert.deepEqual(
      steps.map(({ usage, model }) => [usage.cost, model]),
      [
        [COST, "up/test-model"],
        [COST, "up/test-model"],
      ],
    );
    const finish = events.at(-1)!;
    assert.equal(finish.totalUsage.cost, 2 * COST);
    assert.equal(finish.model, "up/test-model");
  });

  test("POST /agents/:id/stream-object: the final event has the cost and the model", async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, PRICED);
    upstream.replies(says('{"a":1}', USED));
    const body = { input: "x", schema: { type: "object" } };
    const final = (await eventsOf(service, "/agents/assistant/stream-object", body)).at(-1)!;
    assert.deepEqual([final.type, final.usage.cost, final.model], ["final", COST, "up/test-model"]);
  });

  test("GET /agents/:id/history, traces and GET /metrics have the cost and the model", async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, PRICED);
    assert.match(await metrics(service), /^penstock_model_cost_usd_total\{model="up\/test-model"\} 0$/m);
    upstream.replies(says("hello", USED));
    await dataOf(service.post(TEXT, { input: "x" }));
    const [entry] = (await dataOf(service.get("/agents/assistant/history"))).entries;
    assert.deepEqual([entry.usage.cost, entry.model], [COST, "up/test-model"]);
    assert.match(await metrics(service), /^penstock_model_cost_usd_total\{model="up\/test-model"\} 0\.00034$/m);
    const [run, call] = (await spansOf(service)).map(({ attributes }) => attributes);
    assert.deepEqual([run["usage.cost"], run["gen_ai.response.model"]], [COST, "test-model"]);
    assert.deepEqual([call["usage.cost"], call["gen_ai.response.model"]], [COST, "test-model"]);
  });
});

describe("models that stand in for each other", () => {
  const CHAIN = { model: ["up/test-model", "up/cheap"], tools: ["add"] };
  const MANIFEST = { ...PRICED, tools: { add: { use: "add" } } };

  test("POST /agents/:id/text: after a fallback, model and cost are those of the model that answered, everywhere", async (t) => {
    const { service, upstream } = await serveUpstream(t, CHAIN, MANIFEST);
    upstream.replies(failure(500), says("hello", USED));
    const { usage, model } = await dataOf(service.post(TEXT, { input: "x" }));
    assert.deepEqual([usage.cost, model], [CHEAP_COST, "up/cheap"]);
    const [entry] = (await dataOf(service.get("/agents/assistant/history"))).entries;
    assert.equal(entry.model, "up/cheap");
    const [run, call] = (await spansOf(service)).map(({ attributes }) => attributes);
    assert.equal(run["gen_ai.response.model"], "cheap");
    assert.deepEqual([call["gen_ai.request.model"], call["gen_ai.response.model"]], ["test-model", "cheap"]);
    assert.match(await metrics(service), /^penstock_model_cost_usd_total\{model="up\/cheap"\} 0\.000018$/m);
  });

  test("POST /agents/:id/text: steps that different models answered add up, each at its own prices", async (t) => {
    const { service, upstream } = await serveUpstream(t, CHAIN, MANIFEST);
    upstream.replies(failure(500), calls([{ name: "add", input: { a: 1, b: 2 } }], USED), says("hello", USED));
    const { usage, model } = await dataOf(service.post(TEXT, { input: "x" }));
    assert.deepEqual([usage.cost, model], [0.000358, "up/test-model"]);
  });

  test("POST /agents/:id/text: the cost is absent when one of the models has no prices", async (t) => {
    const { service, upstream } = await serveUpstream(t, { ...CHAIN, model: ["up/test-model", "up/other"] }, MANIFEST);
    upstream.replies(failure(500), calls([{ name: "add", input: { a: 1, b: 2 } }], USED), says("hello", USED));
    const { usage, model } = await dataOf(service.post(TEXT, { input: "x" }));
    assert.deepEqual([usage.totalTokens, "cost" in usage, model], [240, false, "up/test-model"]);
  });

  test("POST /agents/:id/text: the cost is absent when the provider reports no usage", async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, PRICED);
    upstream.replies(says("hello", { usage: null }));
    assert.ok(!("cost" in (await dataOf(service.post(TEXT, { input: "x" }))).usage));
  });

  test("GET /agents/:id/history: a run that no model answered has no model, one that broke off has the model that spoke", async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, PRICED);
    const broken: Reply = { steps: [{ text: "hel" }, { wait: 20 }, { cut: true }] };
    upstream.replies(failure(500), broken);
    for (const reply of [await service.post(TEXT, { input: "x" }), await service.post(TEXT, { input: "x" })])
      assert.ok(reply.status >= 500, await reply.text());
    const { entries } = await dataOf(service.get("/agents/assistant/history"));
    assert.deepEqual(
      entries.map((entry: Loose) => entry.model),
      ["up/test-model", undefined],
    );
  });
});

async function eventsOf(service: TestService, path: string, body: object): Promise<Loose[]> {
  const text = await (await service.post(path, body)).text();
  return parseEvents(text).flatMap(({ data }) => (data === "[DONE]" ? [] : [JSON.parse(data)]));
}
