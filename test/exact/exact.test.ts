/** What operations cost, exactly: see README.md of the tests. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { differences, measure, NODE, ROWS, readKept, unexplained } from "./exact.ts";

const ADVICE = "`npm run exact -- --update ROW` keeps what is better, and with `--because REASON` what is worse";
const kept = readKept();
const server = await sharedPostgres();
after(() => server?.close());

/** All rows are measured in one process, since starting it takes as long as several of them. */
const measuring =
  NODE === kept.node ? measure(ROWS, server && (() => server.createDatabase())) : Promise.resolve(new Map());
measuring.catch(() => undefined);

/** Counts depend on the transport and the engine, which other versions of Node.js bring. */
const elsewhere = NODE !== kept.node && `the figures are stated for Node.js ${kept.node}`;

async function different(isWanted: (row: (typeof ROWS)[number]) => boolean): Promise<string[]> {
  const measured = await measuring;
  return ROWS.filter(isWanted).flatMap(
    ({ name }) => differences(name, measured.get(name)!, kept.figures[name], kept.node).all,
  );
}

test("rows, bytes, commits and statements of operations on SQLite are those that are kept, and what they allocate within 3 %", {
  skip: elsewhere,
}, async () => {
  assert.ok(ROWS.filter(({ store }) => store !== "postgres").length >= 20);
  assert.deepEqual(await different(({ store }) => store !== "postgres"), [], ADVICE);
});

test("bytes, statements and round trips of operations on PostgreSQL are those that are kept", {
  skip: elsewhere || (server === null && NO_POSTGRES),
}, async () => {
  assert.deepEqual(await different(({ store }) => store === "postgres"), [], ADVICE);
});

test(`what operations allocate is compared on Node.js ${kept.node}`, {
  skip: elsewhere,
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
});

test("figures.json holds no row that costs more than it has cost without a reason, and a worse figure that is written into it is found", () => {
  assert.deepEqual(unexplained(kept), []);
  const { save, ...others } = kept.figures;
  const worse = { ...save, statements: save!.statements! + 1 };
  const edited = { ...kept, figures: { ...others, save: worse }, reasons: { ...kept.reasons, save: "" } };
  assert.deepEqual(unexplained(edited), [`save: statements ${worse.statements}, not ${kept.least.save!.statements}`]);
});
