/** Runs of agents that outlive their process: what is recorded is not done again, and what was under way is done again under the same key. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { collectEvents } from "../support/event-sink.ts";
import { until } from "../support/probe.ts";
import { CALL, cutStore, processesOf } from "../support/workflow-process.ts";

const world = { calls: [] as { key: string; input: string }[], asked: 0 };
(globalThis as { penstockAgentRuns?: typeof world }).penstockAgentRuns = world;

const PLUGINS = {
  "tools/charge.mjs": `export default { kind: "tool", description: "Charges", parameters: { type: "object" },
  execute: async (input, { idempotencyKey }) => {
    globalThis.penstockAgentRuns.calls.push({ key: idempotencyKey, input: JSON.stringify(input) });
    await null;
    return { charged: input.n };
  } };`,
  // Asks for three charges, one after the other, under ids that no other call has, and then tells what it was answered.
  "providers/charging.mjs": `let ids = 0;
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  export default { kind: "provider", create: () => ({ languageModel: (modelId) => ({
    specificationVersion: "v3", provider: "charging", modelId, supportedUrls: {},
    doGenerate: async () => { throw new Error("not used"); },
    async doStream({ prompt }) {
      globalThis.penstockAgentRuns.asked++;
      const results = prompt.filter(({ role }) => role === "tool").flatMap(({ content }) => content);
      const n = results.length + 1;
      const said = n > 3
        ? [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "charged " },
           { type: "text-delta", id: "t", delta: results.map(({ output }) => output.value.charged).join() }, { type: "text-end", id: "t" }]
        : [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "charge " + n }, { type: "text-end", id: "t" },
           { type: "tool-call", toolCallId: "call-" + ++ids, toolName: "charge", input: JSON.stringify({ n }) }];
      const finishReason = { unified: n > 3 ? "stop" : "tool-calls", raw: undefined };
      const parts = [{ type: "stream-start", warnings: [] }, ...said, { type: "finish", usage, finishReason }];
      return { stream: new ReadableStream({ start(to) { for (const part of parts) to.enqueue(part); to.close(); } }) };
    } }) }) };`,
};

const MANIFEST = {
  providers: { fake: { use: "charging" } },
  tools: { charge: { use: "charge" } },
  memory: { default: {} },
  agents: { a: { model: "fake/m", tools: ["charge"], maxSteps: 8 } },
  workflows: { w: { steps: [{ id: "ask", andAgent: { agent: "a", prompt: "go", stream: true } }] } },
};

test("andAgent: a run whose process ends before any of its commits goes on behind what is recorded, with the same keys", async (t: TestContext) => {
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const options = { executionId: "e", userId: "u" };
  let restarted = 0;
  for (let cut = 1; ; cut++) {
    const base = createMemoryStore();
    const store = cutStore(base, "sqlite");
    const first = await start(store);
    Object.assign(world, { calls: [], asked: 0 });
    store.arm(cut);
    const ended = first.access.execute("w", { input: {}, options }, CALL).then(() => true);
    ended.catch(() => {});
    const isWhole = await Promise.race([ended, store.cut.then(() => false)]);
    if (isWhole) break;
    const kept = store.commits.flatMap(({ put = [] }) => put.map(([, value]) => value)).join();
    const before = [...world.calls];
    const second = await start({ ...base, kind: "sqlite" });
    await until(async () => (await second.access.state("w", "e")).status === "completed", `the end after ${cut}`);

    const inputs = new Map<string, Set<string>>();
    for (const { key, input } of world.calls) inputs.set(key, (inputs.get(key) ?? new Set()).add(input));
    for (const [key, used] of inputs) assert.equal(used.size, 1, `${cut}: one key, two calls: ${key}`);
    const after = world.calls.slice(before.length);
    for (const n of [1, 2, 3]) {
      const input = JSON.stringify({ n });
      const keys = new Set(world.calls.filter((call) => call.input === input).map(({ key }) => key));
      assert.equal(keys.size, 1, `${cut}: one call, two keys`);
      if (kept.includes(`"output":{"charged":${n}}`))
        assert.ok(
          !after.some((call) => call.input === input),
          `${cut}: charge ${n} is recorded and was asked for again`,
        );
    }
    const state = await second.access.state("w", "e");
    assert.equal(state.status, "completed");
    const events = await collectEvents(await second.access.attach("w", "e", 0));
    const parts = events
      .filter(({ data }) => data.type === "agent-part")
      .map(({ data }) => data.data as { type: string });
    const results = parts.filter(({ type }) => type === "tool-result");
    assert.equal(results.length, 3, `${cut}: each result is told once`);
    assert.equal(parts.filter(({ type }) => type === "start").length, 1, `${cut}`);
    if (parts.some(({ type }) => type === "step-restart")) restarted++;
    await second.opened.close();
  }
  assert.ok(restarted > 0, "a half answer is announced as void");
});
