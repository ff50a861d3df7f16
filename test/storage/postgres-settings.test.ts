/** What the URL of PostgreSQL may say, and databases that are not as this release expects them. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { silent } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

async function open(t: TestContext, url: string, logger = silent): Promise<Store> {
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  return store;
}

function withSettings(url: string, settings: Record<string, string>): string {
  const changed = new URL(url);
  for (const [name, value] of Object.entries(settings)) changed.searchParams.set(name, value);
  return changed.href;
}

test("store postgres: schema in the URL says where the tables are: stores of two schemas share a database and no row", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  // One of them is a word of SQL.
  const [one, two] = [
    await open(t, withSettings(url, { schema: "one" })),
    await open(t, withSettings(url, { schema: "order" })),
  ];
  await one.commit({ put: [["k", "1"]], add: [["n", 1]] });
  await two.commit({ put: [["k", "2"]], expect: [["k", null]], clear: ["x"], delete: ["n"] });
  await (await open(t, withSettings(url, { schema: "one" }))).commit({ add: [["n", 1]] });
  assert.deepEqual(
    (await one.scan({ prefix: "k", limit: 9 })).map(({ value }) => value),
    ["1"],
  );
  assert.equal((await one.get("n"))?.value, "2");
  assert.equal((await two.tail({ prefix: "k", limit: 9, otherKey: "n" }))?.text, "2");
  assert.deepEqual(
    await db.query("SELECT DISTINCT schemaname AS s FROM pg_tables WHERE tablename LIKE 'penstock%' ORDER BY s", url),
    [{ s: "one" }, { s: "order" }],
  );
  assert.equal(await two.problem(), null);
});

test("store postgres: pool in the URL bounds the connections of a process", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, withSettings(url, { pool: "3" }));
  const holder = new pg.Pool({ connectionString: url, max: 1 });
  t.after(() => holder.end());
  const session = await holder.connect();
  // Whoever reads or writes the table waits, each on its connection.
  await session.query("BEGIN; LOCK TABLE penstock");
  const work = Promise.all([
    store.commit({ put: [["k", "1"]] }),
    ...["a", "b", "c", "d"].map((key) => store.get(key)),
    ...["a", "b", "c", "d"].map((prefix) => store.scan({ prefix, limit: 1 })),
    store.tail({ prefix: "a", limit: 1, otherKey: "b" }),
  ]);
  const count = async () => {
    // A transaction sees what it saw first.
    await session.query("SELECT pg_stat_clear_snapshot()");
    const text =
      "SELECT count(*)::int AS count FROM pg_stat_activity WHERE application_name = 'penstock' AND datname = current_database()";
    return Number((await session.query({ text })).rows[0]?.count);
  };
  while ((await count()) < 2) await sleep(5);
  assert.ok((await count()) <= 3);
  await session.query("ROLLBACK");
  session.release();
  await work;
});

test("store postgres: settings in the URL that cannot be are refused with what was expected", async () => {
  const url = "postgres://nobody@127.0.0.1:1/none";
  for (const [name, value, expected] of [
    ["schema", "Mine", /schema must be a name of small letters, digits and _ that begins with no digit/],
    ["schema", 'a"b', /schema must be a name/],
    ["schema", "", /schema must be a name/],
    ["pool", "2", /pool must be a number of connections from 3 to 100/],
    ["pool", "many", /pool must be a number of connections from 3 to 100/],
  ] as const) {
    await assert.rejects(openPostgresStore(withSettings(url, { [name]: value }), { logger: silent }), expected);
  }
});

test("store postgres: a user who may not make the function: it works in steps, and the log says so", {
  skip,
}, async (t) => {
  const { url } = await COMMIT_MODES.find(({ name }) => name === "in steps")!.createDatabase(db, t);
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  await store.commit({ put: [["k", "1"]], expect: [["k", null]] });
  assert.deepEqual(lines, [
    'warn: PostgreSQL: this user may not make the function "public".penstock_commit_2_1: a commit takes several round trips, and not one',
  ]);
});

for (const { name, createDatabase } of COMMIT_MODES) {
  test(`store postgres: a newer release changes the layout while this one runs (commits ${name}): it refuses to write and read, loudly, until it is undone`, {
    skip,
  }, async (t) => {
    const { url, ownerUrl } = await createDatabase(db, t);
    const { logger, lines } = recordingLogger();
    const store = await openPostgresStore(url, { logger });
    t.after(() => store.close());
    await store.commit({ put: [["k", "1"]] });
    lines.length = 0;
    const layout = (version: number) =>
      db.query(`UPDATE penstock_meta SET value = '${version}' WHERE key = 'schema'`, ownerUrl);
    const refused = {
      kind: "unavailable",
      message: /^storage is unavailable: a newer version has upgraded the database \(schema 3; this one knows 2\)$/,
    };
    await layout(3);
    await assert.rejects(store.commit({ put: [["k", "2"]] }), refused);
    await assert.rejects(store.get("k"), refused);
    await assert.rejects(store.scan({ prefix: "k", limit: 1 }), refused);
    assert.match((await store.problem())!, /a newer version has upgraded the database/);
    assert.match(lines.join("\n"), /error: PostgreSQL cannot write: a newer version has upgraded the database/);
    assert.deepEqual(await db.query("SELECT value FROM penstock WHERE key = 'k'", ownerUrl), [{ value: "1" }]);
    await layout(2);
    assert.equal(await store.problem(), null);
    await store.commit({ put: [["k", "2"]] });
    assert.equal((await store.get("k"))?.value, "2");
  });
}

test("GET /readyz on PostgreSQL: its reason is a commit that has waited for 5 s, until it is through", {
  skip,
}, async (t) => {
  const url = withSettings(await db.createDatabase(t), { lock_timeout: "60000" });
  const store = await open(t, url);
  await store.commit({ put: [["k", "1"]] });
  const holder = new pg.Pool({ connectionString: url, max: 1 });
  t.after(() => holder.end());
  const session = await holder.connect();
  await session.query("BEGIN; UPDATE penstock SET value = value");
  const began = performance.now();
  const commit = store.commit({ put: [["k", "2"]] });
  assert.equal(await store.problem(), null);
  let problem: string | null = null;
  while (problem === null) {
    await sleep(50);
    problem = await store.problem();
  }
  assert.match(problem, /^a commit has waited for \d+ s$/);
  assert.ok(performance.now() - began >= 5_000);
  await session.query("ROLLBACK");
  session.release();
  await commit;
  assert.equal(await store.problem(), null);
});
