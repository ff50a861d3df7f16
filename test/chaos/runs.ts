/** Visits to agents whose runs are kept: what one process has taken on comes to its end, in that one or in another, and once. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Dispatcher } from "undici";
import { eventsOf, type Loose } from "../soak/caller.ts";
import { Broken, type Client, call, HANG_MS, insist, type KeptRun, RETRY_MS, Refused, send } from "./calls.ts";

/** Of all runs that share conversations. */
const USER = "runs";

function begin(client: Client, agent: KeptRun["agent"], conversation?: string): KeptRun {
  const id = `run-${client.name}-${client.next()}`;
  const run: KeptRun = { id, agent, text: `question of ${id}`, conversation, fact: "asked" };
  client.knowledge.runs.push(run);
  return run;
}

const pathOf = ({ agent, id }: KeptRun) => `/agents/${agent}/runs/${id}`;
const minute = () => Math.floor(Date.now() / 60_000);
/** Runs of several clients and processes wait for each other's turns in it. */
const shared = (client: Client) => `runs-${minute()}-${client.random.below(4)}`;

/** In the background; followed on another process. */
export async function keep(client: Client): Promise<void> {
  const run = begin(client, "worker", shared(client));
  const memory = { userId: USER, conversationId: run.conversation };
  const body = { input: run.text, options: { runId: run.id, background: true, memory } };
  const member = await client.cluster.pick(client.random);
  assert.equal((await call(client, member, "/agents/worker/text", { body })).runId, run.id);
  run.fact = "begun";
  await follow(client, run);
}

/** A chat whose client reads on elsewhere, by the conversation, when its stream breaks. */
export async function chat(client: Client): Promise<void> {
  const run = begin(client, "worker", `chat-${client.name}-${minute()}`);
  const memory = { userId: USER, conversationId: run.conversation };
  const body = { input: run.text, options: { runId: run.id, resumableStream: true, memory } };
  const reply = await send(await client.cluster.pick(client.random), "/agents/worker/chat", { body });
  if (reply.statusCode !== 200) throw await refusal(reply);
  const path = `/agents/worker/chat/${run.conversation}/stream?userId=${USER}`;
  for (let stream: Dispatcher.ResponseData | null = reply; ; ) {
    if (stream?.statusCode === 200 && (await readsFinish(run, stream))) break;
    // The headers of a reply that takes long are sent before its run has begun.
    if (run.fact === "asked") throw new Broken("before its first part");
    // It has ended, or its process is gone and nobody has taken it up yet.
    if (stream?.statusCode === 204) break;
    await sleep(RETRY_MS);
    stream = await send(await client.cluster.pick(client.random), path).catch(() => null);
    if (stream !== null && stream.statusCode !== 200) await stream.body.text().catch(() => "");
  }
  await comesToEnd(client, run);
}

async function readsFinish(run: KeptRun, reply: Dispatcher.ResponseData): Promise<boolean> {
  try {
    for await (const { data } of eventsOf(reply)) {
      if (data.type !== "error") run.fact = "begun";
      if (data.type === "finish") return true;
    }
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
  }
  return false;
}

async function refusal(reply: Dispatcher.ResponseData): Promise<Error> {
  const text = await reply.body.text().catch(() => "");
  assert.equal(reply.statusCode, 503, text);
  return new Refused(text);
}

/** A message of A2A that is sent again, to other processes, until one has its task. */
export async function task(client: Client): Promise<void> {
  const run = begin(client, "worker", `task-${shared(client)}`);
  const message = { messageId: run.id, contextId: run.conversation, role: "ROLE_USER", parts: [{ text: run.text }] };
  const sent = { message, configuration: { returnImmediately: true } };
  const begun = (await rpc(client, "SendMessage", sent)).task;
  Object.assign(run, { id: begun.id, fact: "begun" });
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    const { status, artifacts } = await rpc(client, "GetTask", { id: run.id });
    if (status.state === "TASK_STATE_COMPLETED") {
      const text = (artifacts?.[0]?.parts ?? []).map((part: Loose) => part.text).join("");
      assert.equal(text, answerTo(run), run.id);
      run.fact = "over";
      return;
    }
    assert.match(status.state, /^TASK_STATE_(?:SUBMITTED|WORKING)$/, `task ${run.id}: ${JSON.stringify(status)}`);
    assert.ok(Date.now() < end, `no end of task ${run.id}`);
  }
}

/** Errors of JSON-RPC that a client may meet while processes and the database come and go. */
const TRY_AGAIN = /^storage is unavailable|try again|has been interrupted|the server is (?:stopping|shutting)/;

