/** Several stores on one PostgreSQL that write at the same time: what they do comes to what they do one after the other. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { CommitConflict } from "../../core/lib/errors.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { silent } from "../support/providers.ts";
import { manifestWith, startService } from "../support/service.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

async function openSeveral(t: TestContext, url: string, count: number): Promise<Store[]> {
  const stores = await Promise.all(Array.from({ length: count }, () => openPostgresStore(url, { logger: silent })));
  t.after(() => Promise.all(stores.map((store) => store.close())));
  return stores;
}

/** Whether it happened. Everything but a lost expectation is an error. */
async function happened(store: Store, commit: Commit): Promise<boolean> {
  try {
    await store.commit(commit);
    return true;
  } catch (error) {
    assert.ok(error instanceof CommitConflict, String(error));
    return false;
  }
}

/** What the server counted on a database, once all sessions of Penstock have ended, which tell it then. */
async function countedBy(url: string): Promise<{ rolledBack: number; deadlocks: number }> {
  const sessions =
    "SELECT 1 FROM pg_stat_activity WHERE application_name = 'penstock' AND datname = current_database()";
  while ((await db.query(sessions, url)).length > 0) await sleep(10);
  const counters = `SELECT xact_rollback::int AS "rolledBack", deadlocks::int AS deadlocks FROM pg_stat_database
    WHERE datname = current_database()`;
  return (await db.query(counters, url))[0] as { rolledBack: number; deadlocks: number };
}

const random = (below: number) => Math.floor(Math.random() * below);

