import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentMap } from "../../../core/lib/recent-map.ts";

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
