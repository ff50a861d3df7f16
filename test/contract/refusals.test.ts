/** A model that refuses to answer: the error has its words on every generation endpoint, and it is asked once. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Reply } from "../support/openai-upstream.ts";
import { serveUpstream } from "../support/served-upstream.ts";

const WORDS = "I cannot help with that.";
const chunk = (delta: object, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
const REFUSES: Reply = {
  steps: [
    { raw: chunk({ role: "assistant", refusal: "I cannot " }) },
    { raw: chunk({ refusal: "help with that." }) },
    { raw: chunk({}, "stop") },
    { done: true },
  ],
};

for (const endpoint of ["text", "stream", "chat", "object", "stream-object"]) {
  test(`POST /agents/:id/${endpoint}: the words of a refusal are in the error, and the model is asked once`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { provider: { retries: 2 } });
    upstream.fallback(REFUSES);
    const body = { input: "How?", schema: { type: "object" } };
    const reply = await service.post(`/agents/assistant/${endpoint}`, body);
    assert.ok((await reply.text()).includes(WORDS));
    assert.equal(upstream.requests.length, 1);
  });
}
