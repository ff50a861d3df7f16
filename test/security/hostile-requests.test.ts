/** What a client may send and must not get: another model, another's prototype, a look at the stack. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { says } from "../support/openai-upstream.ts";
import { dataOf, serveUpstream } from "../support/served-upstream.ts";

test("POST /agents/:id/text: providerOptions reach the upstream, but do not choose the model, the messages or the form", async (t) => {
  const { service, upstream } = await serveUpstream(t, { allowProviderOptions: ["up"] });
  upstream.replies(says("Well"));
  const up = { model: "dearest", messages: [], tools: [], stream: false, reasoningEffort: "low" };
  await dataOf(service.post("/agents/assistant/text", { input: "x", options: { providerOptions: { up } } }));
  const { body } = upstream.requests[0]!;
  assert.equal(body.reasoning_effort, "low");
  assert.equal(body.model, "test-model");
  assert.equal(body.stream, true);
  assert.equal((body.messages as unknown[]).length, 2);
});
