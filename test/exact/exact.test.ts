/** What operations cost, exactly: see README.md of the tests. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { differences, measure, NODE, ROWS, readKept } from "./exact.ts";

const ADVICE = "`npm run exact -- --update ROW` keeps what is better, and with `--because REASON` what is worse";
const kept = readKept();
const different = (measured: Awaited<ReturnType<typeof measure>>) =>
  [...measured].flatMap(([name, figures]) => differences(name, figures, kept.figures[name], kept.node).all);

test("rows, bytes, commits and statements of operations on SQLite are those that are kept, and what they allocate within 3 %", async () => {
  const rows = ROWS.filter(({ store }) => store !== "postgres");
  assert.ok(rows.length >= 20);
  assert.deepEqual(different(await measure(rows, null)), [], ADVICE);
});

const server = await sharedPostgres();

test("bytes, statements and round trips of operations on PostgreSQL are those that are kept", {
  skip: server === null && NO_POSTGRES,
}, async (t) => {
  t.after(() => server!.close());
  const rows = ROWS.filter(({ store }) => store === "postgres");
  assert.deepEqual(different(await measure(rows, () => server!.createDatabase())), [], ADVICE);
});

test(`what operations allocate is compared on Node.js ${kept.node}`, {
  skip: NODE !== kept.node && `the figures are stated for Node.js ${kept.node}, and this is ${NODE}`,
}, () => {
  const figures = kept.figures.text!;
  const more = { allocated: Math.round(figures.allocated! * 1.04) };
  assert.equal(differences("text", more, figures, kept.node).worse.length, 1);
  assert.deepEqual(
    differences("text", { allocated: Math.round(figures.allocated! * 0.98) }, figures, kept.node).all,
    [],
  );
});

test("one statement more is a difference, and a row that is gone from the table has no figures", () => {
  const before = { rows: 2, statements: 2.25 };
  assert.deepEqual(differences("save", { rows: 2, statements: 3.25 }, before, NODE), {
    all: ["save: statements 3.25, not 2.25"],
    worse: ["save: statements 3.25, not 2.25"],
  });
  assert.deepEqual(
    Object.keys(kept.figures).filter((name) => !ROWS.some((row) => row.name === name)),
    [],
  );
  assert.ok(Object.values(kept.reasons).every((reason) => reason.length > 20));
});
