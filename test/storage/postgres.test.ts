/** The PostgreSQL engine on a real server: what every store does, and what only a server can do to us. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { pino } from "pino";
import { CommitConflict } from "../../core/lib/errors.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { storeSuite } from "../suites/store.suite.ts";
import { type CutProxy, startCutProxy } from "../support/cut-proxy.ts";
import { addressOf, NO_POSTGRES, type PostgresServer, startPostgres, urlThrough } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : false;
const restartable = server?.stop ? false : "the server is not ours to stop";
const db = server as PostgresServer;
const logger = pino({ level: process.env.TEST_LOG ?? "silent" });

after(() => server?.close());

const isUnavailable = (error: unknown) => (error as { kind?: unknown }).kind === "unavailable";

async function open(t: TestContext, url?: string): Promise<Store> {
  const store = await openPostgresStore(url ?? (await db.createDatabase(t)), { logger });
  t.after(() => store.close());
  return store;
}

for (const [index, { name, createDatabase }] of COMMIT_MODES.entries()) {
  let shared: { url: string; ownerUrl: string } | undefined;

  /** For the suite, whose tests run one after the other: a database for each would take most of their time. */
  async function openEmpty(t: TestContext): Promise<Store> {
    if (shared === undefined) shared = await createDatabase(db);
    else await db.query("TRUNCATE penstock", shared.ownerUrl);
    return open(t, shared.url);
  }

  storeSuite(`postgres: (commits ${name})`, { open: openEmpty, skip, runs: 50, largeReads: index === 0 });
}

/** Ends every connection of Penstock to the database, and waits until they have ended. */
const cut = (url: string) =>
  db.query(
    `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
       WHERE application_name = 'penstock' AND datname = current_database()`,
    url,
  );

test("store postgres: rows are there for another store on the same database, in the order of their keys", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  await one.commit({ put: ["a/Z", "a/a", "a/-", "a/B", "b/1"].map((key) => [key, JSON.stringify(key)]) });
  assert.deepEqual(
    (await two.scan({ prefix: "a/", limit: 10 })).map(({ key }) => key),
    ["a/-", "a/B", "a/Z", "a/a"],
  );
  assert.deepEqual(
    (await two.scan({ prefix: "a/", after: "a/-", before: "a/a", reverse: true, limit: 10 })).map(({ key }) => key),
    ["a/Z", "a/B"],
  );
  assert.equal((await two.get("b/1"))?.value, '"b/1"');
});

test("store postgres: a commit that the server refuses for its content does not take its group down", {
  skip,
}, async (t) => {
  const store = await open(t);
  await store.commit({ put: [["text", '"no number"']] });
  const results = await Promise.allSettled([
    store.commit({ put: [["a", "1"]] }),
    store.commit({ put: [["b", "1"]], add: [["text", 1]] }),
    store.commit({ put: [["c", "1"]] }),
  ]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
  assert.deepEqual(
    (await store.getMany(["a", "b", "c"])).map((row) => row?.value),
    ["1", undefined, "1"],
  );
});

test("store postgres: two stores on one database racing on expect: every increment is counted once", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const stores = [await open(t, url), await open(t, url), await open(t, url)];
  const rounds = 40;
  async function increment(store: Store): Promise<number> {
    for (let lost = 0; ; lost++) {
      const row = await store.get("race");
      const put: [string, string][] = [["race", String(Number(row?.value ?? 0) + 1)]];
      try {
        await store.commit({ put, add: [["total", 1]], expect: [["race", row?.revision ?? null]] });
        return lost;
      } catch (error) {
        assert.ok(error instanceof CommitConflict, String(error));
      }
    }
  }
  const lost = await Promise.all(
    stores.map(async (store) => {
      let conflicts = 0;
      for (let round = 0; round < rounds; round++) conflicts += await increment(store);
      return conflicts;
    }),
  );
  assert.equal((await stores[0]!.get("race"))?.value, String(rounds * stores.length));
  assert.equal((await stores[0]!.get("total"))?.value, String(rounds * stores.length));
  assert.ok(
    lost.some((conflicts) => conflicts > 0),
    "nobody ever lost: this was no race",
  );
});

