/** Durations as plugins read them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DURATION_PATTERN, parseDuration } from "../../../core/lib/duration.ts";

for (const [text, milliseconds] of [
  ["250ms", 250],
  ["5s", 5000],
  ["2m", 120_000],
  ["24h", 86_400_000],
  ["30d", 2_592_000_000],
  ["1.5s", 1500],
  ["0ms", 0],
] as const) {
  test(`${text} is ${milliseconds} ms`, () => {
    assert.equal(parseDuration(text), milliseconds);
    assert.match(text, new RegExp(DURATION_PATTERN));
  });
}

for (const text of ["5", "s", "5 s", "5sec", "-5s", "", "1e3s"]) {
  test(`${JSON.stringify(text)} is refused`, () => {
    assert.throws(() => parseDuration(text), /is not a duration: write a number and ms, s, m, h or d, like "5s"/);
  });
}
