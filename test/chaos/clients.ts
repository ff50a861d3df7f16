/** What clients of the chaos do: each request goes to some process, its fate may stay unknown, and what was acknowledged is kept. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, type Dispatcher, request } from "undici";
import { type Known, resultOf } from "../crash/workflow-clients.ts";
import type { Random } from "../fuzz/random.ts";
import { eventsOf, type Loose } from "../soak/caller.ts";
import type { Cluster, Member } from "./cluster.ts";

/** A message that a conversation has, or may have when its fate is unknown. */
export interface Said {
  readonly text: string;
  readonly role: "user" | "assistant";
  sure: boolean;
}

/** What all clients know together. */
export interface Knowledge {
  readonly executions: Known[];
  /** Executions that a client has asked to be cancelled, and whether that was acknowledged. */
  readonly cancels: Map<Known, boolean>;
  /** In the order in which they were said; a conversation has one writer. */
  readonly conversations: Map<string, { readonly user: string; readonly said: Said[] }>;
  /** When a client read that a step is complete, by the key of the step. */
  readonly told: Map<string, number>;
  /** How often each visit had each outcome. */
  readonly outcomes: Map<string, number>;
  readonly wrong: string[];
}

export interface Client {
  readonly cluster: Cluster;
  readonly knowledge: Knowledge;
  readonly random: Random;
  readonly name: string;
  next(): number;
  /** Whether the load goes on. */
  goes(): boolean;
}

/** The connection broke: what was asked may have happened, or may still. */
class Broken extends Error {}

/** A 503 for a reason that is allowed. */
class Refused extends Error {}

/** Longer than anything is allowed to take: a frozen process, and the recovery of what a dead one ran. */
const HANG_MS = 180_000;
const RETRY_MS = 150;
/** A database that is back is found within this. */
const ECHO_MS = 20_000;

export const agent = new Agent({ connections: 64, bodyTimeout: HANG_MS, headersTimeout: HANG_MS });

interface Sent {
  readonly method?: Dispatcher.HttpMethod;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  /** Statuses beside 404 that are no fault. */
  readonly refusals?: readonly number[];
}

