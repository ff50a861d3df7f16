import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeCommits } from "../../../core/storage/group.ts";
import type { Commit } from "../../../core/storage/store.ts";

const BASE = 100;
const fold = (...group: Commit[]) => mergeCommits(group, new Map(), BASE);
const counter = { add: [["n", 1]] } satisfies Commit;
const put = { put: [["a", "1"]] } satisfies Commit;

test("commits that have no row in common share a revision", () => {
  const { results, changes } = fold(put, { put: [["b", "2"]], delete: ["d"] }, { put: [["c", "3"]] });
  assert.deepEqual(results, [BASE, BASE, BASE]);
  assert.deepEqual(
    changes.rows.map(({ key, kind, revision }) => [key, kind, revision]),
    [
      ["a", "put", BASE],
      ["b", "put", BASE],
      ["c", "put", BASE],
      ["d", "delete", BASE],
    ],
  );
});

test("a counter that all add to does not keep them from it", () => {
  const { results, changes } = fold({ ...put, ...counter }, counter, { put: [["b", "2"]], ...counter });
  assert.deepEqual(results, [BASE, BASE, BASE]);
  assert.deepEqual(changes.rows.at(-1), { key: "n", kind: "add", value: "3", revision: BASE });
});

test("whoever wrote a row does not have its revision when a later commit wrote it again", () => {
  const again: Commit[] = [put, { add: [["a", 1]] }];
  for (const later of again) assert.deepEqual(fold(put, later).results, [BASE, BASE + 1]);
  for (const gone of [{ delete: ["a"] }, { clear: ["a"] }]) {
    for (const later of again) {
      const { results, changes } = fold(put, gone, later);
      assert.equal(results[0], BASE);
      assert.equal(results[2], changes.rows[0]?.revision);
      assert.ok((results[2] as number) > BASE && (results[2] as number) < BASE + 3);
    }
  }
});

test("a group commit leaves out commits whose condition fails", () => {
  const loser: Commit = { put: [["a", "2"]], expect: [["x", 7]] };
  const { results } = fold(put, loser, { put: [["b", "1"]] });
  assert.equal((results[1] as Error).name, "CommitConflict");
  assert.deepEqual([results[0], results[2]], [BASE, BASE]);
});
