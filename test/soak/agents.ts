/** Visits to agents: texts, objects and streams, read to their end, slowly, or not. */
import assert from "node:assert/strict";
import {
  type Caller,
  call,
  checkAnswer,
  eventsOf,
  type Loose,
  type Outcome,
  open,
  Refused,
  refusal,
  takeSerial,
  type Visit,
} from "./caller.ts";

const agentOf = ({ random }: Caller) => random.pick(["alone", "chained"]);

/** Questions of a conversation that exists go into its memory. */
function bodyOf(caller: Caller, how = ""): { number: number; body: Loose } {
  const number = caller.next();
  const memory = { userId: caller.name, conversationId: `${caller.name}-talk-${number % 3}` };
  const options = caller.random.chance(0.5) ? { memory } : {};
  return { number, body: { input: `ask ${number} ${how}`.trim(), options } };
}

export const text: Visit = async (caller) => {
  const { number, body } = bodyOf(caller, caller.random.chance(0.3) ? "tool" : "");
  const data = await call(caller, "POST", `/agents/${agentOf(caller)}/text`, body);
  checkAnswer(caller, data.text, number);
  return "answered";
};

const SCHEMA = {
  type: "object",
  properties: { number: { type: "integer" }, serial: { type: "integer" } },
  required: ["number", "serial"],
};

export const object: Visit = async (caller) => {
  const { number, body } = bodyOf(caller);
  const data = await call(caller, "POST", `/agents/${agentOf(caller)}/object`, { ...body, schema: SCHEMA });
  assert.equal(data.number, number);
  takeSerial(caller.serials, data.serial);
  return "answered";
};

/** A stream that fails says so in an event of its own. */
function failed(event: Loose): Outcome | null {
  if (event.type !== "error") return null;
  const message = String(event.error ?? event.errorText);
  if (!message.startsWith("model provider failed")) throw new Error(`an error in a stream: ${message}`);
  return "refused: in the stream";
}

async function openStream(caller: Caller, path: string, body: unknown) {
  const reply = await open(caller, "POST", path, body);
  if (reply.statusCode === 200) return reply;
  throw refusal(reply, path, await reply.body.text());
}

async function readText(caller: Caller, path: string, how: string, pause: number): Promise<Outcome> {
  const { number, body } = bodyOf(caller, how);
  let said = "";
  let finished = false;
  for await (const { data } of eventsOf(await openStream(caller, path, body), pause)) {
    const failure = failed(data);
    if (failure !== null) return failure;
    if (data.type === "text-delta") said += data.delta;
    // Of a model that was given up, what it had said is taken back by starting anew.
    if (data.type === "finish") finished = true;
  }
  assert.ok(finished, "a stream without its end");
  checkAnswer(caller, said, number);
  return "answered";
}

export const stream: Visit = (caller) => readText(caller, `/agents/${agentOf(caller)}/stream`, "", 0);
export const chat: Visit = (caller) => readText(caller, `/agents/${agentOf(caller)}/chat`, "", 0);
export const slowReader: Visit = (caller) =>
  readText(caller, `/agents/alone/${caller.random.pick(["stream", "chat"])}`, "long", 15);

export const streamedObject: Visit = async (caller) => {
  const { number, body } = bodyOf(caller);
  const reply = await openStream(caller, `/agents/${agentOf(caller)}/stream-object`, { ...body, schema: SCHEMA });
  let final: Loose;
  for await (const { data } of eventsOf(reply)) {
    const failure = failed(data);
    if (failure !== null) return failure;
    if (data.type === "final") final = data.finalObject;
  }
  assert.equal(final?.number, number);
  takeSerial(caller.serials, final.serial);
  return "answered";
};

/** Leaves a stream after its first events. */
export const leaver: Visit = async (caller) => {
  const { body } = bodyOf(caller, "slow");
  let left = 1 + caller.random.below(8);
  for await (const { data } of eventsOf(await openStream(caller, `/agents/${agentOf(caller)}/stream`, body))) {
    if (failed(data) !== null || --left === 0) break;
  }
  return "left";
};

/** Leaves before anything has come. */
export const hasty: Visit = async (caller) => {
  const { body } = bodyOf(caller, "slow");
  const abort = new AbortController();
  setTimeout(() => abort.abort(), caller.random.below(60));
  const headers = { "content-type": "application/json" };
  const path = `/agents/${agentOf(caller)}/text`;
  const call = { method: "POST", path, headers, body: JSON.stringify(body), signal: abort.signal } as const;
  await caller.pool.request(call).then(
    (reply) => reply.body.dump(),
    (error) => {
      if (!abort.signal.aborted) throw error;
    },
  );
  return "left";
};

/** What an agent says of itself, and what it has done. */
export const history: Visit = async (caller) => {
  const agent = agentOf(caller);
  const { entries, total } = await call(caller, "GET", `/agents/${agent}/history?limit=20`);
  assert.ok(entries.length <= 20 && total >= entries.length);
  const [detail] = (await call(caller, "GET", "/agents")).filter(({ id }: Loose) => id === agent);
  if (!["idle", "working"].includes(detail.status)) throw new Refused(`status ${detail.status}`);
  return "answered";
};

/** A client keeps so many conversations with agents, and none of them for long: what is stored is as much at the end as before. */
const MOST = 3;

export const forget: Visit = async (caller) => {
  const list = "/api/memory/conversations";
  const { conversations } = await call(
    caller,
    "GET",
    `${list}?userId=${caller.name}&resourceId=chained&orderDirection=ASC`,
  );
  if (conversations.length < MOST) return "left";
  const [oldest] = conversations;
  assert.deepEqual(await call(caller, "DELETE", `${list}/${oldest.id}`), { deleted: true });
  return "answered";
};
