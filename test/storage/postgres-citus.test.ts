/**
 * Citus, which places each schema on one of its nodes. Two plain servers whose databases have catalogs of their own say what nodes of Citus
 * say, and `PENSTOCK_TEST_CITUS` may name a database on the coordinator of a real one.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, type TestContext, test } from "node:test";
import pg from "pg";
import { CommitConflict } from "../../core/lib/errors.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { storeSuite } from "../suites/store.suite.ts";
import { startCutProxy } from "../support/cut-proxy.ts";
import {
  addressOf,
  NO_POSTGRES,
  type PostgresServer,
  sharedPostgres,
  startPostgres,
  urlThrough,
} from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

const coordinator = process.env.PENSTOCK_TEST_CITUS ?? "";
const NO_CITUS = coordinator === "" ? "no Citus: PENSTOCK_TEST_CITUS=postgres://..., of its coordinator" : false;

async function open(t: TestContext, url: string, logger = silent): Promise<Store> {
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  return store;
}

/** What a node of Citus has in its catalogs. */
const CATALOGS = `CREATE SCHEMA citus;
  CREATE VIEW citus.pg_extension AS SELECT 'citus' AS extname;
  CREATE TABLE citus.pg_dist_local_group AS SELECT 0 AS groupid;
  CREATE TABLE citus.pg_dist_node (nodename text, nodeport int, groupid int, noderole text);
  CREATE TABLE citus.pg_dist_shard (shardid int, logicalrelid oid);
  CREATE TABLE citus.pg_dist_placement (shardid int, groupid int)`;

/** A database that says that it is on the coordinator of Citus. */
async function createNode({ query }: PostgresServer, url: string): Promise<string> {
  await query(CATALOGS, url);
  await query(`ALTER DATABASE ${nameOf(url)} SET search_path = citus, pg_catalog, public`, url);
  return url;
}

const nameOf = (url: string) => new URL(url).pathname.slice(1);

let emptied: string | undefined;
storeSuite("postgres as on a node of Citus:", {
  async open(t) {
    if (emptied === undefined) emptied = await createNode(db, await db.createDatabase());
    else await db.query("TRUNCATE penstock", emptied);
    return open(t, emptied);
  },
  skip,
  runs: 3,
  largeReads: false,
});

