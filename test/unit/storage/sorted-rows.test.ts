import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { SortedRows } from "../../../core/storage/memory-store.ts";

const keyOf = (value: number) => `k/${String(value).padStart(6, "0")}`;
const keysOf = (rows: SortedRows, prefix: string, reverse = false) =>
  rows.scan({ prefix, limit: 1e9, reverse }).map(({ key }) => key);

test("rows stay sorted and found through many insertions and deletions, of more than many blocks", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20_000 }),
      fc.constantFrom(1, 7_919, 19_999),
      fc.nat(3),
      (count, step, gone) => {
        const rows = new SortedRows();
        const wanted = new Set<string>();
        for (let index = 0; index < count; index++) {
          const key = keyOf((index * step) % 20_011);
          rows.set({ key, value: "1", revision: index });
          wanted.add(key);
        }
        for (const key of [...wanted]) {
          if (gone === 0 || Number(key.slice(2)) % (gone + 1) === 0) continue;
          rows.delete(key);
          rows.delete(key);
          wanted.delete(key);
        }
        const prefix = `k/00${gone}`;
        for (const key of rows.keys(prefix)) rows.delete(key);
        const sorted = [...wanted].filter((key) => !key.startsWith(prefix)).sort();
        assert.deepEqual(keysOf(rows, "k/"), sorted);
        assert.deepEqual(keysOf(rows, "k/", true), [...sorted].reverse());
        for (const key of wanted) assert.equal(rows.get(key)?.key, key.startsWith(prefix) ? undefined : key);
      },
    ),
    { numRuns: 25 },
  );
});

test("rows can all be deleted and begun anew", () => {
  const rows = new SortedRows();
  for (let round = 0; round < 3; round++) {
    for (let index = 0; index < 2_000; index++) rows.set({ key: keyOf(index), value: "1", revision: round });
    for (const key of rows.keys("k/")) rows.delete(key);
    assert.deepEqual([rows.bytes("k/"), keysOf(rows, "k/"), keysOf(rows, "k/", true)], [0, [], []]);
  }
});

test("a prefix without a slash finds rows of all tables, in the order of their keys", () => {
  const rows = new SortedRows();
  const keys = ["a", "a!", "a!/2", "a/1", "a/1/2", "ab", "ab/1", "b/1"];
  for (const key of [...keys].reverse()) rows.set({ key, value: "1", revision: 1 });
  assert.deepEqual(keysOf(rows, "a"), keys.slice(0, -1));
  assert.deepEqual(keysOf(rows, "a", true), keys.slice(0, -1).reverse());
  const some = rows.scan({ prefix: "a", after: "a!", before: "ab/1", skip: 1, limit: 2 });
  assert.deepEqual(
    some.map(({ key }) => key),
    ["a/1", "a/1/2"],
  );
  for (const key of rows.keys("a")) rows.delete(key);
  assert.deepEqual(keysOf(rows, "b"), ["b/1"]);
  assert.deepEqual(keysOf(rows, "a"), []);
});

test("SortedRows.bytes counts what rows take in the heap: short ones, long ones, and texts of which a single character is wide", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const texts = {
    short: "1",
    long: "x".repeat(2_000),
    wide: `\u2014${"x".repeat(2_000)}`,
    latin: "\u00e9".repeat(2_000),
  };
  for (const [kind, text] of Object.entries(texts)) {
    const rows = new SortedRows();
    const before = used();
    // As bytes first, so that no row shares its text with another one.
    for (let index = 0; index < 10_000; index++) {
      const value = Buffer.from(text).toString();
      rows.set({ key: Buffer.from(keyOf((index * 7_919) % 10_007)).toString(), value, revision: index });
    }
    const taken = (used() - before) / rows.bytes("k/");
    assert.ok(taken > 0.45 && taken < 1.2, `${kind}: the heap has grown by ${taken} of what is counted`);
  }
});
