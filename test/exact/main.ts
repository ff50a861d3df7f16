/**
 * `npm run exact -- [ROW ...]`: what operations cost, beside the figures that are kept. With `--update` these become the kept ones. What
 * costs more needs `--because REASON`, which says what users have of it and is kept with the row.
 */
import { parseArgs } from "node:util";
import { sharedPostgres } from "../support/postgres.ts";
import { differences, lesser, measure, NODE, ROWS, readKept, unexplained, writeKept } from "./exact.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { update: { type: "boolean", default: false }, because: { type: "string" } },
});
const kept = readKept();
const rows = ROWS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const server = rows.some(({ store }) => store === "postgres") ? await sharedPostgres() : null;
const measured = await measure(rows, server && (() => server.createDatabase()), (name, figures) =>
  console.log(name.padEnd(26), JSON.stringify(figures)),
);
await server?.close();
const found = [...measured].map(([name, figures]) => ({
  name,
  ...differences(name, figures, kept.figures[name], kept.node),
}));
for (const line of found.flatMap(({ all }) => all)) console.log(line);
if (!values.update) process.exitCode = found.some(({ all }) => all.length > 0) ? 1 : 0;
else if (kept.node !== NODE) throw new Error(`the figures are those of Node.js ${kept.node}, and this is ${NODE}`);
else {
  // A row whose figures are as before keeps them to the byte, so that an update touches no other lines.
  for (const { name } of found.filter(({ all }) => all.length > 0)) {
    const now = measured.get(name)!;
    kept.figures[name] = now;
    kept.least[name] = lesser(now, kept.least[name]);
    if (differences(name, now, kept.least[name], NODE).worse.length === 0) delete kept.reasons[name];
    else if (values.because) kept.reasons[name] = values.because;
  }
  const wrong = unexplained(kept);
  if (wrong.length === 0) writeKept(kept);
  else {
    for (const line of wrong) console.error(line);
    console.error("These cost more: say what users have of it with --because");
    process.exitCode = 1;
  }
}