test("store postgres on Citus: a process enters by the node that holds its schema, whichever its URL names, and moves with it at its next commit", {
  skip: skip || (process.env.PENSTOCK_TEST_POSTGRES ? "the server is not ours to stop, and it takes two" : false),
}, async (t) => {
  const other = (await startPostgres())!;
  t.after(() => other.close());
  const [first, second] = [await db.createDatabase(), `${new URL(other.url).href}`];
  await other.query(`CREATE DATABASE ${nameOf(first)}`);
  const inOther = new URL(second);
  inOther.pathname = nameOf(first);
  const nodes = [
    { of: db, url: first },
    { of: other, url: inOther.href },
  ];
  const proxies = [await startCutProxy(addressOf(db.url)), await startCutProxy(addressOf(other.url))];
  t.after(() => Promise.all(proxies.map((proxy) => proxy.close())));
  const everywhere = async (sql: string) => {
    for (const { of, url } of nodes) await of.query(sql, url);
  };
  /** Advisory locks that are held for a session, in the database of each node. */
  const sessions = () =>
    Promise.all(
      nodes.map(async ({ of, url }) => {
        const text = `SELECT count(*)::int AS count FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
        return (await of.query(text, url))[0]?.count;
      }),
    );
  for (const [group, { of, url }] of nodes.entries()) {
    await createNode(of, url);
    const store = await openPostgresStore(url, { logger: silent });
    await store.commit({ put: [["k", JSON.stringify(`of node ${group}`)]] });
    await store.close();
    await of.query(`UPDATE citus.pg_dist_local_group SET groupid = ${group}`, url);
  }
  for (const [group, { port }] of proxies.entries())
    await everywhere(`INSERT INTO citus.pg_dist_node VALUES ('127.0.0.1', ${port}, ${group}, 'primary')`);
  await everywhere(`INSERT INTO citus.pg_dist_shard VALUES (1, 'penstock_meta'::regclass);
    INSERT INTO citus.pg_dist_placement VALUES (1, 1)`);

  const { logger, lines } = recordingLogger();
  const store = await open(t, urlThrough(proxies[0]!.port, first), logger);
  assert.equal((await store.get("k"))?.value, '"of node 1"');
  assert.deepEqual(lines, [], "to be led to a node is no failover");
  await until(() => store.presence!.show("name"), "a session");
  assert.deepEqual(await sessions(), [0, 1]);
  assert.equal(await store.problem(), null);

  await everywhere("UPDATE citus.pg_dist_placement SET groupid = 0");
  await store.commit({ put: [["k", '"written after it moved"']] });
  assert.equal((await store.get("k"))?.value, '"written after it moved"');
  const stored = await Promise.all(
    nodes.map(async ({ of, url }) => (await of.query("SELECT value FROM penstock WHERE key = 'k'", url))[0]?.value),
  );
  assert.deepEqual(stored, ['"written after it moved"', '"of node 1"']);
  await until(() => store.presence!.show("name"), "a session with the other node");
  await until(async () => (await sessions()).join() === "1,0", "the session with the first node has ended");

  // Without a commit, a look finds it.
  await everywhere("UPDATE citus.pg_dist_placement SET groupid = 1");
  await until(async () => (await store.problem()) === null, "it is ready");
  assert.equal((await store.get("k"))?.value, '"of node 1"');

  // A node that cannot be reached.
  await everywhere("UPDATE citus.pg_dist_node SET nodeport = 1 WHERE groupid = 1");
  await assert.rejects(openPostgresStore(urlThrough(proxies[0]!.port, first), { logger: silent }), {
    message: /cannot be opened: connect ECONNREFUSED 127\.0\.0\.1:1$/,
  });
});

test("store postgres on Citus: a user who may not make the function is refused with the reason, since a commit is a call of it there", {
  skip,
}, async () => {
  const { url, ownerUrl } = await COMMIT_MODES.find(({ name }) => name === "in steps")!.createDatabase(db);
  await createNode(db, ownerUrl);
  await db.query(
    "GRANT USAGE ON SCHEMA citus TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA citus TO PUBLIC",
    ownerUrl,
  );
  await assert.rejects(
    openPostgresStore(url, { logger: silent }),
    /this user may not make the function "public".penstock_commit_2_1_citus: on Citus a commit is a call of that function, under read committed$/,
  );
});

test("store postgres: one that was written with a sequence of revisions goes on above all that it can have given", {
  skip,
}, async (t) => {
  const url = await db.createDatabase();
  const before = await open(t, url);
  await before.commit({ put: [["a", "1"]] });
  const { revision } = (await before.get("a"))!;
  // As releases with a sequence left it.
  await db.query("DELETE FROM penstock_meta WHERE key = 'revisions'", url);
  const store = await open(t, url);
  const next = await store.commit({ put: [["a", "2"]], expect: [["a", revision]] });
  assert.ok(next > 2 ** 50 && Number.isSafeInteger(next + 2 ** 52), String(next));
  await assert.rejects(before.commit({ put: [["a", "3"]], expect: [["a", revision]] }), CommitConflict);
  await store.commit({ put: [["a", "4"]], expect: [["a", next]] });
  const others = await open(t, url);
  assert.ok((await others.commit({ put: [["b", "1"]] })) > next + 1);
});

/** An empty schema of the real one, and a connection to the coordinator. */
async function createSchema() {
  const pool = new pg.Pool({ connectionString: coordinator, max: 1, idleTimeoutMillis: 0 });
  const run = async (text: string) => (await pool.query({ text })).rows as Record<string, unknown>[];
  const schema = `penstock_${randomBytes(6).toString("hex")}`;
  await run("SET citus.enable_schema_based_sharding = on");
  await run(`CREATE SCHEMA ${schema}`);
  const url = new URL(coordinator);
  url.searchParams.set("schema", schema);
  const drop = async () => {
    await run(`DROP SCHEMA ${schema} CASCADE`);
    await pool.end();
  };
  return { run, schema, url: url.href, drop };
}

let real: Awaited<ReturnType<typeof createSchema>> | undefined;
after(() => real?.drop());

storeSuite("postgres on a cluster of Citus:", {
  async open(t) {
    if (real === undefined) real = await createSchema();
    else await real.run(`TRUNCATE ${real.schema}.penstock`);
    return open(t, real.url);
  },
  skip: NO_CITUS,
  runs: 50,
});

test("store postgres on a cluster of Citus: a schema that moves to another node and back under commits of three processes: all that was acknowledged is there, each once, and all processes are on its node", {
  skip: NO_CITUS,
}, async (t) => {
  const { run, schema, url, drop } = await createSchema();
  const stores = [await open(t, url), await open(t, url), await open(t, url)];
  await stores[0]!.commit({ put: [["sum", "0"]] });
  for (const [index, store] of stores.entries()) await until(() => store.presence!.show(`${index}`), "a session");
  let moving = true;
  const counts = { acknowledged: 0, unknown: 0, conflicts: 0, refused: 0, cleared: 0 };
  async function work(store: Store, index: number): Promise<void> {
    for (let round = 0; moving; round++) {
      const key = `${index}/${round}`;
      const sum = (await store.get("sum"))!;
      try {
        await store.commit({
          put: [
            ["sum", String(Number(sum.value) + 1)],
            [key, "1"],
          ],
          expect: [
            ["sum", sum.revision],
            [key, null],
          ],
        });
        counts.acknowledged++;
      } catch (error) {
        if (error instanceof CommitConflict) counts.conflicts++;
        else if (/may have happened/.test((error as Error).message)) counts.unknown++;
        else counts.refused++;
      }
      if (round % 10 === 9) {
        await store.commit({ clear: [`gone/${index}/`], put: [[`kept/${index}`, "1"]] });
        counts.cleared++;
      }
    }
  }
  const working = Promise.all(stores.map(work));
  const holder = async () =>
    (await run(`SELECT nodename, nodeport FROM citus_shards WHERE table_name = '${schema}.penstock'::regclass`))[0]!;
  const nodes = await run("SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards");
  const from = await holder();
  const others = nodes.filter(({ nodeport, nodename }) => nodeport !== from.nodeport || nodename !== from.nodename);
  for (const { nodename, nodeport } of [...others, from]) {
    await run(`SELECT citus_schema_move('${schema}', '${nodename}', ${nodeport}, 'force_logical')`);
    assert.deepEqual(await holder(), { nodename, nodeport });
    // On the way they commit there too.
    const { acknowledged } = counts;
    await until(() => counts.acknowledged > acknowledged + 30, "commits");
  }
  moving = false;
  await working;
  t.diagnostic(`${others.length + 1} moves: ${JSON.stringify(counts)}`);
  const sum = Number((await stores[0]!.get("sum"))!.value);
  const [counted] = await run(`SELECT count(*)::int AS count FROM ${schema}.penstock WHERE key ~ '^\\d+/\\d+$'`);
  assert.equal(counted?.count, sum);
  assert.ok(
    sum >= counts.acknowledged && sum <= counts.acknowledged + counts.unknown,
    `${sum} of ${counts.acknowledged}`,
  );
  const names = stores.map((_, index) => `${index}`);
  for (const [index, store] of stores.entries()) await until(() => store.presence!.show(`${index}`), "a session there");
  for (const store of stores) assert.deepEqual([...(await store.presence!.shown(names))].toSorted(), names);
  await Promise.all(stores.map((store) => store.close()));
  await drop();
});
