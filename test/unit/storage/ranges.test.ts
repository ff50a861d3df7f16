/** Walks through ranges in the background, and to the first row of each group. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { groupsBelow, pagesInBackground } from "../../../core/storage/ranges.ts";

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

test("groups below a prefix: each once, and one row of it is read", async () => {
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
  for await (const group of groupsBelow(counted, "g/")) found.push(group);
  assert.deepEqual(found, ["g/a/", "g/b/", "g/c/"]);
  assert.equal(scans, 4);
});
