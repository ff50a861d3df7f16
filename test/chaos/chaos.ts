/** Four processes on one PostgreSQL under load while they are killed and stopped and the database goes away, and what must be true then. */
import { setTimeout as sleep } from "node:timers/promises";
import { caseSeed, type Random, randomOf } from "../fuzz/random.ts";
import type { PostgresServer } from "../support/postgres.ts";
import { createKnowledge, type Knowledge, mayMove } from "./calls.ts";
import { ALL_VISITS, createClients, work } from "./clients.ts";
import { Cluster, type Deeds } from "./cluster.ts";
import { judgeRuns, readRuns } from "./effects.ts";
import { type Pair, WAYS_TO_GO } from "./pair.ts";
import { settled } from "./settled.ts";

const PROCESSES = 4;
const CLIENTS = 24;
/** Milliseconds between two visits of one client, on average. */
const PAUSE_MS = 200;
const KILL_INTERVAL_MS = 2_000;
const FREEZE_INTERVAL_MS = 4_000;
const LONGEST_FREEZE_MS = 3_000;
const OUTAGE_INTERVAL_MS = 20_000;
const FAILOVER_INTERVAL_MS = 30_000;
const LONGEST_DATABASE_FREEZE_MS = 6_000;
/** Longer than a lease: nobody may be taken for dead because of it. */
const LONG_OUTAGE_MS = 45_000;
const LONG_OUTAGE_INTERVAL_MS = 120_000;
/** A process that is frozen for so long is taken for dead. */
const LONG_FREEZE_MS = 50_000;
const LONG_FREEZE_INTERVAL_MS = 100_000;
const LONGEST_WAIT_MS = 60_000;

interface ChaosSettings {
  /** Milliseconds. */
  readonly duration: number;
  readonly seed: number;
  /** The database, where it is two servers of which one can take over. */
  readonly pair?: Pair;
  /** Whether runs of agents that are kept are in the load. */
  readonly runs?: boolean;
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
  const { duration, seed, signal, tell, runs: withRuns = false } = settings;
  const cluster = new Cluster(database, await database.createDatabase(), PROCESSES);
  const { deeds, wrong } = cluster;
  const knowledge = createKnowledge(wrong);
  try {
    await Promise.all(cluster.members.map((member) => cluster.boot(member)));
    const end = Date.now() + duration;
    // On a busy machine the first trouble of some kind may come late.
    const isTimeOver = () => Date.now() >= (hadTrouble(deeds) ? end : end + LONGEST_WAIT_MS);
    const goes = () => !isTimeOver() && wrong.length === 0 && !signal?.aborted;
    const clients = createClients({ cluster, knowledge, seed, goes }, CLIENTS);
    const working = clients.map((client) => work(client, PAUSE_MS, withRuns ? ALL_VISITS : undefined));
    await makeTrouble(cluster, settings, goes);
    tell(`the trouble is over: ${knowledge.executions.length} executions, ${deeds.kills.size} kills`);
    await Promise.all(working);
    await settled(cluster, clients, knowledge);
    const runs = readRuns(cluster.folder);
    const inFailedBoots = runs.filter(({ pid }) => deeds.failedBoots.has(pid)).length;
    tell(`${deeds.failedBoots.size} failed boots, which had begun ${inFailedBoots} runs of steps`);
    const problems = [...wrong, ...judgeRuns(runs, deeds, knowledge.told, mayMove(knowledge))];
    return { knowledge, deeds, runs: runs.length, problems: cluster.explained(problems) };
  } finally {
    await cluster.close();
  }
}

/** Of every kind. */
export const hadTrouble = ({ kills, freezes, outages }: Deeds): boolean =>
  kills.size > 0 && freezes.length > 0 && outages.length > 0;

/** Resolves when the time is over and everything that was stopped goes on again. */
async function makeTrouble(
  cluster: Cluster,
  { duration, seed, pair }: ChaosSettings,
  goes: () => boolean,
): Promise<void> {
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
  // One at a time.
  let outage = Promise.resolve();
  const next = (work: () => Promise<void>) => {
    outage = outage.then(work);
    return outage;
  };
  await Promise.all([
    every(KILL_INTERVAL_MS, () => cluster.kill(random)),
    every(FREEZE_INTERVAL_MS, () => cluster.freeze(random, LONGEST_FREEZE_MS * random.next())),
    every(LONG_FREEZE_INTERVAL_MS, () => cluster.freeze(random, LONG_FREEZE_MS)),
    every(outageInterval, (round) => next(() => oneOutage(cluster, random, round))),
    every(LONG_OUTAGE_INTERVAL_MS, () => next(() => cluster.freezeDatabase(LONG_OUTAGE_MS))),
    pair &&
      every(FAILOVER_INTERVAL_MS, (round) =>
        next(() => cluster.failOver(pair, WAYS_TO_GO[round % WAYS_TO_GO.length]!)),
      ),
  ]);
  await Promise.all(under);
}

function oneOutage(cluster: Cluster, random: Random, round: number): Promise<void> {
  if (round % 3 === 2) return cluster.freezeDatabase(LONGEST_DATABASE_FREEZE_MS * random.next());
  return cluster.restartDatabase(round % 3 === 0 ? "fast" : "immediate", 1_500 * random.next());
}