test("store postgres: two stores create the same row at once: one of them does", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  for (let round = 0; round < 30; round++) {
    const key = `absent/${round}`;
    const results = await Promise.allSettled(
      [one, two].map((store, index) => store.commit({ put: [[key, String(index)]], expect: [[key, null]] })),
    );
    const lost = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
    assert.equal(lost.length, 1);
    assert.ok(lost[0] instanceof CommitConflict, String(lost[0]));
    const winner = results.findIndex(({ status }) => status === "fulfilled");
    assert.equal((await one.get(key))?.value, String(winner));
  }
});

test("store postgres: write skew is refused: two stores that each expect the row which the other writes", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const [one, two] = [await open(t, url), await open(t, url)];
  for (let round = 0; round < 20; round++) {
    const [a, b] = [`skew/${round}/a`, `skew/${round}/b`];
    await Promise.allSettled([
      one.commit({ put: [[a, "1"]], expect: [[b, null]] }),
      two.commit({ put: [[b, "1"]], expect: [[a, null]] }),
    ]);
    assert.equal((await one.scan({ prefix: `skew/${round}/`, limit: 10 })).length, 1);
  }
});

test("store postgres: counters of several stores at once lose nothing, and nobody is refused", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  const stores = [await open(t, url), await open(t, url), await open(t, url)];
  const adds = stores.map(async (store) => {
    for (let round = 0; round < 25; round++) {
      await Promise.all([store.commit({ add: [["n", 1]] }), store.commit({ add: [["n", 2]] })]);
    }
  });
  await Promise.all(adds);
  assert.equal((await stores[0]!.get("n"))?.value, "225");
});

test("store postgres: connections cut under a stream of commits: what was acknowledged is there, once and whole", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, url);
  const acknowledged: number[] = [];
  let stop = false;
  let next = 0;
  const writer = async () => {
    while (!stop) {
      const id = next++;
      try {
        await store.commit({
          put: [
            [`row/${id}`, "1"],
            [`twin/${id}`, "1"],
          ],
          add: [
            ["count", 1],
            [`once/${id}`, 1],
          ],
        });
        acknowledged.push(id);
      } catch (error) {
        assert.ok(isUnavailable(error), String(error));
      }
    }
  };
  const writers = Array.from({ length: 16 }, writer);
  const more = async (count: number) => {
    const goal = acknowledged.length + count;
    while (acknowledged.length < goal) await sleep(1);
  };
  for (let round = 0; round < 12; round++) {
    await more(20);
    await cut(url);
  }
  await more(20);
  stop = true;
  await Promise.all(writers);
  const keys = async (prefix: string) =>
    (await store.scan({ prefix, limit: 1_000_000 })).map(({ key }) => Number(key.slice(prefix.length)));
  const rows = new Set(await keys("row/"));
  assert.deepEqual(await keys("twin/"), await keys("row/"));
  assert.deepEqual(
    acknowledged.filter((id) => !rows.has(id)),
    [],
  );
  assert.equal((await store.get("count"))?.value, String(rows.size));
  const twice = (await store.scan({ prefix: "once/", limit: 1_000_000 })).filter(({ value }) => value !== "1");
  assert.deepEqual(twice, []);
});

/** A store whose connections pass through a proxy, and the URL without it for the owner. */
async function openBehindProxy(t: TestContext, mode = COMMIT_MODES[0]!): Promise<[Store, CutProxy, string]> {
  const { url, ownerUrl } = await mode.createDatabase(db, t);
  const proxy = await startCutProxy(addressOf(url));
  const store = await openPostgresStore(urlThrough(proxy.port, url), { logger });
  t.after(async () => {
    await store.close();
    await proxy.close();
  });
  return [store, proxy, ownerUrl];
}

