/** Which processes have a session with PostgreSQL, as others see it. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

async function open(t: TestContext, url: string): Promise<Store> {
  const store = await openPostgresStore(url, { logger: silent });
  t.after(() => store.close());
  return store;
}

const END_SESSIONS =
  "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()";

test("store postgres: a process is shown as long as its session lasts, and again once it has another", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const one = await openPostgresStore(url, { logger: silent });
  const other = await open(t, url);
  const shown = async () => [...(await other.presence!.shown(["one", "two", "three"]))].sort();
  assert.deepEqual(await shown(), []);
  assert.equal(await one.presence!.show("one"), true);
  assert.equal(await one.presence!.show("one"), true, "as often as one likes");
  assert.equal(await other.presence!.show("two"), true);
  assert.deepEqual(await shown(), ["one", "two"]);
  await db.query(END_SESSIONS, url);
  await until(async () => (await shown()).length === 0, "the end of the sessions");
  await until(() => one.presence!.show("one"), "another session");
  assert.deepEqual(await shown(), ["one"]);
  assert.equal(await one.presence!.show("three"), true);
  await until(async () => (await shown()).join() === "three", "the other name alone");
  await one.close();
  await until(async () => (await shown()).length === 0, "the end of the session");
  assert.equal(await one.presence!.show("one"), false, "it is closed");
});

test("store postgres: a name is shown in its own database alone, and by one session alone", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  const [one, same, elsewhere] = [await open(t, url), await open(t, url), await open(t, await db.createDatabase(t))];
  assert.equal(await one.presence!.show("name"), true);
  assert.deepEqual([...(await elsewhere.presence!.shown(["name"]))], []);
  assert.equal(await same.presence!.show("name"), false);
});

test("store postgres: a process shows itself not at all while there is no server, and that is no error", {
  skip: skip || (db.stop === null ? "the server is not ours to stop" : false),
}, async (t) => {
  const store = await open(t, await db.createDatabase(t));
  assert.equal(await store.presence!.show("name"), true);
  await db.stop!("immediate");
  try {
    assert.equal(await store.presence!.show("name"), false);
  } finally {
    await db.start!();
  }
  await until(() => store.presence!.show("name"), "another session");
});
