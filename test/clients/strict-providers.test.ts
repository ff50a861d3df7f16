/** The real `ai` clients keep what a provider wants back, and it is taken from them: over upstreams with the providers' own rules. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Loose } from "../support/served-upstream.ts";
import { STRICT_NAMES, serveStrict } from "../support/strict-providers.ts";
import { CLIENTS, chatOf, load } from "./chat.ts";

const CHAT = "/agents/assistant/chat";
const SUM = { name: "sum", input: { a: 1, b: 2 } };
const tools = { sum: { use: "add" }, fail: { use: "fail" } };
const MEMORIES = { "without a memory": false, "with a memory": "default" };

const toolParts = ({ parts }: Loose) => parts.filter(({ type }: Loose) => /^(tool-|dynamic-tool)/.test(type));

for (const client of CLIENTS) {
  describe(`the client ${client}`, async () => {
    const ai = await load(client);

    for (const name of STRICT_NAMES) {
      for (const [how, memory] of Object.entries(MEMORIES)) {
        test(`POST /agents/:id/chat on ${name} ${how}: a chat with calls and thoughts goes on for three turns`, async (t) => {
          const agent = { tools: Object.keys(tools), memory };
          const { service, upstream } = await serveStrict(t, name, agent, { tools, memory: { default: {} } });
          upstream.says(
            { thought: "Two calls.", text: "Wait.", calls: [SUM, { name: "fail" }] },
            { thought: "Now tell.", hidden: true, text: "Three." },
            { thought: "Again.", calls: [SUM] },
            { text: "Still three." },
            { text: "Welcome." },
          );
          const chat = chatOf(ai, service.url + CHAT);
          for (const [text, answer] of [
            ["Add", "Three."],
            ["Again", "Still three."],
            ["Thanks", "Welcome."],
          ]) {
            await chat.sendMessage({ text });
            assert.deepEqual(upstream.refusals, []);
            assert.equal(chat.error, undefined);
            assert.equal(chat.messages.at(-1).parts.findLast(({ type }: Loose) => type === "text").text, answer);
          }
          assert.doesNotMatch(JSON.stringify(upstream.requests), /skip_thought_signature_validator/);
        });
      }
    }

    test("POST /agents/:id/chat: two calls with the model's id call_0 in two steps are two parts of the message", async (t) => {
      const { service, upstream } = await serveStrict(t, "OpenAI chat completions", { tools: ["sum"] }, { tools });
      const call = (a: number) => ({ calls: [{ name: "sum", input: { a, b: 1 }, id: "call_0" }] });
      upstream.says(call(1), call(2), { text: "Done." }, call(3), { text: "Again done." });
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "Add" });
      await chat.sendMessage({ text: "Add again" });
      assert.equal(chat.error, undefined);
      const outputs = chat.messages.map((message) => toolParts(message).map(({ output }: Loose) => output.sum));
      assert.deepEqual(outputs, [[], [2, 3], [], [4]]);
      assert.deepEqual(upstream.refusals, []);
    });
  });
}
