/** Visits to workflows: executions that end, wait, go on, are stopped, and are left alone. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { type Caller, call, checkAnswer, eventsOf, type Loose, open, refusal, type Visit } from "./caller.ts";

function started(caller: Caller, workflow: string) {
  const n = caller.next();
  const executionId = `${caller.name}-${n}`;
  const path = `/workflows/${workflow}/executions/${executionId}`;
  return { n, path, body: { input: { n }, options: { executionId, userId: caller.name } } };
}

export const execute: Visit = async (caller) => {
  const { n, path, body } = started(caller, "sum");
  const done = await call(caller, "POST", "/workflows/sum/execute", body);
  assert.deepEqual([done.status, done.result.n], ["completed", n + 2]);
  const state = await call(caller, "GET", `${path}/state`);
  assert.equal(state.status, "completed");
  return "answered";
};

export const approve: Visit = async (caller) => {
  const { n, path, body } = started(caller, "approval");
  const waits = await call(caller, "POST", "/workflows/approval/execute", body);
  assert.equal(waits.status, "suspended");
  // Some wait for ever; others are stopped.
  if (caller.random.chance(0.1)) return "left";
  if (caller.random.chance(0.1)) {
    const cancelled = await call(caller, "POST", `${path}/cancel`, { reason: "no more" });
    assert.equal(cancelled.status, "cancelled");
    return "answered";
  }
  const done = await call(caller, "POST", `${path}/resume`, { resumeData: { answer: `yes ${n}` } });
  assert.deepEqual([done.status, done.result], ["completed", { n: n + 1, answer: `yes ${n}` }]);
  return "answered";
};

export const talk: Visit = async (caller) => {
  const { n, body } = started(caller, "talk");
  const done = await call(caller, "POST", "/workflows/talk/execute", body);
  checkAnswer(caller, done.result.text, n);
  return "answered";
};

async function openStream(caller: Caller, workflow: string, body: unknown) {
  const reply = await open(caller, "POST", `/workflows/${workflow}/stream`, body);
  if (reply.statusCode === 200) return reply;
  throw refusal(reply, workflow, await reply.body.text());
}

export const stream: Visit = async (caller) => {
  const { n, body } = started(caller, "sum");
  let count = 0;
  let last: Loose;
  for await (const { id, data } of eventsOf(await openStream(caller, "sum", body))) {
    assert.equal(Number(id), ++count, "the number of an event");
    last = data;
  }
  assert.deepEqual([last.type, last.status, last.result?.n], ["workflow-result", "completed", n + 2]);
  return "answered";
};

/** Who leaves a stream does not stop the workflow. */
export const leaver: Visit = async (caller) => {
  const { n, path, body } = started(caller, "slow");
  for await (const _event of eventsOf(await openStream(caller, "slow", body))) break;
  for (let waited = 0; ; waited += 100) {
    const state = await call(caller, "GET", `${path}/state`);
    if (state.status === "completed") break;
    assert.equal(state.status, "running");
    assert.ok(waited < 20_000, `${path} does not end`);
    await sleep(100);
  }
  const reply = await open(caller, "GET", `${path}/stream`);
  const events: Loose[] = [];
  for await (const event of eventsOf(reply)) events.push(event);
  assert.deepEqual([events.at(-1)!.data.type, events.at(-1)!.data.result.n], ["workflow-result", n]);
  return "left";
};

/** Stops or suspends one that runs, from outside, while its stream is read. */
export const stop: Visit = async (caller) => {
  const { n, path, body } = started(caller, "slow");
  const cancels = caller.random.chance(0.5);
  let asked: Promise<Loose> | null = null;
  let last: Loose = {};
  for await (const { data } of eventsOf(await openStream(caller, "slow", body))) {
    asked ??= call(caller, "POST", `${path}/${cancels ? "cancel" : "suspend"}`, { reason: "from outside" }).catch(
      (error: Error) => error,
    );
    last = data;
  }
  const answer = await asked;
  if (answer instanceof Error) {
    // On a busy machine it may be over before it hears of the stop; then it must have ended as if nobody had asked.
    if (!answer.message.includes("is already completed")) throw answer;
    assert.deepEqual([last.type, last.status, last.result?.n], ["workflow-result", "completed", n]);
    return "late";
  }
  const expected = cancels ? "cancelled" : "suspended";
  assert.equal(answer?.status, expected);
  assert.deepEqual([last.type, last.status], ["workflow-result", expected]);
  if (cancels) return "answered";
  const done = await call(caller, "POST", `${path}/resume`, {});
  assert.deepEqual([done.status, done.result.n], ["completed", n]);
  return "answered";
};

export const list: Visit = async (caller) => {
  const path = `/workflows/executions?userId=${caller.name}&limit=20`;
  const records = await call(caller, "GET", path);
  assert.ok(records.length <= 20);
  for (const { userId } of records) assert.equal(userId, caller.name);
  return "answered";
};
