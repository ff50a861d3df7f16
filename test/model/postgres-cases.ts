/** Cases of PostgreSQL: several stores, as of several processes, over one database, behind a proxy that delays and cuts. */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { Store } from "../../core/storage/store.ts";
import { caseSeed, type Random, randomOf } from "../fuzz/random.ts";
import type { PostgresServer } from "../support/postgres.ts";
import type { CommitMode } from "../support/postgres-modes.ts";
import { silent } from "../support/providers.ts";
import { type End, type Fate, type StatementProxy, startStatementProxy } from "../support/statement-proxy.ts";
import { type Cases, crowd, type Engines, judged, playNumbers, type Scene, type Seen, sceneOf } from "./cases.ts";
import { createNumbers, play } from "./clients.ts";

const STORES = 4;

/** Milliseconds for which no connection can be made. */
const OUTAGE_MS = 30;

/** What happens to statements: nothing, delays, or also cuts. */
type Weather = "calm" | "slow" | "rough";

/** Opens four stores, which all cases use: they have to recover from one case for the next. */
export async function openPostgresCases(engines: Engines, server: PostgresServer, mode: CommitMode): Promise<Cases> {
  const seen: Seen = {};
  const { url, ownerUrl } = await mode.createDatabase(server);
  const admin = new pg.Pool({ connectionString: ownerUrl, max: 1 });
  admin.on("error", () => undefined);
  const proxy = await startStatementProxy(url, (pid) =>
    admin.query({ text: "SELECT pg_terminate_backend($1)", values: [pid] }),
  );
  const all = await Promise.all(
    Array.from({ length: STORES }, () => engines.openPostgresStore(proxy.url, { logger: silent })),
  );

  /** What a broken connection left running may still commit. */
  async function quiet(): Promise<void> {
    const text = `SELECT count(*)::int AS busy FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`;
    while (Number((await admin.query({ text })).rows[0]?.busy) > 0) await sleep(5);
  }

  /** Whoever waits for rows does so in their order. */
  async function deadlocks(): Promise<string | null> {
    const text = "SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()";
    const count = Number((await admin.query({ text })).rows[0]?.deadlocks);
    return count === 0 ? null : `there were ${count} deadlocks`;
  }

  async function playSeed(seed: number): Promise<string | null> {
    const scene = sceneOf(seed, seen);
    const { random } = scene;
    const stores = all.slice(0, 1 + random.below(STORES));
    const weather = random.pick<Weather>(["calm", "slow", "rough", "rough", "rough"]);
    proxy.fate = fates(weather, proxy, randomOf(caseSeed(seed, 1)));
    await play({ ...scene, numbers: createNumbers(), calls: 12, stores: crowd(stores, random) });
    const numbers = weather === "rough" ? null : await playNumbers(engines, stores, seed);
    proxy.fate = null;
    proxy.refusing = false;
    await proxy.settled();
    await quiet();
    const found = await judged(scene, random.pick(stores));
    return found ?? (await deadlocks()) ?? (weather === "rough" ? null : needless(scene)) ?? numbers;
  }

  return {
    play: playSeed,
    get seen() {
      return { ...seen, ...proxy.ends };
    },
    async close() {
      await Promise.all(all.map((store: Store) => store.close()));
      await proxy.close();
      await admin.end();
    },
  };
}

/** Nothing is unavailable while nothing breaks, however many want the same rows. */
function needless({ history }: Scene): string | null {
  const failed = history.operations.find(({ reply }) => reply?.kind === "failed" || reply?.kind === "unknown");
  return failed === undefined ? null : `a call failed although nothing was broken: ${JSON.stringify(failed)}`;
}

function fates(weather: Weather, proxy: StatementProxy, random: Random): (() => Fate) | null {
  if (weather === "calm") return null;
  /** Of a hundred statements of a case and more, some. */
  const rate = weather === "rough" ? random.pick([0.03, 0.08, 0.15]) : 0;
  return () => {
    const delay = random.weighted([
      [4, 0],
      [4, 1],
      [2, 1 + random.below(5)],
    ]);
    if (!random.chance(rate)) return { delay, end: "pass" };
    if (random.chance(0.2)) {
      proxy.refusing = true;
      setTimeout(() => {
        proxy.refusing = false;
      }, OUTAGE_MS);
    }
    return { delay, end: random.pick<End>(["before", "sent", "late", "answered", "terminated"]) };
  };
}