async function send({ served }: Member, path: string, sent: Sent = {}): Promise<Dispatcher.ResponseData> {
  const { method = sent.body === undefined ? "GET" : "POST", body, headers = {} } = sent;
  const type = body === undefined ? {} : { "content-type": "application/json" };
  try {
    return await request(served!.url + path, {
      method,
      dispatcher: agent,
      headers: { ...headers, ...type },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    throw new Broken(String(error));
  }
}

/** `data` of a reply, or undefined for a refusal that is none of the chaos. Every other refusal has to be one that is allowed. */
async function call({ cluster }: Client, member: Member, path: string, sent?: Sent): Promise<Loose> {
  const since = Date.now();
  const reply = await send(member, path, sent);
  const text = await reply.body.text().catch((error) => {
    throw new Broken(String(error));
  });
  if (reply.statusCode === 200 || reply.statusCode === 201) return JSON.parse(text).data;
  if (reply.statusCode === 404 || sent?.refusals?.includes(reply.statusCode)) return undefined;
  const what = `${path} is ${reply.statusCode} after ${Date.now() - since} ms: ${text.slice(0, 300)}`;
  assert.equal(reply.statusCode, 503, what);
  assert.ok(Number(reply.headers["retry-after"]) > 0, `without retry-after: ${what}`);
  const { error } = JSON.parse(text) as { error: string };
  // A process that was given up while it was frozen, or cut off from the database, says that its execution goes on elsewhere.
  const excused = error.startsWith("storage is unavailable")
    ? cluster.isAway(since - ECHO_MS)
    : cluster.isAway(since - HANG_MS) || cluster.deeds.freezes.some(({ to }) => to > since - HANG_MS);
  assert.ok(excused, `the database was there: ${what}`);
  throw new Refused(error);
}

/** Asks again, of any process, until there is an answer. What is asked may be asked twice. */
async function insist(client: Client, path: string, sent?: Sent): Promise<Loose> {
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    try {
      return await call(client, await client.cluster.pick(client.random), path, sent);
    } catch (error) {
      if (!(error instanceof Broken || error instanceof Refused)) throw error;
      assert.ok(Date.now() < end, `no answer to ${path}: ${error.message}`);
    }
  }
}

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
    const reply = await send(member, `${path}/stream`, { headers }).catch(() => null);
    if (reply?.statusCode === 200 && (await read(client, known, reply))) return;
    if (reply === null || reply.statusCode === 200) continue;
    const text = await reply.body.text().catch(() => "");
    if (reply.statusCode === 503) continue;
    assert.equal(reply.statusCode, 404, `${path} is ${reply.statusCode}: ${text}`);
    assert.equal(known.fact, "asked", `${known.id} is lost`);
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

function conversationOf({ name, knowledge, random }: Client) {
  const id = `talk-${name}-${random.below(3)}`;
  const conversation = knowledge.conversations.get(id) ?? { user: name, said: [] };
  knowledge.conversations.set(id, conversation);
  return { id, said: conversation.said };
}

export async function save(client: Client): Promise<void> {
  const { id, said } = conversationOf(client);
  if (!said.some(({ sure }) => sure)) {
    const created = { conversationId: id, userId: client.name, resourceId: "chaos", title: id };
    const sent = { body: created, refusals: [409] };
    await call(client, await client.cluster.pick(client.random), "/api/memory/conversations", sent);
  }
  const added = Array.from(
    { length: 1 + client.random.below(3) },
    (): Said => ({
      text: `note ${client.next()} of ${client.name}`,
      role: "user",
      sure: false,
    }),
  );
  said.push(...added);
  const messages = added.map(({ text, role }) => ({ role, content: text }));
  const body = { userId: client.name, conversationId: id, messages };
  const reply = await call(client, await client.cluster.pick(client.random), "/api/memory/save-messages", { body });
  assert.deepEqual(reply, { saved: added.length });
  for (const each of added) each.sure = true;
  await checkConversation(client, id);
}

export async function talk(client: Client): Promise<void> {
  const { id, said } = conversationOf(client);
  const text = `question ${client.next()} of ${client.name}`;
  const turn: Said[] = [
    { text, role: "user", sure: false },
    { text, role: "assistant", sure: false },
  ];
  said.push(...turn);
  const body = { input: text, options: { memory: { userId: client.name, conversationId: id } } };
  const reply = await call(client, await client.cluster.pick(client.random), "/agents/assistant/text", { body });
  assert.equal(reply.text, text, "the answer to another question");
  for (const each of turn) each.sure = true;
  await checkConversation(client, id);
}

/** What was acknowledged is there, once and in its order; what was not may be there once. */
export async function checkConversation(client: Client, id: string): Promise<void> {
  const { user, said } = client.knowledge.conversations.get(id)!;
  const sure = said.filter((each) => each.sure).map(nameOf);
  const known = new Set(said.map(nameOf));
  const path = `/api/memory/conversations/${id}/messages?userId=${user}&limit=1000`;
  const data = await insist(client, path);
  if (data === undefined) {
    assert.deepEqual(sure, [], `${id} is lost`);
    return;
  }
  const there = data.messages.map((message: Loose) => nameOf({ role: message.role, text: textOf(message) }));
  assert.equal(new Set(there).size, there.length, `a message of ${id} is there twice`);
  for (const name of there) assert.ok(known.has(name), `${name} in ${id}`);
  const wanted = new Set(sure);
  assert.deepEqual(
    there.filter((name: string) => wanted.has(name)),
    sure,
    `what was acknowledged of ${id}`,
  );
}

const nameOf = ({ role, text }: Pick<Said, "role" | "text">) => `${role}: ${text}`;
const textOf = ({ content, parts }: Loose): string =>
  content ?? parts.find(({ type }: Loose) => type === "text")?.text ?? "";

/** How often each is made, against the others. */
const VISITS: readonly (readonly [weight: number, visit: (client: Client) => Promise<void>])[] = [
  [6, execute],
  [4, approve],
  [3, follow],
  [3, stream],
  [2, cancel],
  [5, save],
  [4, talk],
];

/** One visit after the other, until the load is over. */
export async function work(client: Client, pause: number): Promise<void> {
  const { knowledge, random } = client;
  while (client.goes()) {
    // At moments of chance, as often as the rate says.
    await sleep(-Math.log(1 - random.next()) * pause);
    const visit = random.weighted(VISITS);
    const outcome = await visit(client).then(
      () => "answered",
      (error: Error) => {
        if (error instanceof Broken) return "broken";
        if (error instanceof Refused) return `refused: ${error.message.slice(0, 80)}`;
        knowledge.wrong.push(`${visit.name}: ${error.stack}`);
        return "wrong";
      },
    );
    const name = `${visit.name}: ${outcome}`;
    knowledge.outcomes.set(name, (knowledge.outcomes.get(name) ?? 0) + 1);
  }
}
