/** Fallbacks from one provider to another in the middle of a conversation, on upstreams that refuse what the real providers refuse. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { serveStrictChain } from "../support/strict-chain.ts";
import type { StrictName } from "../support/strict-providers.ts";

const TOOLS = { sum: { use: "add" } };
const SUM = { name: "sum", input: { a: 1, b: 2 } };
const TEXT = "/agents/assistant/text";
const agent = { tools: ["sum"], memory: "default", maxSteps: 8 };
const rest = { tools: TOOLS, memory: { default: {} } };
const NAMES: readonly StrictName[] = [
  "OpenAI Responses",
  "OpenAI Responses with store: false",
  "OpenAI chat completions",
  "Anthropic",
  "Gemini's chat completions",
  "Gemini",
];
const PAIRS = NAMES.flatMap((from) => NAMES.filter((to) => to !== from).map((to) => [from, to] as const));

for (const [from, to] of PAIRS) {
  describe(`${from}, then ${to}`, () => {
    test(`POST /agents/:id/text goes on from the calls and thoughts of ${from} on ${to}, within a run and in later turns`, async (t) => {
      const { service, upstreams } = await serveStrictChain(t, [from, to], agent, rest);
      const [first, second] = upstreams as [Loose, Loose];
      const say = (input: string) => dataOf(service.post(TEXT, { input, options: { conversationId: "c1" } }));
      first.says({ thought: "A sum.", hidden: true, calls: [SUM] }, { down: true }, { down: true });
      second.says({ thought: "One more.", calls: [SUM] }, { thought: "Now tell.", text: "Three." });
      const { text, toolResults } = await say("Add");
      assert.equal(text, "Three.");
      assert.equal(toolResults.length, 2);
      first.says({ down: true });
      second.says({ thought: "Fine.", text: "Welcome." });
      assert.equal((await say("Thanks")).text, "Welcome.");
      first.says({ thought: "Back.", calls: [SUM] }, { text: "Again three." });
      assert.equal((await say("And again")).text, "Again three.");
    });
  });
}

test("POST /agents/:id/text over three providers in one run: OpenAI begins, Anthropic goes on while it thinks, Gemini ends", async (t) => {
  const chain: StrictName[] = ["OpenAI Responses", "Anthropic", "Gemini"];
  const { service, upstreams } = await serveStrictChain(t, chain, agent, rest);
  const [openai, claude, gemini] = upstreams as [Loose, Loose, Loose];
  openai.says({ thought: "A sum.", calls: [SUM] }, { down: true }, { down: true });
  claude.says({ thought: "One more.", calls: [SUM] }, { down: true });
  gemini.says({ thought: "Now tell.", text: "Three." });
  const data = await dataOf(service.post(TEXT, { input: "Add", options: { conversationId: "c1" } }));
  assert.equal(data.text, "Three.");
  assert.equal(data.toolResults.length, 2);
  for (const upstream of upstreams) assert.match(JSON.stringify(upstream.requests.at(-1)), /sum[^}]*3/);
});
