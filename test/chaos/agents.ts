/** Agents whose tools leave marks outside, as plugins and lines of a manifest. */

/** As in the steps of workflows: a mark at the begin of each call and one at its end, in a file that outlives the process. */
const TOOL = `import { appendFileSync } from "node:fs";
const mark = (what, key) => appendFileSync("effects.log", what + " " + process.pid + " " + Date.now() + " " + key + "\\n");
export default { kind: "tool", description: "Charges", parameters: { type: "object" },
  execute: async (input, { idempotencyKey, signal }) => {
    const [run, , call] = idempotencyKey.split(":");
    mark("begin", run + ":" + call);
    try {
      await new Promise((resolve, reject) => {
        setTimeout(resolve, Math.random() * 200);
        signal?.addEventListener("abort", () => reject(new Error("stopped")));
      });
    } finally { mark("end", run + ":" + call); }
    return { charged: input.n };
  } };`;

/** Calls the tool that its id names twice, one call after the other, and then says what it was asked. */
const MODEL = `import { randomUUID } from "node:crypto";
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
export default { kind: "provider", create: () => ({ languageModel: (modelId) => ({
  specificationVersion: "v3", provider: "charging", modelId, supportedUrls: {},
  parts(prompt) {
    const from = prompt.findLastIndex(({ role }) => role === "user");
    const asked = prompt[from].content.find(({ type }) => type === "text").text;
    const n = prompt.slice(from + 1).filter(({ role }) => role === "tool").flatMap(({ content }) => content)
      .filter(({ type }) => type === "tool-result").length + 1;
    const calls = modelId === "charge" ? 2 : 1;
    const call = { type: "tool-call", toolCallId: randomUUID(), toolName: modelId, input: JSON.stringify({ n }) };
    return n <= calls ? { call } : { text: "done " + asked };
  },
  async doGenerate({ prompt }) {
    const { call, text } = this.parts(prompt);
    return { content: [call ?? { type: "text", text }], usage, warnings: [],
      finishReason: { unified: call ? "tool-calls" : "stop", raw: undefined } };
  },
  async doStream({ prompt }) {
    const { call, text } = this.parts(prompt);
    const words = text?.split(/(?<= )/).map((delta) => ({ type: "text-delta", id: "t", delta })) ?? [];
    const said = call ? [call] : [{ type: "text-start", id: "t" }, ...words, { type: "text-end", id: "t" }];
    const finishReason = { unified: call ? "tool-calls" : "stop", raw: undefined };
    const parts = [{ type: "stream-start", warnings: [] }, ...said, { type: "finish", usage, finishReason }];
    return { stream: new ReadableStream({ async start(to) {
      for (const part of parts) { await new Promise((resolve) => setTimeout(resolve, Math.random() * 20)); to.enqueue(part); }
      to.close();
    } }) };
  } }) }) };`;

export const AGENT_PLUGINS = {
  "tools/charge.mjs": TOOL,
  "tools/pay.mjs": TOOL,
  "providers/charging.mjs": MODEL,
};

/** `worker` is durable; `asking` waits for a person's yes to its one call. */
export const AGENTS = `  worker: { model: charging/charge, tools: [charge], memory: default, durable: true }
  asking: { model: charging/pay, tools: [pay], memory: false }
tools: { charge: { use: charge }, pay: { use: pay, approval: true } }
`;
