/** Four processes on one PostgreSQL under load while they are killed and stopped and the database goes away, and what must be true then. */
import { setTimeout as sleep } from "node:timers/promises";
import { Pool, request } from "undici";
import { forEach } from "../crash/checker.ts";
import { checkExecution, type Known } from "../crash/workflow-clients.ts";
import { nothingRuns } from "../crash/workflow-runs.ts";
import { caseSeed, type Random, randomOf } from "../fuzz/random.ts";
import type { PostgresServer } from "../support/postgres.ts";
import { agent, type Client, checkConversation, type Knowledge, work } from "./clients.ts";
import { Cluster, type Deeds } from "./cluster.ts";
import { judgeRuns, readRuns } from "./effects.ts";

const PROCESSES = 4;
const CLIENTS = 24;
/** Milliseconds between two visits of one client, on average. */
const PAUSE_MS = 200;
const KILL_INTERVAL_MS = 2_000;
const FREEZE_INTERVAL_MS = 4_000;
const LONGEST_FREEZE_MS = 3_000;
const OUTAGE_INTERVAL_MS = 20_000;
const LONGEST_DATABASE_FREEZE_MS = 6_000;
/** A process that is frozen for so long is taken for dead. */
const LONG_FREEZE_MS = 50_000;
const LONG_FREEZE_INTERVAL_MS = 100_000;
/** Until everything has ended that dead processes ran. */
const SETTLE_MS = 180_000;

interface ChaosSettings {
  /** Milliseconds. */
  readonly duration: number;
  readonly seed: number;
  /** Ends it early. */
  readonly signal?: AbortSignal;
  readonly tell: (line: string) => void;
}

export interface ChaosReport {
  readonly knowledge: Knowledge;
  readonly deeds: Deeds;
  /** Runs of steps. */
  readonly runs: number;
  /** What is wrong, in words. */
  readonly problems: string[];
}

export async function chaos(database: PostgresServer, settings: ChaosSettings): Promise<ChaosReport> {
  const { duration, seed, signal, tell } = settings;
  const cluster = new Cluster(database, await database.createDatabase(), PROCESSES);
  const { deeds, wrong } = cluster;
  const knowledge: Knowledge = {
    executions: [],
    cancels: new Map(),
    conversations: new Map(),
    told: new Map(),
    outcomes: new Map(),
    wrong,
  };
  try {
    await Promise.all(cluster.members.map((member) => cluster.boot(member)));
    const end = Date.now() + duration;
    const goes = () => Date.now() < end && wrong.length === 0 && !signal?.aborted;
    const clients = createClients(cluster, knowledge, seed, goes);
    const working = clients.map((client) => work(client, PAUSE_MS));
    await makeTrouble(cluster, settings, goes);
    tell(`the trouble is over: ${knowledge.executions.length} executions, ${deeds.kills.size} kills`);
    await Promise.all(working);
    await settled(cluster, clients, knowledge);
    const runs = readRuns(cluster.folder);
    const problems = [...wrong, ...judgeRuns(runs, deeds, knowledge.told)];
    return { knowledge, deeds, runs: runs.length, problems };
  } finally {
    await cluster.close();
  }
}

function createClients(cluster: Cluster, knowledge: Knowledge, seed: number, goes: () => boolean): Client[] {
  let number = 0;
  const next = () => ++number;
  return Array.from({ length: CLIENTS }, (_, index): Client => {
    return { cluster, knowledge, random: randomOf(caseSeed(seed, index)), name: `c${index}`, next, goes };
  });
}

/** Resolves when the time is over and everything that was stopped goes on again. */
async function makeTrouble(cluster: Cluster, { duration, seed }: ChaosSettings, goes: () => boolean): Promise<void> {
  const random = randomOf(caseSeed(seed, CLIENTS));
  const under: Promise<void>[] = [];
  const every = async (interval: number, work: (round: number) => Promise<void>) => {
    for (let round = 0; ; round++) {
      // In small steps, so that it ends when the time is over.
      for (const until = Date.now() + interval * (0.7 + 0.6 * random.next()); Date.now() < until; await sleep(20))
        if (!goes()) return;
      under.push(work(round));
    }
  };
  const outageInterval = Math.min(OUTAGE_INTERVAL_MS, duration / 4.5);
  let outage = Promise.resolve();
  await Promise.all([
    every(KILL_INTERVAL_MS, () => cluster.kill(random)),
    every(FREEZE_INTERVAL_MS, () => cluster.freeze(random, LONGEST_FREEZE_MS * random.next())),
    every(LONG_FREEZE_INTERVAL_MS, () => cluster.freeze(random, LONG_FREEZE_MS)),
    every(outageInterval, async (round) => {
      outage = outage.then(() => oneOutage(cluster, random, round));
      await outage;
    }),
  ]);
  await Promise.all(under);
}

function oneOutage(cluster: Cluster, random: Random, round: number): Promise<void> {
  if (round % 3 === 2) return cluster.freezeDatabase(LONGEST_DATABASE_FREEZE_MS * random.next());
  return cluster.restartDatabase(round % 3 === 0 ? "fast" : "immediate", 1_500 * random.next());
}

/** Waits until all is well again, and compares what is there with what clients know. */
async function settled(cluster: Cluster, clients: readonly Client[], knowledge: Knowledge): Promise<void> {
  const { wrong } = knowledge;
  const check = async (work: () => Promise<void>) => work().catch((error) => void wrong.push(String(error.stack)));
  const pools: Pool[] = [];
  for (const { index, served } of cluster.members) {
    if (served === null) wrong.push(`process ${index} is down at the end`);
    else pools.push(new Pool(served.url, { connections: 32, headersTimeout: SETTLE_MS, bodyTimeout: SETTLE_MS }));
  }
  if (pools.length === 0) return;
  for (const { served } of cluster.members) if (served !== null) await check(() => ready(served.url));
  await check(() => nothingRuns(pools[0]!, SETTLE_MS));
  // Each is asked of another process than before and after.
  let turn = 0;
  await forEach(knowledge.executions, (known) =>
    check(() => checkEnd(pools[turn++ % pools.length]!, known, knowledge.cancels)),
  );
  for (const id of knowledge.conversations.keys()) await check(() => checkConversation(clients[0]!, id));
  await Promise.all(pools.map((pool) => pool.destroy()));
  await agent.close().catch(() => {});
}

async function ready(url: string): Promise<void> {
  for (const end = Date.now() + SETTLE_MS; ; await sleep(100)) {
    const { statusCode, body } = await request(`${url}/readyz`);
    const text = await body.text();
    if (statusCode === 200) return;
    if (Date.now() > end) throw new Error(`/readyz is ${statusCode}: ${text}`);
  }
}

async function checkEnd(pool: Pool, known: Known, cancels: Knowledge["cancels"]): Promise<void> {
  const cancelled = cancels.get(known);
  if (cancelled === undefined) return checkExecution(pool, known);
  const path = `/workflows/slowly/executions/${known.id}/state`;
  const { statusCode, body } = await pool.request({ method: "GET", path });
  const { data } = (await body.json()) as { data?: { status: string } };
  const allowed = cancelled ? ["cancelled"] : ["cancelled", "completed", "gone"];
  const status = statusCode === 404 ? "gone" : data?.status;
  if (!allowed.includes(String(status))) throw new Error(`${known.id} is ${status}, cancel acknowledged: ${cancelled}`);
}
