/**
 * Two servers behind one address, of which one follows the other synchronously, so that what it acknowledges both have. It stands for an HA
 * layer with a proxy before it, such as Patroni with HAProxy that ends the sessions with a server that is no longer the primary.
 */
import { startCutProxy } from "../support/cut-proxy.ts";
import { addressOf, type PostgresServer, urlThrough } from "../support/postgres.ts";
import { until } from "../support/probe.ts";

/** How the primary goes: it is stopped, it crashes, or it lives on beside the new one. */
export const WAYS_TO_GO = ["fast", "immediate", "alive"] as const;

export interface Pair extends PostgresServer {
  /** Makes the other one the primary, and another one follow it. @param taken told when the new primary is there; what it returns is waited for */
  failOver(way: (typeof WAYS_TO_GO)[number], taken: () => Promise<void>): Promise<void>;
}

export async function startPair(first: PostgresServer): Promise<Pair> {
  // A standby that has lost its primary looks for it again so soon.
  await set(first, "wal_retrieve_retry_interval = '200ms'");
  let primary = first;
  let standby = await first.standby!();
  const proxy = await startCutProxy(addressOf(primary.url));
  await wait();

  /** The standby has all that the primary had when this was called. */
  async function caughtUp(): Promise<void> {
    const [at] = await primary.query("SELECT pg_current_wal_lsn()::text AS lsn");
    const text = `SELECT flush_lsn >= '${at!.lsn}'::pg_lsn AS there FROM pg_stat_replication WHERE state = 'streaming'`;
    await until(async () => (await primary.query(text))[0]?.there === true, "the standby follows");
  }

  /** From now on nothing is acknowledged that the standby does not have. */
  async function wait(): Promise<void> {
    await caughtUp();
    await set(primary, "synchronous_standby_names = '*'");
    const isSet = async () =>
      (await primary.query("SHOW synchronous_standby_names"))[0]?.synchronous_standby_names === "*";
    await until(isSet, "the setting");
    // The process that makes it known to all others does both, and this second.
    await primary.query("CHECKPOINT");
  }

  return {
    url: first.url,
    standby: null,
    promote: null,
    follow: null,
    query: (sql) => primary.query(sql),
    createDatabase: async () => urlThrough(proxy.port, await primary.createDatabase()),
    stop: (mode) => primary.stop!(mode),
    start: () => primary.start!(),
    freeze: () => primary.freeze!(),
    async failOver(way, taken) {
      // Only a standby that has everything is made the primary. What a primary has committed while it started may have waited for nobody.
      await caughtUp();
      if (way !== "alive") await primary.stop!(way);
      await standby.promote!();
      await set(standby, "synchronous_standby_names = ''");
      proxy.lead(addressOf(standby.url));
      proxy.cutAll();
      [primary, standby] = [standby, primary];
      await taken();
      // After a crash, or when it lived on, it may have what the other one never had.
      await standby.follow!(primary, way !== "fast");
      await wait();
    },
    async close() {
      await proxy.close();
      for (const server of [standby, primary]) await server.close();
    },
  };
}

async function set({ query }: PostgresServer, setting: string): Promise<void> {
  await query(`ALTER SYSTEM SET ${setting}`);
  await query("SELECT pg_reload_conf()");
}
