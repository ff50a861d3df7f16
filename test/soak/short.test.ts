/** Some seconds of `npm run test:soak`, so that it cannot rot. What memory does shows in an hour only. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TRANSPORTS } from "../support/transports.ts";
import { judge } from "./judge.ts";
import { describeMeasure, soak } from "./soak.ts";

const GROWTH = 0.4;

test("some seconds of agents over a faulty upstream, memory, workflows and sockets: nothing is answered wrongly, and every socket is let go", async (t) => {
  const seed = Date.now() % 1_000_000_007;
  t.diagnostic(`seed ${seed}`);
  const settings = { duration: 6_000, rate: 60, seed, transport: TRANSPORTS[0]!, tell: () => {} };
  const report = await soak(t, settings);
  t.diagnostic(describeMeasure(report.end));
  assert.deepEqual(judge(report, GROWTH), []);
  for (const part of ["agents.text", "agents.stream", "memory.page", "workflows.approve", "sockets.echo"]) {
    assert.ok((report.outcomes.get(part)?.get("answered") ?? 0) > 0, `no ${part} was answered`);
  }
});
