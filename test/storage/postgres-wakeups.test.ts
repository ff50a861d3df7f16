/** Wake-ups between stores on one PostgreSQL: the connection that hears them, and what happens without it. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { Watch } from "../../core/storage/ranges.ts";
import type { Store } from "../../core/storage/store.ts";
import { startDeafProxy } from "../support/deaf-proxy.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { silent, soon } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

/** Longer than the test runs: what comes was told. */
const NEVER_MS = 600_000;

async function open(t: TestContext, url: string, logger = silent): Promise<Required<Store>> {
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  return store as Required<Store>;
}

const LISTENERS =
  "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_notify%'";

/** Wakes again and again: the first one may come before the other store is known to watch. */
async function expectWake(from: Required<Store>, to: Required<Store>, topic: string): Promise<void> {
  let woken = false;
  const end = to.watch(topic, () => {
    woken = true;
  });
  await until(() => {
    from.wake(topic);
    return woken;
  }, `the wake-up of ${topic}`);
  end();
}

test("store postgres: wake reaches a watch of another store on the same database, and of the own", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  // Every process watches something, which is why it listens.
  one.watch("one", () => {});
  await expectWake(one, two, "topic");
  await expectWake(two, one, "topic");
  await expectWake(one, one, "own");
});

test("store postgres: Watch.wait ends with a wake-up after a commit, whose rows can be read then", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  one.watch("one", () => {});
  await expectWake(one, two, "ready");
  for (let round = 0; round < 50; round++) {
    const watch = new Watch(two, "row");
    const read = async () => {
      while ((await two.get("row"))?.value !== String(round)) await watch.wait(NEVER_MS);
    };
    const reading = read();
    await one.commit({ put: [["row", String(round)]] });
    one.wake("row");
    await soon(reading, `round ${round}`);
    watch.end();
  }
});

test("store postgres: a store that watches nothing has no connection for notices, and all of them have one at most", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  const count = async () => (await db.query(LISTENERS, url)).length;
  one.wake("a");
  await one.commit({ put: [["a", "1"]] });
  assert.equal(await count(), 0);
  for (let n = 0; n < 100; n++) two.watch(`topic/${n}`, () => {});
  one.watch("one", () => {});
  await expectWake(one, two, "topic/1");
  await expectWake(two, one, "one");
  // That which proved it used a connection for reads, which has done nothing else yet.
  await Promise.all([one.get("a"), two.get("a")]);
  assert.equal(await count(), 2);
});

test("store postgres: after the server was away the connection for notices is back, and who watches is woken to look", {
  skip: skip || (db.stop === null ? "the server is not ours to stop" : false),
}, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  one.watch("one", () => {});
  await expectWake(one, two, "before");
  for (const mode of ["fast", "immediate"] as const) {
    let looks = 0;
    const end = two.watch("away", () => {
      looks++;
    });
    await db.stop?.(mode);
    one.wake("away");
    await db.start?.();
    // Nobody tells any more: what was told meanwhile is lost.
    await until(() => looks > 0, "the look after the restart");
    end();
    await expectWake(one, two, "after");
    await expectWake(two, one, "after");
  }
});

test("store postgres: behind a pooler that passes no notices on, this is said once, the connection is given back, and commits go on", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const { logger, lines } = recordingLogger();
  const deaf = await open(t, await startDeafProxy(t, url), logger);
  deaf.watch("a", () => assert.fail("it cannot hear"));
  deaf.watch("b", () => {});
  await until(() => lines.some((line) => line.includes("LISTEN does not work")), "the line");
  await until(async () => (await db.query(LISTENERS.replace("pg_notify%", "1"), url)).length === 0, "its end");
  const other = await open(t, url);
  other.watch("c", () => {});
  other.wake("a");
  await deaf.commit({ put: [["a", "1"]] });
  assert.equal((await deaf.get("a"))?.value, "1");
  assert.equal(lines.filter((line) => line.includes("LISTEN does not work")).length, 1);
});
