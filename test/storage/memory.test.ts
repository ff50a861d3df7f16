/** The engine that keeps everything in the process. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { randomOf } from "../fuzz/random.ts";
import { storeSuite } from "../suites/store.suite.ts";

storeSuite("memory:", { open: async () => createMemoryStore(), runs: 500 });

test("store memory: held counts the bytes of the rows that are there, by the beginning of their keys, whatever was written before", async () => {
  const [store, random] = [createMemoryStore(), randomOf(7)];
  for (let round = 0; round < 500; round++) {
    const key = `${random.pick(["a", "b"])}/${random.below(40)}`;
    const value = JSON.stringify(random.pick(["x", "ä", "漢"]).repeat(random.below(300)));
    if (random.chance(0.1)) await store.commit({ clear: [`a/${random.below(4)}`] });
    await store.commit(random.chance(0.3) ? { delete: [key] } : { put: [[key, value]], add: [["n/1", 1]] });
  }
  for (const space of ["a/", "b/", "n/"]) {
    const rows = await store.scan({ prefix: space, limit: 100 });
    // In the heap a text takes two bytes for each character unless all are narrow.
    const width = (text: string) => (/^[\0-\x7f]*$/.test(text) ? 1 : 2);
    const texts = rows.reduce((sum, { key, value }) => sum + key.length + width(value) * value.length, 0);
    assert.ok(rows.length > 0);
    assert.equal(store.held!(space) - texts, 200 * rows.length);
  }
  await store.commit({ clear: ["a/"] });
  assert.equal(store.held!("a/"), 0);
});