async function rpc(client: Client, method: string, params: unknown): Promise<Loose> {
  const body = { jsonrpc: "2.0", id: 1, method, params };
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    const member = await client.cluster.pick(client.random);
    const reply = await send(member, "/a2a/worker", { body, headers: { "a2a-version": "1.0" } }).catch(() => null);
    const text = await reply?.body.text().catch(() => null);
    assert.ok(Date.now() < end, `no answer to ${method}: ${text}`);
    if (reply?.statusCode === 503 || text == null) continue;
    const { result, error } = JSON.parse(text);
    if (error === undefined) return result;
    assert.match(error.message, TRY_AGAIN, `${method} of ${JSON.stringify(params)}`);
  }
}

/** The call of its tool waits for a yes, which another process takes. */
export async function ask(client: Client): Promise<void> {
  const run = begin(client, "asking");
  const body = { input: run.text, options: { runId: run.id } };
  const member = await client.cluster.pick(client.random);
  const reply = await call(client, member, "/agents/asking/text", { body });
  const { approvals = [], runId } = reply;
  assert.deepEqual([approvals.length, runId], [1, run.id], JSON.stringify(reply));
  run.fact = "waits";
  assert.equal((await insist(client, pathOf(run)))?.status, "waiting", `${run.id} was acknowledged`);
  const [{ approvalId }] = approvals;
  const answered = await insist(client, `/approvals/${approvalId}`, { body: { approved: true } });
  assert.equal(answered?.status, "approved", approvalId);
  run.fact = "begun";
  await comesToEnd(client, run);
}

/** Its parts, each once, on whichever process, and then what it came to. */
async function follow(client: Client, run: KeptRun): Promise<void> {
  let last = 0;
  const reads = async (reply: Dispatcher.ResponseData) => {
    try {
      for await (const { id, data } of eventsOf(reply)) {
        // Of the reading, and no part of the run: the store is away.
        if (id === "" && data.type === "error") return false;
        assert.equal(Number(id), last + 1, `the number of a part of ${run.id}`);
        last++;
        if (data.type === "tool-result") client.knowledge.told.set(`${run.id}:${data.toolCallId}`, Date.now());
        if (data.type === "finish") return true;
      }
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
    }
    return false;
  };
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    assert.ok(Date.now() < end, `no end of ${run.id} after ${last} parts`);
    const headers = { "last-event-id": String(last) };
    const reply = await send(await client.cluster.pick(client.random), `${pathOf(run)}/stream`, { headers }).catch(
      () => null,
    );
    if (reply === null) continue;
    if (reply.statusCode === 200) {
      if (await reads(reply)) break;
      continue;
    }
    const text = await reply.body.text().catch(() => "");
    assert.equal(reply.statusCode, 503, `${run.id} was acknowledged: ${text}`);
  }
  await comesToEnd(client, run);
}

const answerTo = ({ text }: KeptRun) => `done ${text}`;

async function comesToEnd(client: Client, run: KeptRun): Promise<void> {
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    const state = await insist(client, pathOf(run));
    if (state?.status !== "running" && state?.status !== "waiting") {
      expectEnd(run, state);
      break;
    }
    assert.ok(Date.now() < end, `${run.id} is ${JSON.stringify(state)}`);
  }
  run.fact = "over";
}

function expectEnd(run: KeptRun, state: Loose): void {
  assert.deepEqual([state?.status, state?.output], ["completed", answerTo(run)], `${run.id}: ${JSON.stringify(state)}`);
}

/** After everything: what was acknowledged has come to its end, what was not has either not begun or come to it as well. */
export async function checkRun(client: Client, run: KeptRun): Promise<void> {
  if (run.fact === "asked") {
    // A task has the id that its process gave.
    const state = await insist(client, pathOf(run));
    if (state === undefined || (run.agent === "asking" && state.status === "waiting")) return;
  }
  if (run.fact === "waits") {
    assert.equal((await insist(client, pathOf(run)))?.status, "waiting", `${run.id} was acknowledged`);
    return;
  }
  await comesToEnd(client, run);
}

/** A conversation has the question and the answer of each run that has ended, once; a question of no other run. */
export async function checkConversationOfRuns(client: Client, id: string): Promise<void> {
  const runs = client.knowledge.runs.filter(({ conversation }) => conversation === id);
  const data = await insist(
    client,
    `/api/memory/conversations/${id}/messages?${id.startsWith("task-") ? "" : `userId=${USER}&`}limit=1000`,
  );
  const there: string[] = (data?.messages ?? []).map(({ role, parts, content }: Loose) => {
    const text = content ?? parts.findLast(({ type }: Loose) => type === "text")?.text;
    return `${role}: ${text}`;
  });
  assert.equal(new Set(there).size, there.length, `a message of ${id} is there twice`);
  for (const run of runs.filter(({ fact }) => fact === "over")) {
    for (const name of [`user: ${run.text}`, `assistant: ${answerTo(run)}`])
      assert.ok(there.includes(name), `${name} is lost in ${id}: ${there}`);
  }
}
