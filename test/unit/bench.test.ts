/** The ratchet of the bench: what fails, and that each row has a reference. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { judge, RATCHET_ROWS, readReferences, told } from "../../bench/ratchet.ts";

const reference = [100, 101, 99];
const again = [100.5, 100, 100];

test("the ratchet fails a row that costs 6 % more CPU than its reference, and names the row, the figures, the commit and its reason", () => {
  const judged = judge({ reference, again, now: [106, 106.5, 107] });
  assert.equal(judged.verdict, "slower");
  assert.equal(
    told("text", judged, { commit: "77466b8", reason: "before the features" }),
    "text: slower: 106.5 us of CPU a request, 100.3 at 77466b8: 6.0 % more, and 77466b8 differs from itself by 0.6 %. Its reference: before the features",
  );
});

test("the ratchet lets a row through that costs 4 % more CPU than its reference, or less", () => {
  assert.equal(judge({ reference, again, now: [104, 104.5, 103] }).verdict, "passed");
  assert.equal(judge({ reference, again, now: [90, 91, 92] }).verdict, "passed");
});

test("the ratchet decides nothing where the reference differs from itself by more than 5 %, however fast the row is", () => {
  const noisy = { reference: [100, 120, 90], again: [110, 95, 115] };
  for (const share of [0.5, 1, 2]) {
    const judged = judge({ ...noisy, now: [100 * share, 100 * share, 100 * share] });
    assert.equal(judged.verdict, "undecided");
    assert.match(told("text", judged, { commit: "77466b8", reason: "" }), /^text: undecided: too noisy;/);
  }
});

test("the ratchet does not decide about a row that chance may have put on either side of 5 %", () => {
  const judged = judge({ reference: [100, 100, 100], again: [102, 102, 102], now: [106, 106, 106] });
  assert.equal(judged.verdict, "undecided");
  assert.match(told("text", judged, { commit: "77466b8", reason: "" }), /^text: undecided: too near to 5.0 %;/);
});

test("every row of the ratchet has a line in bench/reference.json with a commit and a reason, and no other has", () => {
  const references = readReferences();
  assert.deepEqual([...references.keys()].sort(), RATCHET_ROWS.map(({ name }) => name).sort());
  for (const [row, { commit, reason }] of references) {
    assert.match(commit, /^[0-9a-f]{7,40}$/, row);
    assert.ok(reason.length > 10, row);
  }
});
