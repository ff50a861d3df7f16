/** The size of core/, and how far requests go through it: see README.md of the tests. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { exceeded, lowered, measureTokens, measureWalks, readCeilings } from "./ceilings.ts";

const ADVICE = "what is added is paid for by what becomes simpler in the same room: `npm run size` shows all of them";

test("no room of core has more tokens than its ceiling in ceilings.json allows, nor has core as a whole", () => {
  assert.deepEqual(exceeded(measureTokens(), readCeilings()), [], ADVICE);
});

test("no request goes through more functions, files or rooms of core than its ceiling in ceilings.json allows", {
  skip: !process.version.startsWith("v20.") && "the figures are stated for Node.js 20",
}, async () => {
  const ceilings = readCeilings();
  let walks = await measureWalks();
  // What a busy machine adds to a walk (a timer that is due just then) is not there each time.
  for (let again = 0; again < 3 && exceeded(walks, ceilings).length > 0; again += 1)
    walks = lowered(await measureWalks(), walks);
  assert.deepEqual(exceeded(walks, ceilings), [], ADVICE);
});

test("a size that is 2 % above its ceiling is let through, one that is more or has no ceiling is named", () => {
  const ceilings = { room: 1_000, walk: 10 };
  assert.deepEqual(exceeded({ room: 1_020, walk: 10 }, ceilings), []);
  assert.deepEqual(exceeded({ room: 1_021, walk: 11, other: 5 }, ceilings), [
    "room: 1021, 2.1 % above the ceiling of 1000",
    "walk: 11, 10.0 % above the ceiling of 10",
    "other: 5, and no ceiling",
  ]);
});

test("ceilings fall to what is there and never rise, and a room that is gone has none", () => {
  const sizes = { smaller: 90, larger: 110, added: 7 };
  assert.deepEqual(lowered(sizes, { smaller: 100, larger: 100, gone: 3 }), { smaller: 90, larger: 100, added: 7 });
});
