/** Points in time as clients write them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseInstant } from "../../../core/lib/instant.ts";

const AT = Date.UTC(2026, 10, 20, 9, 30, 5, 250);
const MINUTE = Date.UTC(2026, 10, 20, 9, 30);

const ROWS: [text: string, milliseconds: number][] = [
  ["2026-11-20T09:30:05.250Z", AT],
  ["2026-11-20t09:30:05.250z", AT],
  ["2026-11-20T09:30:05.25Z", AT],
  ["2026-11-20T09:30:05,250Z", AT],
  ["2026-11-20T09:30:05.250999Z", AT],
  ["2026-11-20T10:30:05.250+01:00", AT],
  ["2026-11-20T10:30:05.250 01:00", AT],
  ["2026-11-20T10:30:05.250+0100", AT],
  ["2026-11-20T10:30:05.250+01", AT],
  ["2026-11-20T05:00:05.250-04:30", AT],
  ["2026-11-20T09:30:05.250", AT],
  ["2026-11-20 09:30:05.250Z", AT],
  ["2026-11-20T09:30Z", MINUTE],
  ["2026-11-20T09:30", MINUTE],
  ["2026-11-20", Date.UTC(2026, 10, 20)],
  ["2028-02-29", Date.UTC(2028, 1, 29)],
  ["1969-12-31T23:59:59Z", -1000],
];

for (const [text, milliseconds] of ROWS) {
  test(`${text} is a point in time, in UTC unless it says otherwise`, () =>
    assert.equal(parseInstant("before", text), milliseconds));
}

const WRONG = [
  "",
  "now",
  "2026",
  "2026-11",
  "1732095000000",
  "2026-02-29",
  "2026-02-30T00:00:00Z",
  "2026-13-01",
  "2026-00-10",
  "2026-11-00",
  "2026-11-31",
  "2026-11-20T25:00Z",
  "2026-11-20T09:61Z",
  "2026-11-20T09Z",
  "2026-11-20T09:30:05Zulu",
  "20261120T093005Z",
  " 2026-11-20",
  "2026-11-20T09:30:05+99:99",
];

for (const text of WRONG) {
  test(`${JSON.stringify(text)} is not a point in time: 400 with the name of the field`, () =>
    assert.throws(() => parseInstant("before", text), {
      kind: "invalid_input",
      message: "before must be an ISO 8601 timestamp such as 2026-11-20T09:30:00Z",
    }));
}
