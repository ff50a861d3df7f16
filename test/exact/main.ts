/**
 * `npm run exact -- [ROW ...]`: what operations cost, beside the figures that are kept. With `--update` these become the kept ones. What
 * costs more needs `--because REASON`, which says what users have of it and is kept with the row.
 */
import { parseArgs } from "node:util";
import { sharedPostgres } from "../support/postgres.ts";
import { differences, measure, NODE, ROWS, readKept, writeKept } from "./exact.ts";

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
const worse = found.filter((row) => row.worse.length > 0);
if (!values.update) process.exitCode = found.some(({ all }) => all.length > 0) ? 1 : 0;
else if (worse.length > 0 && !values.because) {
  console.error("These cost more: say what users have of it with --because");
  process.exitCode = 1;
} else {
  // A row whose figures are as before keeps them to the byte, so that an update touches no other lines.
  const changed = found.filter(({ all }) => all.length > 0).map(({ name }) => name);
  const figures = { ...kept.figures, ...Object.fromEntries([...measured].filter(([name]) => changed.includes(name))) };
  const reasons = { ...kept.reasons };
  for (const { name } of worse) reasons[name] = values.because!;
  const order = ROWS.map(({ name }) => name);
  const listed = <T>(entries: Record<string, T>) =>
    Object.fromEntries(order.filter((name) => name in entries).map((name) => [name, entries[name]!]));
  if (Object.keys(kept.figures).length > 0 && kept.node !== NODE)
    throw new Error(`the figures are those of Node.js ${kept.node}, and this is ${NODE}`);
  writeKept({ node: NODE, figures: listed(figures), reasons: listed(reasons) });
}
