/** Some seconds of `npm run test:chaos`, so that it cannot rot. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NO_POSTGRES, startPostgres } from "../support/postgres.ts";
import { chaos, hadTrouble } from "./chaos.ts";

const database = await startPostgres();
after(() => database?.close());
const skip = database === null ? NO_POSTGRES : database.stop === null ? "the server is not ours to stop" : false;

test("some seconds of four processes on one PostgreSQL that are killed and stopped while it is restarted: nothing that was acknowledged is lost, nothing runs twice at once, no reader misses an event", {
  skip,
}, async (t) => {
  const seed = Date.now() % 1_000_000_007;
  t.diagnostic(`seed ${seed}`);
  const { problems, knowledge, deeds, runs } = await chaos(database!, {
    duration: 15_000,
    seed,
    tell: (line) => t.diagnostic(line),
  });
  assert.deepEqual(problems, [], `seed ${seed}`);
  const answered = [...knowledge.outcomes].filter(([name]) => name.endsWith(": answered"));
  t.diagnostic(`${runs} runs of steps; ${answered.map(([name, count]) => `${name} ${count}`).join(", ")}`);
  for (const visit of ["execute", "approve", "follow", "stream", "save", "talk"])
    assert.ok(knowledge.outcomes.has(`${visit}: answered`), `no ${visit} was answered`);
  assert.ok(hadTrouble(deeds), "there was no trouble");
});