for (const mode of COMMIT_MODES) {
  // As the protocol ends a text: COMMIT alone is in READ COMMITTED too.
  const [last, ...earlier] = [mode.last, ...mode.earlier].map((text) => `${text}\0`) as [string, ...string[]];
  const { name } = mode;

  test(`store postgres: a connection cut before a commit ${name} reached the server: it is done again, once`, {
    skip,
  }, async (t) => {
    const [store, proxy] = await openBehindProxy(t, mode);
    for (const [index, text] of [...earlier, last, last].entries()) {
      proxy.cut(text, "before");
      await store.commit({ put: [[`k/${index}`, "1"]], add: [["n", 1]] });
      assert.equal(proxy.cuts, index + 1);
      assert.equal((await store.get("n"))?.value, String(index + 1));
    }
  });

  test(`store postgres: a connection cut while the answer to a commit ${name} was on its way: it happened, once`, {
    skip,
  }, async (t) => {
    const [store, proxy] = await openBehindProxy(t, mode);
    for (const round of [1, 2, 3]) {
      const before = await store.get("k");
      proxy.cut(last, "answered");
      const expect = [["k", before?.revision ?? null]] as const;
      const revision = await store.commit({ put: [["k", String(round)]], add: [["n", 1]], expect });
      assert.equal(proxy.cuts, round);
      const [row, count] = await store.getMany(["k", "n"]);
      assert.deepEqual([row?.value, row?.revision, count?.value], [String(round), revision, String(round)]);
    }
  });

  test(`store postgres: a commit ${name} happened, and its connection fails in a way that is not known: it is not told that it failed`, {
    skip,
  }, async (t) => {
    const { url } = await mode.createDatabase(db, t);
    const store = await open(t, url);
    await store.commit({ add: [["n", 1]] });
    const { query } = pg.Client.prototype;
    t.after(() => {
      pg.Client.prototype.query = query;
    });
    let fails = true;
    pg.Client.prototype.query = function (this: unknown, ...args: unknown[]) {
      const statement = args[0] as { name?: string; text?: string };
      const result = Reflect.apply(query, this, args);
      if (!fails || ![statement.name, statement.text].includes(mode.last)) return result;
      fails = false;
      return result.then(() => {
        throw Object.assign(new Error("read EHOSTUNREACH"), { code: "EHOSTUNREACH" });
      });
    } as typeof query;
    const revision = await store.commit({ put: [["k", "1"]], add: [["n", 1]] });
    const [row, count] = await store.getMany(["k", "n"]);
    assert.deepEqual([row?.revision, count?.value, fails], [revision, "2", false]);
    await store.commit({ add: [["n", 1]] });
  });

  test(`store postgres: a connection cut in the middle of a commit ${name}, and no other to be had: 503, never done twice`, {
    skip,
  }, async (t) => {
    const [store, proxy, url] = await openBehindProxy(t, mode);
    proxy.refuse(true);
    proxy.cut(last, "answered");
    await assert.rejects(store.commit({ add: [["n", 1]] }), (error: Error) => {
      assert.match(error.message, /the connection was lost during the commit, which may have happened/);
      return isUnavailable(error);
    });
    assert.deepEqual(await db.query("SELECT value FROM penstock WHERE key = 'n'", url), [{ value: "1" }]);
    proxy.refuse(false);
    await store.commit({ add: [["n", 1]] });
    assert.equal((await store.get("n"))?.value, "2");
  });

  test(`store postgres: a commit ${name} that reaches the server after it was done again: it does not happen`, {
    skip,
  }, async (t) => {
    const [store, proxy] = await openBehindProxy(t, mode);
    await store.commit({ add: [["n", 1]] });
    proxy.cut(last, "late");
    const revision = await store.commit({ put: [["k", "1"]], add: [["n", 1]] });
    await proxy.deliver();
    const [row, count] = await store.getMany(["k", "n"]);
    assert.deepEqual([row?.revision, count?.value], [revision, "2"]);
    await store.commit({ add: [["n", 1]] });
    assert.equal((await store.get("n"))?.value, "3");
  });
}

test("store postgres: a process whose clock is days ahead leaves the lanes of the others alone, and its own is judged by the clock of the database", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const lanes = () => db.query("SELECT key, value FROM penstock_meta WHERE key LIKE 'lane/%' ORDER BY key", url);
  const first = await open(t, url);
  await first.commit({ put: [["a", "1"]] });
  const [lane] = await lanes();
  const { now } = Date;
  t.after(() => {
    Date.now = now;
  });
  Date.now = () => now() + 48 * 3_600_000;
  const ahead = await open(t, url);
  await ahead.commit({ put: [["b", "1"]] });
  Date.now = now;
  const found = await lanes();
  assert.ok(found.some(({ key }) => key === lane!.key));
  assert.equal(found.length, 2);
  for (const { value } of found)
    assert.ok(Math.abs(Number(String(value).split(" ")[1]) - now() / 1000) < 3_600, String(value));
  // One that is gone for long goes.
  await db.query(
    "INSERT INTO penstock_meta VALUES ('lane/old', '0 ' || extract(epoch FROM now())::bigint - 90000)",
    url,
  );
  await (await open(t, url)).commit({ put: [["c", "1"]] });
  assert.equal((await lanes()).length, 3);
});

