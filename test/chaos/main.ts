/**
 * `npm run test:chaos -- SECONDS`: four processes on one PostgreSQL under mixed load, while processes are killed and stopped and the
 * database is restarted and frozen. `PENSTOCK_CHAOS_SEED` repeats the choices of a run; the moments at which signals arrive nobody can
 * repeat. Exits with 1 when something is wrong.
 */
import { startPostgres } from "../support/postgres.ts";
import { type ChaosReport, chaos } from "./chaos.ts";

const duration = Number(process.argv[2] ?? 120) * 1_000;
const seed = Number(process.env.PENSTOCK_CHAOS_SEED ?? Date.now() % 1_000_000_007);

function print({ knowledge, deeds, runs }: ChaosReport): void {
  for (const [name, count] of [...knowledge.outcomes].toSorted()) console.log(`${String(count).padStart(6)} ${name}`);
  const { kills, freezes, outages } = deeds;
  console.log(
    `${kills.size} kills, ${freezes.length} frozen processes, ${outages.length} outages, ${runs} runs of steps`,
  );
}

const database = await startPostgres();
if (database?.stop == null) throw new Error("a PostgreSQL of our own is needed, to restart it");
console.log(`${duration / 1_000} seconds, seed ${seed}`);
// The processes are groups of their own: no signal of a terminal reaches them.
const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
let problems: readonly string[] = ["it did not end"];
try {
  const report = await chaos(database, { duration, seed, signal: interrupted.signal, tell: console.log });
  print(report);
  ({ problems } = report);
} finally {
  await database.close();
}
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? "as it should be" : `${problems.length} problems, seed ${seed}`);
process.exit(problems.length === 0 ? 0 : 1);
