import assert from "node:assert/strict";
import { test } from "node:test";
import { validators } from "../../../generated/all-validators.js";
import { agentsOf, caller, eventsOf, historyOf } from "../../support/agents.ts";

function fits(schema: keyof typeof validators, value: unknown): void {
  const validate = validators[schema];
  assert.ok(
    validate(structuredClone(value)),
    `${schema}: ${JSON.stringify(validate.errors)} in ${JSON.stringify(value)}`,
  );
}

test("everything that an agent gives fits the schemas of the API", async (t) => {
  const calls = [
    { tool: "add", input: { a: 1, b: 2 } },
    { tool: "fail" },
    { tool: "delegate_task", input: { agentId: "writer", task: "x" } },
  ];
  const agents = await agentsOf(t, {
    providers: {
      demo: {
        use: "scripted",
        chunks: 3,
        models: {
          boss: {
            replies: [
              { when: "go", call: calls, then: { ok: true } },
              { when: "refuse|does not fit", text: "no" },
              { when: "refuse|does not fit", text: "no" },
            ],
          },
        },
      },
    },
    tools: { add: { use: "add" }, fail: { use: "fail" } },
    agents: {
      chief: { name: "Chief", model: "demo/boss", tools: ["add", "fail"], subAgents: ["writer"] },
      writer: { model: "demo/echo" },
    },
  });
  const chief = agents.get("chief")!;
  const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
  const options = { output: { type: "object" as const, schema }, memory: { userId: "u", conversationId: "c" } };

  fits("AgentSummary", chief.summary());
  fits("AgentDetail", chief.detail());
  const result = await chief.generateText({ input: "go", options }, caller());
  assert.deepEqual(result.output, { ok: true });
  fits("TextResult", result);

  const raw = await eventsOf(chief.stream({ input: "go", options }, caller()));
  assert.ok(raw.list.length > 15);
  for (const event of raw.list) fits("RawStreamPart", event);
  const chat = await eventsOf(chief.chat({ input: "go" }, caller()));
  for (const event of chat.list) fits("UIMessageChunk", event);
  const object = await eventsOf(chief.streamObject({ input: "x", schema }, caller()));
  for (const event of object.list) fits("ObjectStreamEvent", event);
  assert.equal(object.list.at(-1)!.type, "final");

  await assert.rejects(chief.generateObject({ input: "refuse", schema }, caller()));
  const history = await historyOf(chief, 0, 10);
  assert.deepEqual(
    history.entries.map((entry) => entry.status),
    ["error", "completed", "completed", "completed", "completed"],
  );
  fits("HistoryPage", history);
});
