/**
 * `kill -9` in the middle of everything. A real process with a SQLite file; clients that save messages, create, change and
 * delete conversations and generate; SIGKILL at a moment chosen by chance; a start on what is left, and a walk over the API.
 *
 * Three rounds, or `PENSTOCK_CRASH_ROUNDS` of them (`npm run test:crash`: one hundred). `PENSTOCK_CRASH_SEED` repeats the clients'
 * choices of a run; the moment at which the signal arrives nobody can repeat.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import { PENSTOCK, serve, signalGroup } from "../support/command-line.ts";
import { check, SHARED_OWNER } from "./checker.ts";
import { Client, send } from "./client.ts";
import { type Conversation, createRandom } from "./model.ts";

const ROUNDS = Number(process.env.PENSTOCK_CRASH_ROUNDS ?? 3);
const SEED = Number(process.env.PENSTOCK_CRASH_SEED ?? Date.now() % 1_000_000_007);
const CLIENTS = 24;
/** Conversations in a round that all clients write into. */
const SHARED = 3;
/** Milliseconds of load before the signal, at least and at most. */
const LOAD = [20, 900] as const;

/** Milliseconds within which a start is cut off, in every third round. */
const BOOT = 1_000;

const MANIFEST = `
name: Crash
version: 1.0.0
store: sqlite:data/penstock.db
logs: { level: warn }
providers: { demo: { use: scripted, chunks: 4, delay: 1ms } }
memory:
  default:
    workingMemory: { scope: conversation, format: markdown }
    semantic: { embedding: local/hash, vectors: exact }
agents:
  assistant: { name: Assistant, description: Repeats, instructions: Repeat., model: demo/echo, memory: default }
`;

const sharedConversation: Conversation = {
  userId: SHARED_OWNER,
  resourceId: "shared",
  title: "Everybody",
  metadata: {},
  working: null,
  messages: [],
  shared: true,
};

async function openShared(pool: Pool, round: number): Promise<Map<string, Conversation>> {
  const ids = Array.from({ length: SHARED }, (_, index) => `shared-${round}-${index}`);
  for (const conversationId of ids) {
    const { userId, resourceId, title } = sharedConversation;
    const body = { conversationId, userId, resourceId, title };
    await send(pool, { name: "create", method: "POST", path: "/api/memory/conversations", body });
  }
  return new Map(ids.map((id) => [id, sharedConversation]));
}

test(`no acknowledged message is lost, doubled or out of order after kill -9: ${ROUNDS} rounds, seed ${SEED}`, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-crash-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const config = join(folder, "service.yaml");
  writeFileSync(config, MANIFEST);
  const random = createRandom(SEED);
  const clients = Array.from({ length: CLIENTS }, (_, index) => {
    return new Client(`a${index}`, createRandom(SEED + 1 + index));
  });

  const command = [process.execPath, PENSTOCK, "serve", "--config", config, "--port", "0"] as const;
  /** Starts on what is left and gives a pool of connections to it. */
  const boot = async () => {
    const server = await serve(t, [...command], { cwd: folder });
    return { server, pool: new Pool(server.url, { connections: CLIENTS, bodyTimeout: 0, headersTimeout: 0 }) };
  };

  /** A start that does not come to its end, or only just. */
  const bootInVain = async () => {
    const [program, ...args] = command;
    const env = { PATH: process.env.PATH, HOME: process.env.HOME };
    const child = spawn(program, args, { cwd: folder, env, detached: true, stdio: "ignore" });
    const closed = once(child, "close");
    await sleep(random() * BOOT);
    signalGroup(child, "SIGKILL");
    await closed;
  };

  let cutOff = 0;
  // More of them, and longer ones, where a slow machine has been asked too little to show anything.
  for (let round = 0; round < ROUNDS || cutOff < ROUNDS; round += 1) {
    if (round % 3 === 1) await bootInVain();
    const { server, pool } = await boot();
    const looked = await check(pool, clients, false);
    const shared = await openShared(pool, round);
    for (const client of clients) client.join(shared);
    let killed = false;
    const working = Promise.all(clients.map((client) => client.work(pool, round, () => killed)));
    const [least, most] = LOAD;
    const load = (least + random() * (most - least)) * 2 ** Math.max(0, round - ROUNDS + 1);
    await Promise.race([working, sleep(load)]);
    killed = true;
    await server.interrupt("SIGKILL");
    await working;
    await pool.destroy();
    cutOff += clients.filter(({ pending }) => pending !== null).length;
    t.diagnostic(
      `round ${round + 1}: checked ${looked}; ${clients.reduce((sum, { acknowledged }) => sum + acknowledged, 0)} acknowledged so far`,
    );
  }
  const { server, pool } = await boot();
  t.diagnostic(`checked at last ${await check(pool, clients, true)}`);
  await pool.destroy();
  assert.equal(await server.interrupt("SIGTERM"), 0);
});
