/**
 * The database goes away in every way, under two processes with a load: restarted, killed, frozen, out of connections. What was
 * acknowledged stays, refusals are 503 with Retry-After while it is away, and everything goes on by itself.
 *
 * The freeze is short, or 20 s with `PENSTOCK_CRASH_ROUNDS` (`npm run test:crash`).
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import pg, { type Pool } from "pg";
import { request } from "undici";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { createKnowledge, type Knowledge, mayMove } from "./calls.ts";
import { createClients, work } from "./clients.ts";
import { Cluster } from "./cluster.ts";
import { judgeRuns, readRuns } from "./effects.ts";
import { ready, settled } from "./settled.ts";

const server = await startPostgres();
after(() => server?.close());
const skip = server === null ? NO_POSTGRES : server.stop === null ? "the server is not ours to stop" : false;
const db = server as PostgresServer;

const PROCESSES = 2;
const CLIENTS = 12;
const PAUSE_MS = 100;
const FREEZE_MS = process.env.PENSTOCK_CRASH_ROUNDS === undefined ? 4_000 : 20_000;
/** Long enough for every client to meet it. */
const AWAY_MS = 1_500;

type Away = (url: string, wait: () => Promise<void>) => Promise<void>;

const restarted =
  (mode: "fast" | "immediate"): Away =>
  async (_url, wait) => {
    await db.stop!(mode);
    await wait();
    await db.start!();
  };

/** Others take every connection that the server gives, and end those of Penstock. */
const outOfConnections: Away = async (url, wait) => {
  const hogs: Pool[] = [];
  let hogging = true;
  const hog = async () => {
    const pool = new pg.Pool({ connectionString: url, application_name: "hog", max: 1, idleTimeoutMillis: 0 });
    pool.on("error", () => undefined);
    hogs.push(pool);
    while (hogging) {
      const got = await pool.query({ text: "SELECT 1" }).then(
        () => true,
        () => false,
      );
      if (got) return;
      await sleep(5);
    }
  };
  const admin = new pg.Pool({ connectionString: url, max: 1, idleTimeoutMillis: 0 });
  const text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'";
  try {
    await admin.query({ text: "SELECT 1" });
    const all = Array.from({ length: 110 }, hog);
    // They are faster than Penstock, which waits before it tries again, but not always.
    const ending = setInterval(() => void admin.query({ text }).catch(() => undefined), 50);
    await wait();
    clearInterval(ending);
    hogging = false;
    await Promise.all(all);
  } finally {
    hogging = false;
    await Promise.all([...hogs, admin].map((pool) => pool.end()));
  }
};

interface Way {
  readonly name: string;
  readonly away: Away;
  /** What `/readyz` says of it; null: it may be over before anybody gives up. */
  readonly reason: RegExp | null;
}

const WAYS: readonly Way[] = [
  { name: "is restarted (fast)", away: restarted("fast"), reason: /no connection|stopping/ },
  { name: "is ended at once (immediate) and started", away: restarted("immediate"), reason: /no connection|stopping/ },
  { name: "has no connections left", away: outOfConnections, reason: /too many connections|starting or stopping/ },
  {
    name: `is frozen for ${FREEZE_MS / 1_000} s`,
    reason: null,
    async away(_url, wait) {
      const goOn = await db.freeze!();
      await Promise.all([wait(), sleep(FREEZE_MS)]);
      goOn();
    },
  },
];

const answers = ({ outcomes }: Knowledge): number =>
  [...outcomes].reduce((sum, [name, count]) => sum + (name.endsWith(": answered") ? count : 0), 0);

test("two processes whose PostgreSQL goes away in every way: 503 meanwhile, nothing acknowledged is lost, and they go on by themselves", {
  skip,
}, async (t) => {
  const seed = Date.now() % 1_000_000_007;
  const url = await db.createDatabase();
  const cluster = new Cluster(db, url, PROCESSES);
  t.after(() => cluster.close());
  const knowledge = createKnowledge(cluster.wrong);
  await Promise.all(cluster.members.map((member) => cluster.boot(member)));
  let over = false;
  const goes = () => !over && cluster.wrong.length === 0;
  const clients = createClients({ cluster, knowledge, seed, goes }, CLIENTS);
  const working = clients.map((client) => work(client, PAUSE_MS));
  const answersMore = async (what: string) => {
    const wanted = answers(knowledge) + 2 * CLIENTS;
    await until(() => answers(knowledge) >= wanted || cluster.wrong.length > 0, what);
  };
  await answersMore("answers before it goes");

  for (const { name, away, reason } of WAYS) {
    await cluster.outage(() =>
      away(url, async () => {
        await sleep(AWAY_MS);
        if (reason === null) return;
        for (const { served } of cluster.members) await until(() => saysWhy(served!.url, reason), `why it ${name}`);
      }),
    );
    for (const { served } of cluster.members) await ready(served!.url);
    await answersMore(`answers after it ${name}`);
    await until(async () => (await listeners(url)) === PROCESSES, `connections for notices after it ${name}`);
    assert.deepEqual(cluster.wrong, [], `it ${name}, seed ${seed}`);
  }
  over = true;
  await Promise.all(working);
  await settled(cluster, clients, knowledge);
  const runs = readRuns(cluster.folder);
  t.diagnostic(`${runs.length} runs of steps; ${[...knowledge.outcomes].map((each) => each.join(" ")).join(", ")}`);
  assert.deepEqual(
    cluster.explained([...cluster.wrong, ...judgeRuns(runs, cluster.deeds, knowledge.told, mayMove(knowledge))]),
    [],
    `seed ${seed}`,
  );
  const refused = [...knowledge.outcomes.keys()].filter((outcome) => outcome.includes("refused"));
  assert.ok(refused.length > 0, "nothing was refused: it was never away");
});

/** `/readyz` is 503 and says why; `/healthz` is 200 all the same. */
async function saysWhy(url: string, reason: RegExp): Promise<boolean> {
  const [ready, health] = await Promise.all([request(`${url}/readyz`), request(`${url}/healthz`)]);
  const [text] = await Promise.all([ready.body.text(), health.body.dump()]);
  assert.equal(health.statusCode, 200);
  return ready.statusCode === 503 && reason.test(text);
}

/** The connections that listen. */
async function listeners(url: string): Promise<number> {
  const text = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_notify%'";
  return (await db.query(text, url)).length;
}
