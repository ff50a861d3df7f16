import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentMap } from "../../../core/lib/recent-map.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openMemories } from "../../support/memories.ts";

test("the last entries are kept, older ones are given up, and it never holds more than two generations", () => {
  const recent = new RecentMap<number>(10);
  for (let index = 0; index < 1_000; index++) {
    recent.set(`key ${index}`, index);
    for (let age = 0; age < Math.min(10, index + 1); age++) assert.equal(recent.get(`key ${index - age}`), index - age);
    assert.equal(recent.get(`key ${index - 20}`), undefined);
  }
});

test("the value that was set last counts, also when an older one is still there", () => {
  const recent = new RecentMap<string>(3);
  recent.set("a", "old");
  for (const key of ["b", "c", "d"]) recent.set(key, key);
  recent.set("a", "new");
  assert.equal(recent.get("a"), "new");
  recent.delete("a");
  assert.equal(recent.get("a"), undefined);
});

test("the conversations that a process knows without the store are bounded in bytes, whatever metadata and ids they have", async () => {
  const store = createMemoryStore();
  let reads = 0;
  const get = (key: string) => {
    if (key.startsWith("c/")) reads++;
    return store.get(key);
  };
  const { access } = await openMemories({ store: { ...store, kind: "sqlite", get } });
  const COUNT = 4_000;
  const metadata = { note: "x".repeat(3_500) };
  for (let count = 0; count < COUNT; count++)
    await access.create({ id: `c${count}`, userId: "ada", resourceId: "desk", metadata });
  reads = 0;
  for (let count = 0; count < COUNT; count++) await access.update(`c${count}`, {});
  const bytes = (COUNT - reads) * 3_500;
  assert.ok(reads > 0 && bytes < 11 * 1024 * 1024, `${COUNT - reads} of ${COUNT} were found without a read`);
});
