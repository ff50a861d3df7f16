/** The workflows that the manifest's whole grammar is shown with, from the first step to the last. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents, startService } from "../support/service.ts";

const EXAMPLE = readFileSync(new URL("../manifest/cases/the-whole-grammar.case", import.meta.url), "utf8")
  .split(/^-{10,}$/m)[0]!
  .replace(/^store: .*$/m, "store: 'memory:'")
  .replace(/^ {4}semantic: .*$/m, "")
  // A package that is not installed here.
  .replace(/^ {2}claude: .*$/m, "");
const env = { JWT_SECRET: "0123456789abcdef0123456789abcdef" };

test("POST /workflows/:id/execute: the example asks its manager above 100, then takes every kind of step", async (t) => {
  const service = await startService(t, EXAMPLE, { env });
  const input = { employee: "Ada", amount: 100 };
  const waiting = await dataOf(service.post("/workflows/expense/execute", { input }));
  assert.deepEqual([waiting.status, waiting.result], ["suspended", null]);
  assert.deepEqual([waiting.suspension.reason, waiting.suspension.suspendedStepIndex], ["Manager approval needed", 3]);
  const path = `/workflows/expense/executions/${waiting.executionId}`;
  const { status, result } = await dataOf(service.post(`${path}/resume`, { resumeData: { approved: true } }));
  assert.equal(status, "completed");
  assert.equal(result.done, true);
});

test("POST /workflows/:id/stream: below 100 the example goes through, and names its steps on the way", async (t) => {
  const service = await startService(t, EXAMPLE, { env });
  const reply = await service.post("/workflows/expense/stream", { input: { employee: "Ada", amount: 10 } });
  const events = parseEvents(await reply.text()).map(({ data }) => JSON.parse(data) as Loose);
  const completed = events.filter(({ type }) => type === "step-complete").map(({ from }) => from);
  const expected = [
    "total",
    "shape",
    "rate",
    "gate",
    "a",
    "b",
    "both",
    "d",
    "quick",
    "audit",
    "letter",
    "sub/mark",
    "sub",
  ];
  assert.deepEqual(completed, expected);
  assert.equal(events.find(({ from, type }) => from === "gate" && type === "step-complete")?.status, "skipped");
  assert.equal(events.at(-1)?.type, "workflow-result");
  assert.equal(events.at(-1)?.status, "completed");
});
