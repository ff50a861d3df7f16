// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references to the environment, as manifests have them
/** What clients are told when a provider fails, and whose failure it was. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { failure, type Reply, stallsBeforeHead, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

interface Expected {
  status: number;
  code: string;
  retryAfter: string | null;
  message: RegExp;
}

const TOO_LONG = { message: "This model's maximum context length is 8 tokens.", code: "context_length_exceeded" };

const CASES: [string, Reply, Expected][] = [
  ["429", failure(429), { status: 429, code: "rate_limited", retryAfter: "5", message: /: rate limited$/ }],
  [
    "429 with Retry-After",
    failure(429, { retryAfter: 17 }),
    { status: 429, code: "rate_limited", retryAfter: "17", message: /: rate limited$/ },
  ],
  ["503", failure(503), { status: 503, code: "unavailable", retryAfter: "5", message: /: overloaded$/ }],
  ["500", failure(500), { status: 500, code: "provider_failed", retryAfter: null, message: /: unavailable$/ }],
  ["401", failure(401), { status: 500, code: "provider_failed", retryAfter: null, message: /: refused the request$/ }],
  [
    "a prompt that is too long",
    failure(400, TOO_LONG),
    { status: 500, code: "context_length", retryAfter: null, message: /: context_length$/ },
  ],
];

for (const [title, reply, expected] of CASES) {
  for (const endpoint of ["text", "stream"]) {
    test(`POST /agents/:id/${endpoint} tells a client of the provider's ${title}, and that it is the provider's`, async (context) => {
      const { service, upstream } = await serveUpstream(context);
      upstream.fallback(reply);
      const answer = await service.post(`/agents/assistant/${endpoint}`, { input: "hello" });
      assert.equal(answer.status, expected.status);
      assert.equal(answer.headers.get("x-error-code"), expected.code);
      assert.equal(answer.headers.get("x-error-source"), "provider");
      assert.equal(answer.headers.get("retry-after"), expected.retryAfter);
      assert.match(((await answer.json()) as { error: string }).error, expected.message);
    });
  }
}

const WRONG_KEYS: [string, Reply][] = [
  ["401", failure(401, { message: "Incorrect API key provided" })],
  ["403", failure(403, { message: "Your key has no access to this project" })],
  ["400 for a key", failure(400, { message: "API key not valid. Please pass a valid API key." })],
];

for (const [title, reply] of WRONG_KEYS)
  test(`POST /agents/:id/text logs a provider's ${title} with the model, and where the key of it is set`, async (context) => {
    const provider = { apiKey: "${UP_KEY}" };
    const env = { ...process.env, UP_KEY: "sk-wrong-7531" };
    const { service, upstream } = await serveUpstream(context, {}, { provider }, { env });
    upstream.fallback(reply);
    const answer = await service.post("/agents/assistant/text", { input: "hello" });
    assert.equal(((await answer.json()) as { error: string }).error, "model provider failed: refused the request");
    const line = service.log.find(({ level, err }) => level === "warn" && err !== undefined);
    assert.equal(line?.model, "up/test-model");
    assert.equal(
      line?.hint,
      "the provider does not take its key: see providers.up.apiKey, from the environment variable UP_KEY",
    );
    assert.doesNotMatch(JSON.stringify(service.log), /7531/);
  });

test("POST /agents/:id/text logs which model was not reached, and says nothing of keys then", async (context) => {
  const { service, upstream } = await serveUpstream(context);
  await upstream.close();
  assert.equal((await service.post("/agents/assistant/text", { input: "hello" })).status, 500);
  const line = service.log.find(({ level, err }) => level === "warn" && err !== undefined);
  assert.equal(line?.model, "up/test-model");
  assert.equal(line?.hint, undefined);
});

test("POST /agents/:id/text logs the URL and the words of a server that answers with a page, without its query", async (context) => {
  const provider = { queryParams: { key: "sk-query-7531" } };
  const { service, upstream } = await serveUpstream(context, {}, { provider });
  upstream.fallback({
    status: 502,
    page: "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
  });
  await service.post("/agents/assistant/text", { input: "hello" });
  const line = service.log.find(({ level, err }) => level === "warn" && err !== undefined);
  assert.equal(
    (line?.err as { message: string } | undefined)?.message,
    `${upstream.baseURL}/chat/completions answered 502 and not with a completion: 502 Bad Gateway`,
  );
  assert.doesNotMatch(JSON.stringify(service.log), /7531/);
});

test("POST /agents/:id/text does not repeat a call for which the account has no money left, and does not ask clients to wait", async (context) => {
  const { service, upstream } = await serveUpstream(context, {}, { provider: { retries: 2 } });
  upstream.fallback(failure(429, { message: "You exceeded your current quota", code: "insufficient_quota" }));
  const answer = await service.post("/agents/assistant/text", { input: "hello" });
  assert.equal(answer.status, 500);
  assert.equal(answer.headers.get("retry-after"), null);
  assert.equal(upstream.requests.length, 1);
});

test("POST /agents/:id/text says of its own errors that they are the service's", async (context) => {
  const { service } = await serveUpstream(context);
  const answer = await service.post("/agents/assistant/text", { input: 7 });
  assert.equal(answer.status, 400);
  assert.equal(answer.headers.get("x-error-source"), "service");
});

test("POST /agents/:id/text answers 503 at once while the only model's circuit is open, and /metrics shows it", async (context) => {
  const { service, upstream } = await serveUpstream(context);
  upstream.fallback(failure(500));
  const ask = () => service.post("/agents/assistant/text", { input: "hello" });
  for (let count = 0; count < 5; count++) assert.equal((await ask()).status, 500);
  const refused = await ask();
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get("x-error-source"), "provider");
  const wait = Number(refused.headers.get("retry-after"));
  assert.ok(wait >= 1 && wait <= 10, `retry-after ${wait}`);
  assert.equal(upstream.requests.length, 5);
  const metrics = await (await service.get("/metrics")).text();
  assert.match(metrics, /^penstock_model_circuit_state\{model="up\/test-model"\} 2$/m);
});

test("POST /agents/:id/text is answered by the next model when the first hangs, with an AI SDK package too", async (context) => {
  const upstream = await startOpenAIUpstream();
  context.after(() => upstream.close());
  const { baseURL } = upstream;
  const providers = {
    silent: {
      use: "@ai-sdk/openai-compatible",
      timeouts: { firstByte: "300ms" },
      options: { name: "silent", baseURL, apiKey: "x" },
    },
    up: { use: "openai-compatible", baseURL },
  };
  const service = await startService(context, manifestWith({ model: ["silent/one", "up/test-model"] }, { providers }));
  upstream.fallback(({ body, lastUserText }) =>
    body.model === "one" ? stallsBeforeHead() : { steps: [{ text: lastUserText }, { finish: "stop" }, { done: true }] },
  );
  const answer = await service.post("/agents/assistant/text", { input: "hello" });
  assert.equal(answer.status, 200);
  assert.deepEqual(
    upstream.requests.map(({ body }) => body.model),
    ["one", "test-model"],
  );
});

test("POST /agents/:id/text: calls that find the queue for a connection full say nothing of the model, whose circuit opens as it would without them", async (context) => {
  const timeouts = { firstByte: "1s" };
  const { service, upstream } = await serveUpstream(context, {}, { provider: { connections: 1, queue: 0, timeouts } });
  upstream.fallback(stallsBeforeHead());
  const ask = () => service.post("/agents/assistant/text", { input: "hello" });
  const state = async () =>
    /^penstock_model_circuit_state.* (\d)$/m.exec(await (await service.get("/metrics")).text())?.[1];
  for (let round = 0; round < 5; round++) {
    assert.equal(await state(), "0");
    const first = ask();
    await upstream.request(round);
    const second = await ask();
    assert.equal(second.status, 429);
    assert.equal(second.headers.get("x-error-source"), "service");
    assert.equal(
      ((await second.json()) as { error: string }).error,
      "too many requests wait for the model already: try again later",
    );
    assert.equal((await first).status, 500);
  }
  assert.equal(await state(), "2");
  const metrics = await (await service.get("/metrics")).text();
  assert.match(metrics, /^penstock_model_calls_total\{model="up\/test-model",outcome="queue_full"\} 5$/m);
  assert.match(metrics, /^penstock_model_calls_total\{model="up\/test-model",outcome="timed_out"\} 5$/m);
});
