/** Visits to WebSockets: echoes, followers of the log and of traces, who leave with and without a word, or do not read. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { openSocket } from "../support/sockets.ts";
import { call, type Visit } from "./caller.ts";

export const echo: Visit = async (caller) => {
  const socket = await openSocket(`${caller.url}/ws`);
  assert.equal((await socket.next()).type, "CONNECTION_TEST");
  for (let times = 1 + caller.random.below(4); times > 0; times--) {
    const number = caller.next();
    socket.send({ number });
    assert.deepEqual(await socket.next(), { type: "ECHO", success: true, data: { number } });
  }
  if (caller.random.chance(0.3)) socket.socket.terminate();
  else await socket.close();
  return "answered";
};

export const logs: Visit = async (caller) => {
  const socket = await openSocket(`${caller.url}/ws/logs?limit=20`);
  const first = await socket.next();
  assert.equal(first.type, "initial");
  assert.ok(first.logs.length <= 20);
  await sleep(caller.random.below(800));
  socket.socket.terminate();
  return "answered";
};

export const traces: Visit = async (caller) => {
  const socket = await openSocket(`${caller.url}/ws/observability`);
  assert.equal((await socket.next()).type, "CONNECTION_SUCCESS");
  const number = caller.next();
  await call(caller, "POST", "/workflows/sum/execute", { input: { n: number } });
  assert.match((await socket.next()).type, /^OBSERVABILITY_(EVENT|LOG)$/);
  if (caller.random.chance(0.5)) socket.socket.terminate();
  else await socket.close();
  return "answered";
};

/** Stays, and takes nothing. */
export const deaf: Visit = async (caller) => {
  const socket = await openSocket(`${caller.url}/ws/observability`);
  socket.socket.pause();
  await sleep(1_000 + caller.random.below(3_000));
  socket.socket.terminate();
  return "left";
};

/** What the console reads. */
export const pages: Visit = async (caller) => {
  const traces = await call(caller, "GET", "/observability/traces?limit=20");
  assert.ok(traces.traces.length <= 20);
  const reply = await caller.pool.request({ method: "GET", path: "/metrics" });
  assert.match(await reply.body.text(), /^# HELP /);
  return "answered";
};
