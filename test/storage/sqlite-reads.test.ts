/** Long reads of SQLite beside short ones: nobody waits for them, and least of all the event loop. */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { MAX_ROWS_SKIPPED_PER_QUERY, pagesInBackground } from "../../core/storage/ranges.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { temporaryFolder } from "../support/storage.ts";

/** The driver that Keyv's adapter uses. */
const sqlite3 = createRequire(import.meta.resolve("@keyv/sqlite"))("sqlite3") as { Database: { prototype: object } };

const ROWS = 100_000;
const key = (n: number) => `k/${String(n).padStart(6, "0")}`;

async function openFilled(t: TestContext): Promise<Store> {
  const file = join(await temporaryFolder(t), "reads.db");
  const store = await openSqliteStore({ file, synchronous: "normal", logger: pino({ level: "silent" }) });
  t.after(() => store.close());
  for (let n = 0; n < ROWS; n += 10_000)
    await store.commit({
      put: Array.from({ length: 10_000 }, (_, index) => [key(n + index), `${n + index}`] as const),
    });
  return store;
}

/** Calls of the driver, by connection: how many are under way, and how many were at most. */
function watchDriver(t: TestContext): Map<object, { running: number; most: number }> {
  type All = (this: object, ...parameters: unknown[]) => unknown;
  const calls = new Map<object, { running: number; most: number }>();
  const database = sqlite3.Database.prototype as { all: All };
  const { all } = database;
  database.all = function (...parameters) {
    const seen = calls.get(this) ?? { running: 0, most: 0 };
    calls.set(this, seen);
    seen.most = Math.max(seen.most, ++seen.running);
    const done = parameters.pop() as (...results: unknown[]) => void;
    return all.call(this, ...parameters, (...results: unknown[]) => {
      seen.running--;
      done(...results);
    });
  };
  t.after(() => {
    database.all = all;
  });
  return calls;
}

test("store sqlite: no statement is given to a connection while another runs there, whose end the event loop would have to wait for", async (t) => {
  const calls = watchDriver(t);
  const store = await openFilled(t);
  // Those that only the start needs are closed by now.
  calls.clear();
  const pages = async () => {
    const { signal } = new AbortController();
    for await (const rows of pagesInBackground(store, { prefix: "k/", before: key(1_000) }, 500, signal))
      assert.equal(rows.length, 500);
  };
  const reads = Array.from({ length: 50 }, (_, n) => [
    store.get(key(n)),
    store.scan({ prefix: "k/", limit: 20, skip: n * 1_000 }),
    store.tail({ prefix: "k/", limit: 100, otherKey: key(n) }),
    store.commit({ put: [[`l/${n}`, "1"]] }),
    n % 10 === 0 ? store.problem() : undefined,
  ]);
  await Promise.all([pages(), ...reads.flat()]);
  assert.deepEqual(
    [...calls.values()].map(({ running, most }) => [running, most]),
    Array.from({ length: calls.size }, () => [0, 1]),
  );
  assert.ok(calls.size <= 5, `${calls.size} connections`);
});

test("store sqlite: get goes on while pages behind many rows are read, and waits for none of these", async (t) => {
  const store = await openFilled(t);
  let reading = true;
  let gets = 0;
  const point = async () => {
    while (reading) {
      assert.equal((await store.get(key(gets)))?.value, `${gets}`);
      gets++;
    }
  };
  const skip = 99_000;
  const deep = Promise.all(
    Array.from({ length: 4 }, (_, n) => store.scan({ prefix: "k/", limit: 2, skip: skip + n })),
  ).finally(() => {
    reading = false;
  });
  const [pages] = await Promise.all([deep, point()]);
  assert.deepEqual(
    pages.map((rows) => rows.map(({ value }) => Number(value))),
    [0, 1, 2, 3].map((n) => [skip + n, skip + n + 1]),
  );
  // One that waited for its turn behind each page would be read once for each of these.
  assert.ok(gets >= 2 * pages.length, `${gets} reads beside ${pages.length} pages`);
});

test("store sqlite: scan finds the same rows behind any number of skipped rows, upwards and downwards, and none behind the last", async (t) => {
  const store = await openFilled(t);
  const slice = MAX_ROWS_SKIPPED_PER_QUERY;
  for (const skip of [slice - 1, slice, slice + 1, 3 * slice, 99_998, 100_000]) {
    const up = await store.scan({ prefix: "k/", limit: 3, skip });
    const down = await store.scan({ prefix: "k/", limit: 3, skip, reverse: true });
    const expected = [skip, skip + 1, skip + 2].filter((n) => n < ROWS);
    assert.deepEqual(
      up.map(({ value }) => Number(value)),
      expected,
    );
    assert.deepEqual(
      down.map(({ value }) => ROWS - 1 - Number(value)),
      expected,
    );
  }
  assert.deepEqual(await store.scan({ prefix: "l/", limit: 3, skip: 50_000 }), []);
});
