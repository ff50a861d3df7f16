/** Which traces match a query. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type FilteredTrace, matches } from "../../../core/traces/traces.ts";

test("matches: from and to of a query are compared with the times that clients are shown, which are rounded to microseconds", () => {
  const isBetween = (start: number, times: { from?: number; to?: number }) => {
    const trace: FilteredTrace = { status: "completed", userId: null, start, entities: () => [] };
    return matches({ ...times, owner: undefined }, trace);
  };
  for (const [start, first] of [
    [1_000.25, 1_000],
    [1_000.9994, 1_000],
    [1_000.9997, 1_001],
  ] as const) {
    assert.ok(isBetween(start, { from: first, to: first }), String(start));
    assert.ok(!isBetween(start, { to: first - 1 }), `${start} to the one before`);
    assert.ok(!isBetween(start, { from: first + 1 }), `${start} from the one after`);
  }
});