test("store postgres: a database that never finds the lane of a process refuses its commits with a reason, and does not keep them for ever", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, url);
  await store.commit({ put: [["a", "1"]] });
  await db.query(
    `CREATE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
     CREATE TRIGGER lost BEFORE UPDATE ON penstock_meta FOR EACH ROW WHEN (old.key LIKE 'lane/%') EXECUTE FUNCTION lost()`,
    url,
  );
  await assert.rejects(store.commit({ put: [["a", "2"]] }), (error: Error) => {
    assert.match(error.message, /the lane of this process, or the rows of a commit, are changed again and again$/);
    return isUnavailable(error);
  });
  await db.query("DROP TRIGGER lost ON penstock_meta", url);
  await store.commit({ put: [["a", "3"]] });
  assert.equal((await store.get("a"))?.value, "3");
});

test("store postgres: commits are READ COMMITTED on every new connection, whatever the default of the database has become", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, url);
  await store.commit({ put: [["a", "1"]] });
  await db.query(
    `CREATE TABLE seen (level text);
     CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO seen VALUES (current_setting('transaction_isolation')); RETURN NEW; END $$;
     CREATE TRIGGER see AFTER INSERT OR UPDATE ON penstock FOR EACH ROW EXECUTE FUNCTION see();
     DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$;
     SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'penstock'`,
    url,
  );
  for (let tries = 0; tries < 10; tries++) await store.commit({ put: [["a", "2"]] }).catch(() => {});
  await store.commit({ put: [["a", "3"]] });
  assert.deepEqual(await db.query("SELECT DISTINCT level FROM seen", url), [{ level: "read committed" }]);
});

test("store postgres: a server that does not answer: the probe says so and does not wait for it, and then it is back", {
  skip,
}, async (t) => {
  const [store, proxy] = await openBehindProxy(t);
  await store.commit({ put: [["k", "1"]] });
  assert.equal(await store.problem(), null);
  proxy.freeze(true);
  assert.equal(await store.problem(), "the database does not answer");
  proxy.freeze(false);
  assert.equal(await store.problem(), null);
  assert.equal((await store.get("k"))?.value, "1");
});

test("store postgres: a connection cut while idle is replaced, and ends nothing", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, url);
  await store.commit({ put: [["k", "1"]] });
  await store.get("k");
  await cut(url);
  await sleep(50);
  assert.equal((await store.get("k"))?.value, "1");
  await store.commit({ put: [["k", "2"]] });
  assert.equal(await store.problem(), null);
});

test("store postgres: a server that goes away: unavailable, and service again when it is back", {
  skip: skip || restartable,
}, async (t) => {
  for (const mode of ["fast", "immediate"] as const) {
    const store = await open(t);
    await store.commit({ put: [["k", "1"]] });
    await db.stop!(mode);
    try {
      await assert.rejects(store.commit({ put: [["k", "2"]] }), isUnavailable);
      await assert.rejects(store.get("k"), isUnavailable);
      await assert.rejects(store.scan({ prefix: "k", limit: 1 }), isUnavailable);
      assert.equal(await store.problem(), "there is no connection to the database");
    } finally {
      await db.start!();
    }
    assert.equal((await store.get("k"))?.value, "1");
    await store.commit({ put: [["k", "3"]] });
    assert.equal((await store.get("k"))?.value, "3");
    assert.equal(await store.problem(), null);
  }
});

test("store postgres: an outage is one error in the log, and its end one line", {
  skip: skip || restartable,
}, async () => {
  const lines: string[] = [];
  const store = await openPostgresStore(await db.createDatabase(), {
    logger: pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line).msg) }),
  });
  await db.stop!();
  try {
    for (let round = 0; round < 3; round++) await assert.rejects(store.get("k"), isUnavailable);
  } finally {
    await db.start!();
  }
  await store.get("k");
  await store.close();
  assert.equal(lines.length, 2, lines.join("\n"));
  assert.match(lines[0]!, /^PostgreSQL cannot read: there is no connection to the database \(.*(ECONNREFUSED|ENOENT)/);
  assert.equal(lines[1], "PostgreSQL can read again");
});

