/** Visits to workflows: what one process runs is approved, read and cancelled on another one. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Dispatcher } from "undici";
import { type Known, resultOf } from "../crash/workflow-clients.ts";
import { eventsOf, type Loose } from "../soak/caller.ts";
import { Broken, type Client, call, HANG_MS, insist, RETRY_MS, Refused, send } from "./calls.ts";

function begin(client: Client, workflow: Known["workflow"]) {
  const n = client.next();
  const known: Known = { id: `${client.name}-${n}`, workflow, n, fact: "asked", events: [] };
  client.knowledge.executions.push(known);
  const body = { input: { n }, options: { executionId: known.id } };
  return { known, body, path: `/workflows/${workflow}/executions/${known.id}` };
}

function settle(known: Known, { status, result }: Loose): void {
  if (status === "suspended" && known.workflow === "approval") {
    known.fact = "waits";
    return;
  }
  assert.equal(status, "completed", known.id);
  assert.deepEqual(result, resultOf(known), known.id);
  known.fact = "over";
}

/** What one process has acknowledged, the others know. */
async function expectState(client: Client, known: Known, path: string): Promise<void> {
  const state = await insist(client, `${path}/state`);
  const status = known.fact === "waits" ? "suspended" : "completed";
  assert.equal(state?.status, status, `${known.id} was acknowledged as ${status}`);
}

export async function execute(client: Client): Promise<void> {
  const { known, body, path } = begin(client, "straight");
  const member = await client.cluster.pick(client.random);
  settle(known, await call(client, member, "/workflows/straight/execute", { body }));
  await expectState(client, known, path);
}

export async function approve(client: Client): Promise<void> {
  const { known, body, path } = begin(client, "approval");
  const member = await client.cluster.pick(client.random);
  settle(known, await call(client, member, "/workflows/approval/execute", { body }));
  assert.equal(known.fact, "waits");
  const other = await client.cluster.pick(client.random, member);
  known.fact = "answered";
  const answer = { resumeData: { answer: `yes ${known.n}` } };
  settle(known, await call(client, other, `${path}/resume`, { body: answer }));
  await expectState(client, known, path);
}

/** Reads the events of a reply, which go on with those that are known. Resolves to false when the connection breaks. */
async function read(client: Client, known: Known, reply: Dispatcher.ResponseData): Promise<boolean> {
  try {
    for await (const { id, data } of eventsOf(reply)) {
      if (data.type === "error") throw new Broken(`in the stream: ${JSON.stringify(data)}`);
      assert.equal(Number(id), known.events.length + 1, `the number of an event of ${known.id}`);
      known.events.push(JSON.stringify(data));
      if (known.fact === "asked") known.fact = "begun";
      if (data.type === "step-complete") client.knowledge.told.set(`${known.id}:${data.from}`, Date.now());
      if (data.type === "workflow-result") {
        if (data.status !== "cancelled") settle(known, data);
        return true;
      }
    }
    return false;
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    return false;
  }
}

/**
 * Attached on any process, and again where it broke off, until the last event.
 *
 * @param failure why it may never have begun: what nobody has heard of may not exist
 */
async function attach(client: Client, known: Known, path: string, failure = () => null as Error | null): Promise<void> {
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    assert.ok(Date.now() < end, `no end of ${known.id} after ${known.events.length} events`);
    const headers = { "last-event-id": String(known.events.length) };
    const member = await client.cluster.pick(client.random);
    // An answer from before it began may come late: its process was stopped while it answered.
    const { fact } = known;
    const reply = await send(member, `${path}/stream`, { headers }).catch(() => null);
    if (reply?.statusCode === 200 && (await read(client, known, reply))) return;
    if (reply === null || reply.statusCode === 200) continue;
    const text = await reply.body.text().catch(() => "");
    if (reply.statusCode === 503) continue;
    assert.equal(reply.statusCode, 404, `${path} is ${reply.statusCode}: ${text}`);
    assert.equal(fact, "asked", `${known.id} is lost`);
    const error = failure();
    if (error !== null) throw error;
  }
}

/** One process runs it, and its events are read on another one as they come. */
export async function follow(client: Client): Promise<void> {
  const { known, body, path } = begin(client, "slowly");
  const member = await client.cluster.pick(client.random);
  let failure: Error | null = null;
  const executing = call(client, member, "/workflows/slowly/execute", { body }).then(
    (result) => settle(known, result),
    (error) => {
      failure = error;
    },
  );
  await attach(client, known, path, () => failure);
  await executing;
}

/** The stream of the request itself; who loses it attaches elsewhere. */
export async function stream(client: Client): Promise<void> {
  const { known, body, path } = begin(client, "slowly");
  const reply = await send(await client.cluster.pick(client.random), "/workflows/slowly/stream", { body });
  if (reply.statusCode !== 200) {
    const text = await reply.body.text();
    assert.equal(reply.statusCode, 503, text);
    throw new Refused(text);
  }
  if (await read(client, known, reply)) return;
  if (known.fact === "asked") throw new Broken("before its first event");
  await attach(client, known, path);
}

export async function cancel(client: Client): Promise<void> {
  const { known, body, path } = begin(client, "slowly");
  client.knowledge.cancels.set(known, false);
  const member = await client.cluster.pick(client.random);
  const executing = call(client, member, "/workflows/slowly/execute", { body }).catch((error: Error) => error);
  await sleep(client.random.below(400));
  const other = await client.cluster.pick(client.random, member);
  // It may be over by then, or not have begun.
  const cancelling = { body: { reason: "enough" }, refusals: [400] };
  const cancelled = await call(client, other, `${path}/cancel`, cancelling);
  if (cancelled !== undefined) {
    assert.equal(cancelled.status, "cancelled");
    client.knowledge.cancels.set(known, true);
  }
  const result = await executing;
  if (result instanceof assert.AssertionError) throw result;
}
