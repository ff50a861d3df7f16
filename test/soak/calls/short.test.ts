/** Some hundred calls of `npm run test:calls`, so that it cannot rot. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TRANSPORTS } from "../../support/transports.ts";
import { callOften } from "./calls.ts";
import { judgeCalls } from "./judge.ts";

const CALLS = 400;

test("400 calls of agents over a model with resets, stalls, cuts, 429, 500 and garbage: each is answered rightly or refused, and every socket is let go", async (t) => {
  const seed = Date.now() % 1_000_000_007;
  t.diagnostic(`seed ${seed}`);
  const report = await callOften(t, { calls: CALLS, seed, transport: TRANSPORTS[0]!, tell: () => {} });
  assert.deepEqual(judgeCalls(report, CALLS), []);
  for (const name of ["text", "stream", "chat", "object", "streamed object"]) {
    assert.ok((report.outcomes.get(name)?.get("answered") ?? 0) > 0, `no ${name} was answered`);
  }
  const faults = Object.entries(report.gave).filter(([what]) => what !== "answers");
  assert.ok(faults.length > 0, "the model made no faults");
});
