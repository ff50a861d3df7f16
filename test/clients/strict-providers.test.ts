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
/**
 * Without one it is the client that keeps everything. With one each provider meets every second client, and each client every second
 * provider: what is in the memory does not depend on both at once.
 */
const memoriesOf = (client: number, name: number) =>
  Object.entries(MEMORIES).filter(([, memory]) => memory === false || (client + name) % 2 === 0);

const toolParts = ({ parts }: Loose) => parts.filter(({ type }: Loose) => /^(tool-|dynamic-tool)/.test(type));

for (const [clientIndex, client] of CLIENTS.entries()) {
  describe(`the client ${client}`, async () => {
    const ai = await load(client);

    for (const [index, name] of STRICT_NAMES.entries()) {
      for (const [how, memory] of memoriesOf(clientIndex, index)) {
        test(`POST /agents/:id/chat on ${name} ${how}: a chat with calls and thoughts goes on for three turns`, async (t) => {
          const agent = { tools: Object.keys(tools), memory };
          const { service, upstream } = await serveStrict(t, name, agent, { tools, memory: { default: {} } });
          upstream.says(
            { thought: "Two calls.", text: "Wait.", calls: [SUM, { name: "fail" }] },
            { thought: "Now tell.", hidden: true, text: "Three." },
            { hidden: true, calls: [SUM] },
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

    for (const [index, name] of STRICT_NAMES.entries()) {
      for (const [how, memory] of memoriesOf(clientIndex, index)) {
        test(`POST /agents/:id/chat on ${name} ${how}: calls of a client-side tool go on with the thoughts before them`, async (t) => {
          const all = { ...tools, ask: { client: true, description: "Asks the user" } };
          const agent = { tools: ["sum", "ask"], memory };
          const { service, upstream } = await serveStrict(t, name, agent, { tools: all, memory: { default: {} } });
          upstream.says(
            { thought: "A sum.", hidden: true, calls: [SUM, { name: "ask" }] },
            { thought: "Ask again.", calls: [{ name: "ask" }] },
            { thought: "Now tell.", text: "Three." },
            { text: "Welcome." },
          );
          const { lastAssistantMessageIsCompleteWithToolCalls: sendAutomaticallyWhen } = ai as Loose;
          const chat: Loose = chatOf(ai, service.url + CHAT, [], { sendAutomaticallyWhen });
          await chat.sendMessage({ text: "Add" });
          for (const requests of [2, 3]) {
            const { toolCallId } = toolParts(chat.messages.at(-1)).at(-1);
            await (chat.addToolOutput ?? chat.addToolResult).call(chat, { tool: "ask", toolCallId, output: "yes" });
            const done = () => upstream.requests.length === requests && chat.status === "ready";
            for (let tries = 0; tries < 2000 && !done() && chat.error === undefined; tries++)
              await new Promise((resolve) => setTimeout(resolve, 5));
            assert.deepEqual(upstream.refusals, []);
            assert.equal(chat.error, undefined);
          }
          assert.equal(chat.messages.at(-1).parts.at(-1).text, "Three.");
          await chat.sendMessage({ text: "Thanks" });
          assert.deepEqual(upstream.refusals, []);
          assert.equal(chat.messages.length, 4);
          assert.doesNotMatch(JSON.stringify(upstream.requests), /skip_thought_signature_validator|not completed/);
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
