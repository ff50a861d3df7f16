/** Which leases have run out, and walks through ranges in the background. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Leases, type LeaseTimeout, NO_TIMEOUT } from "../../../core/storage/leases.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { firstRows, pagesInBackground } from "../../../core/storage/ranges.ts";

async function leasesOf(times: Record<string, number>) {
  const store = createMemoryStore();
  const write = (name: string, time: number) => store.commit({ put: [[`lease/${name}`, String(time)]] });
  for (const [name, time] of Object.entries(times)) await write(name, time);
  const leases = new Leases(store, { prefix: "lease/", readTime: Number });
  const expired = async (timeout: LeaseTimeout) => {
    const keys: string[] = [];
    for await (const { key } of leases.expired(timeout)) keys.push(key.slice("lease/".length));
    return keys;
  };
  return { store, write, leases, expired };
}

test("leases: without a timeout all have run out, whatever their time", async () => {
  const { expired } = await leasesOf({ old: 0, future: Date.now() + 3_600_000 });
  assert.deepEqual(await expired(NO_TIMEOUT), ["future", "old"]);
});

test("leases: one whose heartbeat is old by the writer's clock has run out", async () => {
  const now = Date.now();
  const { expired } = await leasesOf({ old: now - 120_000, young: now });
  assert.deepEqual(await expired({ sinceHeartbeat: 60_000, unchanged: 0 }), ["old"]);
});

test("leases: one is held until it has not changed for as long as that takes by our own clock, however old its time is", async () => {
  const { expired, write, leases, store } = await leasesOf({ dead: 1, alive: 1, left: 1 });
  const timeout = { sinceHeartbeat: 1_000, unchanged: 30 };
  assert.deepEqual(await expired(timeout), [], "they have just been seen for the first time");
  await write("alive", 2);
  await store.commit({ delete: ["lease/left"] });
  await sleep(50);
  assert.deepEqual(await expired(timeout), ["dead"]);
  assert.deepEqual(await expired(timeout), ["dead"], "and again until somebody removes it");
  assert.deepEqual([...leases.keys], ["lease/alive", "lease/dead"]);
});

test("pages in the background: a page may be removed while it is read, and after an abort there is none", async () => {
  const store = createMemoryStore();
  const keys = Array.from({ length: 25 }, (_, index) => `p/${String.fromCharCode(97 + index)}`);
  await store.commit({ put: keys.map((key): [string, string] => [key, "1"]) });
  const stop = new AbortController();
  const sizes: number[] = [];
  for await (const rows of pagesInBackground(store, { prefix: "p/", before: "p/x" }, 10, stop.signal)) {
    await store.commit({ delete: rows.map(({ key }) => key) });
    sizes.push(rows.length);
    if (sizes.length === 2) stop.abort();
  }
  assert.deepEqual(sizes, [10, 10]);
  assert.equal((await store.scan({ prefix: "p/", limit: 100 })).length, 5);
});

test("first rows: one of each group, and the others are not read", async () => {
  const store = createMemoryStore();
  await store.commit({ put: ["g/a/1", "g/a/2", "g/b/1", "g/c/1", "g/c/2"].map((key): [string, string] => [key, "1"]) });
  let scans = 0;
  const counted = {
    ...store,
    scan: (range: Parameters<typeof store.scan>[0]) => {
      scans++;
      return store.scan(range);
    },
  };
  const found: string[] = [];
  for await (const { key } of firstRows(counted, "g/", (row) => `${row.key.slice(0, 3)}/~`)) found.push(key);
  assert.deepEqual(found, ["g/a/1", "g/b/1", "g/c/1"]);
  assert.equal(scans, 4);
});