for (const { name, createDatabase } of COMMIT_MODES) {
  test(`store postgres: commits ${name} that expect each other's rows absent: one of them happens, whatever else they write`, {
    skip,
  }, async (t) => {
    const { url } = await createDatabase(db);
    const [one, two] = (await openSeveral(t, url, 2)) as [Store, Store];
    for (let round = 0; round < 40; round++) {
      const [a, b] = [`skew/${round}/a`, `skew/${round}/b`];
      const done = await Promise.all([
        happened(one, { put: [[a, "1"]], expect: [[b, null]], add: [["n", 1]] }),
        happened(two, { put: [[b, "1"]], expect: [[a, null]], add: [["n", 1]] }),
      ]);
      assert.equal(done.filter(Boolean).length, 1, `round ${round}`);
      const rows = await one.scan({ prefix: `skew/${round}/`, limit: 10 });
      assert.deepEqual(
        rows.map(({ key }) => key),
        [done[0] ? a : b],
      );
    }
    assert.equal((await one.get("n"))?.value, "40");
  });

  test(`store postgres: commits ${name} that expect the revision of each other's rows: one of them happens`, {
    skip,
  }, async (t) => {
    const { url } = await createDatabase(db);
    const [one, two] = (await openSeveral(t, url, 2)) as [Store, Store];
    for (let round = 0; round < 40; round++) {
      const [a, b] = [`skew/${round}/a`, `skew/${round}/b`];
      const revision = await one.commit({ put: [a, b].map((key) => [key, "0"] as const) });
      const done = await Promise.all([
        happened(one, { delete: [a], expect: [[b, revision]] }),
        happened(two, { put: [[b, "1"]], expect: [[a, revision]] }),
      ]);
      assert.equal(done.filter(Boolean).length, 1, `round ${round}`);
    }
  });

  test(`store postgres: commits ${name} that each clear the range into which the other puts a row: the last one's row is left`, {
    skip,
  }, async (t) => {
    const { url } = await createDatabase(db);
    const [one, two] = (await openSeveral(t, url, 2)) as [Store, Store];
    for (let round = 0; round < 40; round++) {
      await one.commit({ put: ["p/old", "q/old"].map((key) => [key, "1"] as const) });
      await Promise.all([
        one.commit({ clear: ["p/"], put: [["q/new", "1"]] }),
        two.commit({ clear: ["q/"], put: [["p/new", "1"]] }),
      ]);
      const rows = [await one.scan({ prefix: "p/", limit: 9 }), await one.scan({ prefix: "q/", limit: 9 })].flat();
      assert.equal(rows.length, 1, rows.map(({ key }) => key).join());
      await one.commit({ clear: ["p/", "q/"] });
    }
  });

  test(`store postgres: commits ${name} to the same rows in any order, of four stores: no deadlock, nobody is refused, nothing is lost`, {
    skip,
  }, async (t) => {
    const { url, ownerUrl } = await createDatabase(db);
    const stores = await openSeveral(t, url, 4);
    const keys = Array.from({ length: 6 }, (_, index) => `row/${index}`);
    const some = () => keys.filter(() => random(2) === 0).sort(() => random(3) - 1);
    let counted = 0;
    let conflicts = 0;
    const writer = async (store: Store) => {
      for (let round = 0; round < 60; round++) {
        const expected = some();
        const rows = await store.getMany(expected);
        const gone = some();
        const commit: Commit = {
          put: some()
            .filter((key) => !gone.includes(key))
            .map((key) => [key, String(round)]),
          delete: gone,
          add: [
            ["n/z", 1],
            ["a", 1],
          ],
          expect: expected.map((key, index) => [key, rows[index]?.revision ?? null]),
          ...(random(8) === 0 && { clear: ["row/"] }),
        };
        if (await happened(store, commit)) counted++;
        else conflicts++;
      }
    };
    await Promise.all(stores.flatMap((store) => [writer(store), writer(store)]));
    const [first, last] = await stores[0]!.getMany(["a", "n/z"]);
    assert.deepEqual([first?.value, last?.value], [String(counted), String(counted)]);
    assert.ok(conflicts > 0 && counted > 0, `${conflicts} conflicts of ${counted}`);
    assert.deepEqual(
      (await db.query("SELECT key FROM penstock WHERE revision <= 0", ownerUrl)).map(({ key }) => key),
      [],
      "rows that were only there to be locked",
    );
    await Promise.all(stores.map((store) => store.close()));
    assert.equal((await countedBy(ownerUrl)).deadlocks, 0);
  });

  test(`store postgres: commits ${name} that wait for a row while what they expect is changed: refused, and nothing of them is written`, {
    skip,
  }, async (t) => {
    const { url, ownerUrl } = await createDatabase(db);
    const [one, two] = (await openSeveral(t, url, 2)) as [Store, Store];
    const holder = new pg.Pool({ connectionString: ownerUrl, max: 1 });
    t.after(() => holder.end());
    const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    const revision = await one.commit({ put: ["a", "z"].map((key) => [key, "0"] as const) });
    const cases: Record<string, [Commit, Commit]> = {
      put: [{ put: [["z", "1"]], expect: [["z", revision]] }, { put: [["z", "2"]] }],
      absent: [{ put: [["y", "1"]], expect: [["y", null]] }, { put: [["y", "2"]] }],
      onlyAbsent: [{ expect: [["x", null]] }, { put: [["x", "2"]] }],
      kept: [{ expect: [["w", await one.commit({ put: [["w", "0"]] })]] }, { put: [["w", "2"]] }],
      gone: [{ put: [["v", "1"]], expect: [["v", await one.commit({ put: [["v", "0"]] })]] }, { delete: ["v"] }],
      deleted: [{ delete: ["u"], expect: [["u", await one.commit({ put: [["u", "0"]] })]] }, { put: [["u", "2"]] }],
    };
    for (const [what, [commit, change]] of Object.entries(cases)) {
      const session = await holder.connect();
      await session.query("BEGIN; UPDATE penstock SET value = value WHERE key = 'a'");
      const done = happened(one, { ...commit, put: [["a", what], ...(commit.put ?? [])] });
      while ((await db.query(waiting, ownerUrl)).length === 0) await sleep(2);
      await two.commit(change);
      const before = await two.getMany(["a", "u", "v", "w", "x", "y", "z"]);
      await session.query("ROLLBACK");
      session.release();
      assert.equal(await done, false, what);
      assert.deepEqual(await two.getMany(["a", "u", "v", "w", "x", "y", "z"]), before, what);
    }
  });

  test(`store postgres: a group of commits ${name} of which two expect what another store has changed: those two are refused, by their keys`, {
    skip,
  }, async (t) => {
    const { url } = await createDatabase(db);
    const [one, two] = (await openSeveral(t, url, 2)) as [Store, Store];
    const revision = await one.commit({ put: ["g/a", "g/b", "g/c"].map((key) => [key, "0"] as const) });
    const changed = await two.commit({ put: [["g/a", "1"]], delete: ["g/b"] });
    const results = await Promise.allSettled([
      one.commit({ put: [["g/1", "1"]] }),
      one.commit({
        put: [["g/2", "1"]],
        expect: [
          ["g/a", revision],
          ["g/b", revision],
          ["g/c", revision],
        ],
      }),
      one.commit({ put: [["g/3", "1"]], expect: [["g/c", revision]] }),
      one.commit({ put: [["g/a", "2"]], expect: [["g/a", changed]] }),
      one.commit({ put: [["g/4", "1"]], expect: [["g/b", revision]] }),
      one.commit({ put: [["g/b", "2"]], expect: [["g/b", null]] }),
    ]);
    assert.deepEqual(
      results.map((result) => (result.status === "rejected" ? result.reason.keys : "done")),
      ["done", ["g/a", "g/b"], "done", "done", ["g/b"], "done"],
    );
    assert.deepEqual(
      (await two.scan({ prefix: "g/", limit: 9 })).map(({ key, value }) => [key, value]),
      [
        ["g/1", "1"],
        ["g/3", "1"],
        ["g/a", "2"],
        ["g/b", "2"],
        ["g/c", "0"],
      ],
    );
  });
}

test("POST conversations and messages to two services on one PostgreSQL: all succeed, and no transaction is rolled back", {
  skip,
}, async (t) => {
  const url = await db.createDatabase();
  const manifest = manifestWith({ memory: "default" }, { store: url, memory: { default: {} } });
  const services = [await startService(t, manifest), await startService(t, manifest)];
  const post = async (service: (typeof services)[number], path: string, body: object) => {
    const reply = await service.post(path, body);
    const text = await reply.text();
    assert.ok(reply.ok, `${path}: ${reply.status} ${text}`);
  };
  const client = async (service: (typeof services)[number], name: string) => {
    for (let round = 0; round < 6; round++) {
      const conversationId = `${name}-${round}`;
      // One resource: all of them count in one row.
      await post(service, "/api/memory/conversations", { conversationId, userId: name, resourceId: "desk" });
      for (let count = 0; count < 4; count++) {
        const messages = [{ role: "user", content: "hello" }];
        await post(service, "/api/memory/save-messages", { conversationId, userId: name, messages });
      }
    }
  };
  await Promise.all(
    services.flatMap((service, index) => Array.from({ length: 8 }, (_, n) => client(service, `user-${index}-${n}`))),
  );
  await Promise.all(services.map((service) => service.kill()));
  assert.deepEqual(await countedBy(url), { rolledBack: 0, deadlocks: 0 });
});
