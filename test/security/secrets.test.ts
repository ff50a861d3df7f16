// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of the manifest
/** Values from the environment stay out of logs, errors and documents, whoever repeats them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { failure } from "../support/openai-upstream.ts";
import { errorOf, serveUpstream } from "../support/served-upstream.ts";

const KEY = "sk-test-3f9a61c2";

test("POST /agents/:id/text: a key that a model provider repeats in its error is masked in the log and kept from the client", async (t) => {
  const provider = { apiKey: "${TEST_KEY}" };
  const { service, upstream } = await serveUpstream(t, {}, { provider }, { env: { ...process.env, TEST_KEY: KEY } });
  upstream.replies(failure(401, { message: `Incorrect API key provided: ${KEY}.` }));
  const answer = await errorOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.deepEqual(answer, { status: 500, error: "model provider failed: refused the request" });
  const log = JSON.stringify(service.log);
  assert.match(log, /Incorrect API key provided: \*\*\*/);
  assert.ok(!log.includes(KEY));
});

test("GET /doc, /, /agents, /tools and the errors of HTTP tools hold no value from the environment", async (t) => {
  const http = {
    method: "GET",
    url: "http://127.0.0.1:1/x?key=${TEST_KEY}",
    headers: { "x-key": "${TEST_KEY}" },
    retries: 0,
  };
  const tools = { shop: { description: "A shop", parameters: { type: "object" }, http } };
  const agent = { instructions: "The word is ${TEST_KEY}.", tools: ["shop"] };
  const rest = { tools, provider: { apiKey: "${TEST_KEY}" } };
  const { service } = await serveUpstream(t, agent, rest, { env: { ...process.env, TEST_KEY: KEY } });
  for (const path of ["/doc", "/", "/agents", "/agents/assistant", "/tools"])
    assert.ok(!(await (await service.get(path)).text()).includes(KEY), path);
  assert.deepEqual(await errorOf(service.post("/tools/shop/execute", { input: {} })), {
    status: 500,
    error: "shop could not be reached: ECONNREFUSED",
  });
  assert.ok(!JSON.stringify(service.log).includes(KEY));
});
