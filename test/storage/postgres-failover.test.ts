/** Two real servers, one following the other, and a proxy that leads to either: what a process does when the database fails over. */
import assert from "node:assert/strict";
import { after, before, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { type CutProxy, startCutProxy } from "../support/cut-proxy.ts";
import { heldModel } from "../support/held-model.ts";
import { addressOf, NO_POSTGRES, type PostgresServer, startPostgres, urlThrough } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { startService } from "../support/service.ts";
import { recordingLogger } from "../support/storage.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : server.standby === null ? "the server is not ours to stop" : false;
/** Which one is the primary changes with each test that promotes. */
let [primary, standby] = [server, null] as unknown as [PostgresServer, PostgresServer];
before(async () => {
  if (skip === false) standby = await server!.standby!();
});
after(async () => {
  await standby?.close();
  await primary?.close();
});

const named = (url: string, { url: server }: PostgresServer) => {
  const named = new URL(server);
  named.pathname = new URL(url).pathname;
  return named.href;
};

/** A database that both servers have, with one row, and a process that reaches it through a proxy. */
async function failing(t: TestContext, settings = "", logger = silent) {
  const url = await primary.createDatabase();
  const proxy = await startCutProxy(addressOf(primary.url));
  t.after(() => proxy.close());
  const store = await openPostgresStore(`${urlThrough(proxy.port, url)}${settings}`, { logger });
  t.after(() => store.close());
  await store.commit({ put: [["k", "1"]] });
  await caughtUp(url);
  return { url, proxy, store };
}

async function caughtUp(url: string): Promise<void> {
  const [at] = await primary.query("SELECT pg_current_wal_lsn()::text AS lsn");
  await until(
    async () =>
      (await standby.query(`SELECT pg_last_wal_replay_lsn() >= '${at!.lsn}'::pg_lsn AS there`, standby.url))[0]
        ?.there === true,
    `the standby has ${url}`,
  );
}

/** The standby takes over, and the old primary goes. It comes back as a standby of the new one. */
async function failOver(proxy: CutProxy | null, { old = "stop" }: { old?: "stop" | "leave" } = {}): Promise<void> {
  if (old === "stop") await primary.stop!("fast");
  await standby.promote!();
  proxy?.lead(addressOf(standby.url));
}

async function rejoin(): Promise<void> {
  [primary, standby] = [standby, primary];
  await standby.follow!(primary);
}

const ready = (store: Store) => until(async () => (await store.problem()) === null, "the store is ready again");

test("GET /readyz on PostgreSQL behind a name that leads to the standby for a while: 503, and ready by itself once it leads to the primary", {
  skip,
}, async (t) => {
  const { proxy, store } = await failing(t);
  let woken = 0;
  store.watch!("topic", () => woken++);
  await until(() => store.presence!.show("name"), "a session");
  proxy.lead(addressOf(standby.url));
  proxy.cutAll();
  await until(async () => (await store.problem()) === "the database is read-only", "the standby is found");
  await assert.rejects(store.commit({ put: [["k", "2"]] }), {
    message: "storage is unavailable: the database is read-only",
  });
  proxy.lead(addressOf(primary.url));
  // Nothing ends the connections that lead to the standby.
  await ready(store);
  await store.commit({ put: [["k", "2"]] });
  const { url } = primary;
  await until(() => store.presence!.show("name"), "a session with the primary");
  const [locks] = await primary.query("SELECT count(*)::int AS count FROM pg_locks WHERE locktype = 'advisory'", url);
  assert.equal(locks?.count, 1, "presence is on the primary");
  woken = 0;
  await until(async () => {
    store.wake!("topic");
    await sleep(20);
    return woken > 0;
  }, "a notice");
});

test("store postgres: a server that is gone without a word: what waits for it ends when a probe was not answered and another server is there", {
  skip,
}, async (t) => {
  const { proxy, store } = await failing(t);
  await until(() => store.presence!.show("name"), "a session");
  await Promise.all(Array.from({ length: 8 }, (_, index) => store.scan({ prefix: `${index}`, limit: 1 })));
  const revision = (await store.get("k"))!.revision;
  proxy.silence();
  const began = performance.now();
  // As a heartbeat does, without which nothing but a request would find out.
  const shown = store.presence!.show("name");
  const reads = Array.from({ length: 4 }, (_, index) => store.scan({ prefix: `${index}`, limit: 1 }));
  const writing = store.commit({ put: [["k", "2"]], expect: [["k", revision]] });
  await Promise.all([...reads, writing, shown]);
  assert.equal((await store.get("k"))?.value, "2");
  t.diagnostic(`after ${Math.round(performance.now() - began)} ms`);
  assert.ok(performance.now() - began < 20_000, "it waited for the time limit of a query");
});

test("GET /readyz on PostgreSQL whose primary is gone without a word, while the standby takes over: reads that wait for it are answered by the new primary, and the commit on its way happens there, once", {
  skip,
}, async (t) => {
  const { url, proxy, store } = await failing(t);
  await Promise.all(Array.from({ length: 8 }, (_, index) => store.scan({ prefix: `${index}`, limit: 1 })));
  const revision = (await store.get("k"))!.revision;
  proxy.silence();
  // Before the time limit of the reads begins: it may take a busy machine long.
  await primary.stop!("fast");
  const reads = Promise.all(Array.from({ length: 4 }, () => store.scan({ prefix: "k", limit: 1 })));
  const writing = store.commit({ put: [["k", "2"]], add: [["n", 1]], expect: [["k", revision]] });
  await failOver(proxy, { old: "leave" });
  await ready(store);
  // Before the time limit of a query, behind which they are refused.
  await Promise.all([reads, writing]);
  const text = "SELECT key, value FROM penstock WHERE key IN ('k', 'n') ORDER BY key";
  assert.deepEqual(await standby.query(text, named(url, standby)), [
    { key: "k", value: "2" },
    { key: "n", value: "1" },
  ]);
  await rejoin();
});

test("store postgres: several hosts in the URL: the first that takes writes, whichever that is, and the next one after a failover", {
  skip,
}, async (t) => {
  const url = await primary.createDatabase();
  const folder = (of: PostgresServer) => new URL(of.url).searchParams.get("host")!;
  const hosts = new URL(url);
  hosts.searchParams.set("host", `/nowhere,${folder(standby)},${folder(primary)}`);
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(hosts.href, { logger });
  t.after(() => store.close());
  await store.commit({ put: [["k", "1"]] });
  await caughtUp(url);
  await failOver(null);
  // Nobody need wait for it: one of the next looks finds the new primary.
  const looks = [await store.problem(), await store.problem(), await store.problem()];
  assert.equal(looks.at(-1), null, looks.join());
  assert.equal((await store.get("k"))?.value, "1");
  await store.commit({ put: [["k", "2"]] });
  assert.match(
    lines.join("\n"),
    /info: PostgreSQL: another server has taken over \(cluster and timeline \d+\/0000000\d, now \d+\/0000000\d\)/,
  );
  await rejoin();
});

test("store postgres: hosts stand before the path as HOST:PORT,HOST:PORT, and settings that are not carried out are refused by name", async () => {
  const open = (url: string) => openPostgresStore(url, { logger: silent });
  await assert.rejects(open("postgres://u:secret@127.0.0.1:1,127.0.0.1:2/db"), {
    message:
      "postgres://127.0.0.1:1,127.0.0.1:2/db cannot be opened: storage is unavailable: there is no connection to the database",
  });
  for (const [setting, expected] of [
    ["hostaddr=1", /the setting hostaddr is unknown, or one that is not carried out/],
    ["tcp_user_timeout=1", /the setting tcp_user_timeout is/],
    ["load_balance_hosts=random", /load_balance_hosts must be disable: hosts are tried in order/],
    ["target_session_attrs=any", /target_session_attrs must be read-write or primary/],
    ["engine=any", /engine must be unverified/],
    ["connect_timeout=0", /connect_timeout must be seconds/],
  ] as const)
    await assert.rejects(open(`postgres://127.0.0.1:1/db?${setting}`), expected);
  await assert.rejects(open("postgres://u@h:x,h/db"), /it is no URL: /);
});

test("store postgres: engines that are not PostgreSQL are refused by name with the reason, and engine=unverified runs them", {
  skip,
}, async (t) => {
  for (const [version, expected] of [
    ["CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu)", /CockroachDB: it has no LISTEN/],
    ["PostgreSQL 15.2-YB-2025.1.0.0-b168 on x86_64-pc-linux-gnu", /YugabyteDB: it has no LISTEN/],
    ["PostgreSQL 16", /Aurora DSQL: it has no LISTEN/],
    ["Materialize v0.130", /another engine than PostgreSQL \(Materialize v0.130\)/],
  ] as const) {
    const url = await primary.createDatabase();
    // The same server, which says that it is another one.
    const say = `CREATE SCHEMA saying; CREATE FUNCTION saying.version() RETURNS text LANGUAGE sql AS $$ SELECT '${version}'::text $$;
      ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = saying, pg_catalog, public`;
    await primary.query(say, url);
    await assert.rejects(openPostgresStore(url, { logger: silent }), expected);
    const store = await openPostgresStore(`${url}&engine=unverified`, { logger: silent });
    t.after(() => store.close());
    await store.commit({ put: [["k", "1"]] });
  }
});

test("GET /readyz on PostgreSQL: connections that have come to another timeline, as behind a pooler, are made anew, and a timeline that was replaced is refused until it is the new one again", {
  skip,
}, async (t) => {
  const url = await primary.createDatabase();
  // The same server, which says on which timeline it is.
  await primary.query(
    `CREATE SCHEMA saying; CREATE TABLE saying.timeline AS SELECT '0000000A' AS name;
     CREATE FUNCTION saying.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE sql AS 'SELECT name FROM saying.timeline';
     ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = saying, pg_catalog, public`,
    url,
  );
  const say = (name: string) => primary.query(`UPDATE saying.timeline SET name = '${name}'`, url);
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  await store.commit({ put: [["k", "1"]] });
  assert.equal(await store.problem(), null);
  await say("0000000B");
  assert.equal(await store.problem(), null, "it has gone on with other connections");
  assert.match(
    lines.join("\n"),
    /another server has taken over \(cluster and timeline \d+\/0000000A, now \d+\/0000000B\)/,
  );
  await say("0000000A");
  assert.equal(await store.problem(), "the database is one that was replaced by another");
  await assert.rejects(store.get("k"), {
    message: "storage is unavailable: the database is one that was replaced by another",
  });
  await say("0000000B");
  assert.equal(await store.problem(), null);
  assert.equal((await store.get("k"))?.value, "1");
});

test("POST /agents/:id/text in the background, and the standby takes over: a run at work, one that waits for its turn in another process, and one that was 503 because the answer to its first commit was lost all complete, each turn stored once", {
  skip,
}, async (t) => {
  const url = await primary.createDatabase();
  const model = heldModel(t);
  const begin = async () => {
    const proxy = await startCutProxy(addressOf(primary.url));
    t.after(() => proxy.close());
    const manifest = {
      name: "Test",
      version: "1.0.0",
      store: urlThrough(proxy.port, url),
      providers: { held: model.settings },
      memory: { default: {} },
      agents: { keeper: { model: "held/any", durable: true } },
    };
    return { proxy, service: await startService(t, manifest, { plugins: [model.plugins] }) };
  };
  const [one, other] = [await begin(), await begin()];
  const ask = ({ service }: typeof one, conversationId: string, input: string) =>
    service.post("/agents/keeper/text", {
      input,
      options: { background: true, memory: { userId: "ada", conversationId } },
    });
  for (const input of ["a", "once"]) model.hold(input);
  assert.equal((await ask(one, "c", "a")).status, 202);
  await model.isAsked("a");
  assert.equal((await ask(other, "c", "b")).status, 202);
  one.proxy.refuse(true);
  one.proxy.cut("lost-start", "answered");
  assert.equal((await ask(one, "lost-start", "once")).status, 503);
  other.proxy.away(true);
  await until(async () => (await other.service.get("/readyz")).status === 503, "that it is away");
  await caughtUp(url);
  await failOver(one.proxy);
  other.proxy.lead(addressOf(standby.url));
  // More than two looks of the one that waits.
  await sleep(1_200);
  other.proxy.away(false);
  one.proxy.refuse(false);
  for (const input of ["a", "once"]) model.release(input);
  const listed = async (): Promise<Loose[]> => {
    const reply = await other.service.get("/agents/keeper/runs");
    return reply.status === 200 ? ((await reply.json()) as Loose).data : [];
  };
  await until(async () => {
    await sleep(20);
    const runs = await listed();
    return runs.length === 3 && runs.every(({ status }) => status !== "running");
  }, "the end of three runs");
  assert.deepEqual(
    (await listed()).map(({ status, error }) => error ?? status),
    ["completed", "completed", "completed"],
  );
  for (const [conversation, count] of [
    ["c", 4],
    ["lost-start", 2],
  ] as const) {
    const reply = other.service.get(`/api/memory/conversations/${conversation}/messages?agentId=keeper&userId=ada`);
    assert.equal((await dataOf(reply)).messages.length, count, conversation);
  }
  await rejoin();
});

// The last one: the old primary has gone its own way by then.
test("store postgres: one broken connection moves the reads, the notices and the presence of a process, and no read is from the server that was replaced", {
  skip,
}, async (t) => {
  const { url, proxy, store } = await failing(t);
  store.watch!("topic", () => {});
  await until(() => store.presence!.show("name"), "a session");
  await Promise.all(Array.from({ length: 8 }, (_, index) => store.scan({ prefix: `${index}`, limit: 1 })));
  // The old primary lives on, and so do the sessions with it.
  await failOver(proxy, { old: "leave" });
  await primary.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%penstock_commit%' AND pid <> pg_backend_pid()`,
    named(url, primary),
  );
  await store.commit({ put: [["k", "2"]] });
  for (let round = 0; round < 30; round++) assert.equal((await store.get("k"))?.value, "2", "a stale read");
  const sessions = async ({ query, url: at }: PostgresServer) =>
    (
      await query(
        `SELECT count(*)::int AS count FROM pg_stat_activity WHERE application_name = 'penstock' AND datname = '${new URL(url).pathname.slice(1)}'`,
        at,
      )
    )[0]?.count;
  await until(async () => (await sessions(primary)) === 0, "nobody is left on the old primary");
  await until(() => store.presence!.show("name"), "a session with the new primary");
  // A name that leads back to the one that was replaced is not followed.
  proxy.lead(addressOf(primary.url));
  proxy.cutAll();
  await assert.rejects(store.get("k"), {
    message: "storage is unavailable: the database is one that was replaced by another",
  });
  proxy.lead(addressOf(standby.url));
  await ready(store);
  assert.equal((await store.get("k"))?.value, "2");
});
