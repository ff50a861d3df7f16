/** Contract: moments are ISO 8601. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isoTime } from "../../../core/lib/iso-time.ts";

const EDGES = [
  "1970-01-01",
  "1972-02-29",
  "1999-12-31",
  "2000-02-29",
  "2026-11-20",
  "2100-02-28",
  "2100-03-01",
  "9999-12-31",
];

test("a moment is written as Date writes it: at the edges of days, months, leap years and centuries", () => {
  for (const day of EDGES) {
    for (const time of ["00:00:00.000", "09:05:07.008", "23:59:59.999"]) {
      const text = `${day}T${time}Z`;
      assert.equal(isoTime(Date.parse(text)), text);
    }
  }
});

test("a moment is written as Date writes it: any of the next 8000 years", () => {
  // Steps of no round number, so that every field takes all its values.
  for (let at = 0; at < 253_402_300_799_999; at += 5_067_123_456_7) {
    assert.equal(isoTime(at), new Date(at).toISOString());
  }
  for (let at = Date.UTC(2026, 0, 1); at < Date.UTC(2029, 0, 1); at += 31_557_601) {
    assert.equal(isoTime(at), new Date(at).toISOString());
  }
});
