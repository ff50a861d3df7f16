/** PostgreSQL behind PgBouncer in transaction mode: a session is somebody else's after every transaction. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { NO_PGBOUNCER, startPgBouncer } from "../support/pgbouncer.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : NO_PGBOUNCER;
const db = server as PostgresServer;
after(() => server?.close());

const IGNORING = "ignore_startup_parameters = statement_timeout,lock_timeout,idle_in_transaction_session_timeout";

async function open(t: TestContext, url: string): Promise<Store> {
  const store = await openPostgresStore(url, { logger: silent });
  t.after(() => store.close());
  return store;
}

for (const { name, createDatabase } of COMMIT_MODES) {
  test(`store postgres: three processes behind PgBouncer share two sessions, commits ${name}: every read and commit is its own`, {
    skip,
  }, async (t) => {
    const { url } = await createDatabase(db, t);
    const pooled = await startPgBouncer(t, url, IGNORING);
    const stores = [await open(t, pooled), await open(t, pooled), await open(t, pooled)];
    await Promise.all(
      stores.map(async (store, index) => {
        for (let round = 0; round < 30; round++) {
          const key = `${index}/${round}`;
          const [revision] = await Promise.all([
            store.commit({ put: [[key, "1"]], expect: [[key, null]], add: [["n", 1]] }),
            store.scan({ prefix: `${index}/`, limit: 5 }),
            store.tail({ prefix: `${index}/`, limit: 5, otherKey: "n" }),
          ]);
          assert.deepEqual(await store.get(key), { key, value: "1", revision });
        }
      }),
    );
    assert.equal((await stores[0]!.get("n"))?.value, "90");
  });
}

test("store postgres: a PgBouncer whose server is away: 503 says that its login has been failing, and that is over by itself", {
  skip: skip || (db.stop === null ? "the server is not ours to stop" : false),
}, async (t) => {
  const pooled = await startPgBouncer(t, await db.createDatabase(t), `${IGNORING}\nserver_login_retry = 1`);
  const store = await open(t, pooled);
  await store.commit({ put: [["k", "1"]] });
  await db.stop!("immediate");
  try {
    const message = "the pooler cannot log in to the database (server login has been failing)";
    await until(async () => (await store.problem()) === message, message);
  } finally {
    await db.start!();
  }
  await until(async () => (await store.problem()) === null, "the store is ready again");
});

test("store postgres: the pooler of Neon, which lacks LISTEN, is named with the address to take", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  // As every database of Neon says of itself.
  await db.query(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET neon.timeline_id = 'x'`, url);
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(await startPgBouncer(t, url, IGNORING), { logger });
  t.after(() => store.close());
  store.watch!("topic", () => {});
  await until(async () => lines.length > 0, "a line");
  assert.match(lines.join(), /LISTEN does not work .* that of Neon's pooler, take the address without -pooler/);
});

test("store postgres: a PgBouncer that refuses the bounds of sessions: the store works, and the log says where to set them", {
  skip,
}, async (t) => {
  const url = await startPgBouncer(t, await db.createDatabase(t));
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  await store.commit({ put: [["k", "1"]] });
  assert.equal((await store.get("k"))?.value, "1");
  assert.equal(await store.problem(), null);
  assert.deepEqual(lines, [
    "warn: PostgreSQL: the pooler refuses the bounds of sessions, set statement_timeout, lock_timeout and idle_in_transaction_session_timeout at the role",
  ]);
});
