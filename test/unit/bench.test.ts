/** The ratchet of the bench: what fails, and that each row has a reference. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { judge, RATCHET_ROWS, readReferences } from "../../bench/ratchet.ts";

test("the ratchet fails a row that costs 6 % more CPU than its reference, and lets 4 % through", () => {
  const reference = [100, 101, 99];
  const again = [100.5, 100, 101];
  assert.equal(judge({ reference, again, now: [106, 106.5, 107] }).failed, true);
  assert.equal(judge({ reference, again, now: [104, 104.5, 103] }).failed, false);
  assert.equal(judge({ reference, again, now: [90, 91, 92] }).failed, false);
});

test("the ratchet lets through what is no worse than the difference of the reference to itself and 5 %", () => {
  const reference = [100, 100, 100];
  const again = [110, 110, 110];
  assert.equal(judge({ reference, again, now: [118, 118, 118] }).failed, false);
  assert.equal(judge({ reference, again, now: [122, 122, 122] }).failed, true);
});

test("every row of the ratchet has a line in bench/reference.json with a commit and a reason, and no other has", () => {
  const references = readReferences();
  assert.deepEqual([...references.keys()].sort(), RATCHET_ROWS.map(({ name }) => name).sort());
  for (const [row, { commit, reason }] of references) {
    assert.match(commit, /^[0-9a-f]{7,40}$/, row);
    assert.ok(reason.length > 10, row);
  }
});