test("store postgres: a database that turns read-only: 503 for writes, reads go on, and it is over by itself", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, url);
  const name = new URL(url).pathname.slice(1);
  await store.commit({ put: [["k", "1"]] });
  await db.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  await cut(url);
  await sleep(50);
  await assert.rejects(store.commit({ put: [["k", "2"]] }), isUnavailable);
  assert.equal((await store.get("k"))?.value, "1");
  assert.equal(await store.problem(), "the database is read-only");
  await db.query(`ALTER DATABASE ${name} RESET default_transaction_read_only`);
  await cut(url);
  await sleep(50);
  await store.commit({ put: [["k", "2"]] });
  assert.equal(await store.problem(), null);
});

test("store postgres: a disk that is full: 503 and nothing half-written, reads go on, and it is over by itself", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const store = await open(t, url);
  await store.commit({ put: [["a", "1"]], add: [["n", 1]] });
  // The server's own error, at the last row of the transaction.
  await db.query(
    `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       IF NEW.key = 'n' THEN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END IF;
       RETURN NEW;
     END $$;
     CREATE TRIGGER full_disk BEFORE INSERT ON penstock FOR EACH ROW EXECUTE FUNCTION full_disk()`,
    url,
  );
  const commits = [store.commit({ put: [["b", "1"]] }), store.commit({ put: [["a", "2"]], add: [["n", 1]] })];
  for (const result of await Promise.allSettled(commits)) {
    assert.ok(result.status === "rejected" && isUnavailable(result.reason));
    assert.match(result.reason.message, /the disk of the database is full/);
  }
  assert.deepEqual(
    (await store.getMany(["a", "b", "n"])).map((row) => row?.value),
    ["1", undefined, "1"],
  );
  await db.query("DROP TRIGGER full_disk ON penstock", url);
  await store.commit({ put: [["b", "1"]], add: [["n", 1]] });
  assert.deepEqual(
    (await store.getMany(["a", "b", "n"])).map((row) => row?.value),
    ["1", "1", "2"],
  );
  assert.equal(await store.problem(), null);
});

test("store postgres: a database of another version is refused, and stays as it is", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  await (await openPostgresStore(url, { logger })).close();
  const schema = (version: number) =>
    db.query(`UPDATE penstock_meta SET value = '${version}' WHERE key = 'schema'`, url);
  await schema(9);
  await assert.rejects(openPostgresStore(url, { logger }), /newer version \(schema 9; this one knows 2\)/);
  await schema(1);
  await assert.rejects(openPostgresStore(url, { logger }), /before the first release \(schema 1; this one needs 2\)/);
  await schema(2);
  await open(t, url);
});

test("store postgres: stores that open an empty database at once all come up", { skip }, async (t) => {
  const url = await db.createDatabase(t);
  const stores = await Promise.all([open(t, url), open(t, url), open(t, url), open(t, url)]);
  await Promise.all(stores.map((store) => store.commit({ add: [["n", 1]] })));
  assert.equal((await stores[0]!.get("n"))?.value, "4");
});

test("store postgres: a server that is not there: the start fails, and the message tells which and why, without the password", async () => {
  const url = "postgres://nobody:secret@127.0.0.1:1/none?application_name=secret";
  await assert.rejects(openPostgresStore(url, { logger }), {
    message:
      "postgres://127.0.0.1:1/none cannot be opened: storage is unavailable: there is no connection to the database",
  });
  for (const wrong of ["postgres://", "postgres://a:b@:bad/x", "postgres:"]) {
    await assert.rejects(openPostgresStore(wrong, { logger }), /^Error: postgres:.* cannot be opened: /);
  }
});

test("store postgres: close waits for what is under way, and refuses what comes after it", { skip }, async () => {
  const url = await db.createDatabase();
  const store = await openPostgresStore(url, { logger });
  const commits = Array.from({ length: 50 }, (_, index) => store.commit({ put: [[`k/${index}`, "1"]] }));
  await store.close();
  await Promise.all(commits);
  await assert.rejects(store.commit({ put: [["late", "1"]] }), isUnavailable);
  const [{ count } = {}] = await db.query("SELECT count(*)::int AS count FROM penstock", url);
  assert.equal(count, 50);
});
