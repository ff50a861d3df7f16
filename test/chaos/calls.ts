/** Requests of the chaos: each goes to some process, and its fate may stay unknown. Refusals are for reasons that are allowed. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, type Dispatcher, request } from "undici";
import type { Known } from "../crash/workflow-clients.ts";
import type { Random } from "../fuzz/random.ts";
import type { Loose } from "../soak/caller.ts";
import type { Cluster, Member } from "./cluster.ts";

/** A message that a conversation has, or may have when its fate is unknown. */
export interface Said {
  readonly text: string;
  readonly role: "user" | "assistant";
  sure: boolean;
}

/** A run of an agent that is kept, as its client knows it. */
export interface KeptRun {
  id: string;
  readonly agent: "worker" | "asking";
  readonly text: string;
  readonly conversation: string | undefined;
  /** What it must be at least: `asked` may not exist, `waits` asks for approval, `begun` was acknowledged and comes to its end. */
  fact: "asked" | "waits" | "begun" | "over";
}

/** What all clients know together. */
export interface Knowledge {
  readonly executions: Known[];
  readonly runs: KeptRun[];
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

export const createKnowledge = (wrong: string[]): Knowledge => ({
  executions: [],
  runs: [],
  cancels: new Map(),
  conversations: new Map(),
  told: new Map(),
  outcomes: new Map(),
  wrong,
});

/** What is resumed or approved goes on where it was asked for. */
export function mayMove({ executions, runs }: Knowledge): (execution: string) => boolean {
  const resumed = executions.filter(({ workflow }) => workflow === "approval");
  const approved = runs.filter(({ agent }) => agent === "asking");
  const moving = new Set([...resumed, ...approved].map(({ id }) => id));
  return (execution) => moving.has(execution);
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
export class Broken extends Error {}

/** A 503 for a reason that is allowed. */
export class Refused extends Error {}

/** Longer than anything is allowed to take: a frozen process, and the recovery of what a dead one ran. */
export const HANG_MS = 180_000;
export const RETRY_MS = 150;
/** A database that is back is found within this. */
const ECHO_MS = 20_000;

const agent = new Agent({ connections: 64, bodyTimeout: HANG_MS, headersTimeout: HANG_MS });

interface Sent {
  readonly method?: Dispatcher.HttpMethod;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  /** Statuses beside 404 that are no fault. */
  readonly refusals?: readonly number[];
}

export async function send({ served }: Member, path: string, sent: Sent = {}): Promise<Dispatcher.ResponseData> {
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
export async function call({ cluster }: Client, member: Member, path: string, sent?: Sent): Promise<Loose> {
  const since = Date.now();
  const reply = await send(member, path, sent);
  const text = await reply.body.text().catch((error) => {
    throw new Broken(String(error));
  });
  if (reply.statusCode >= 200 && reply.statusCode < 300) return JSON.parse(text).data;
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
export async function insist(client: Client, path: string, sent?: Sent): Promise<Loose> {
  for (const end = Date.now() + HANG_MS; ; await sleep(RETRY_MS)) {
    try {
      return await call(client, await client.cluster.pick(client.random), path, sent);
    } catch (error) {
      if (!(error instanceof Broken || error instanceof Refused)) throw error;
      assert.ok(Date.now() < end, `no answer to ${path}: ${error.message}`);
    }
  }
}
