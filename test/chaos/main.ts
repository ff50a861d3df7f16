/**
 * `npm run test:chaos -- SECONDS`: four processes on one PostgreSQL under mixed load, while processes are killed and stopped and the
 * database, two servers behind one address, is restarted, frozen, and fails over. `PENSTOCK_CHAOS_SEED` repeats the choices of a run; the moments at which signals arrive nobody can
 * repeat. Exits with 1 when something is wrong.
 */
import { startPostgres } from "../support/postgres.ts";
import { type ChaosReport, chaos } from "./chaos.ts";
import { startPair } from "./pair.ts";

const duration = Number(process.argv[2] ?? 120) * 1_000;
const seed = Number(process.env.PENSTOCK_CHAOS_SEED ?? Date.now() % 1_000_000_007);

function print({ knowledge, deeds, runs }: ChaosReport): void {
  for (const [name, count] of [...knowledge.outcomes].toSorted()) console.log(`${String(count).padStart(6)} ${name}`);
  const { kills, freezes, outages, failovers } = deeds;
  console.log(
    `${kills.size} kills, ${freezes.length} frozen processes, ${outages.length} outages, ${runs} runs of steps`,
  );
  console.log(`${failovers.length} failovers; ready again after at most ${failovers.join(", ")} ms`);
}

const server = await startPostgres();
if (server?.stop == null) throw new Error("a PostgreSQL of our own is needed, to restart it");
const database = await startPair(server);
console.log(`${duration / 1_000} seconds, seed ${seed}`);
// The processes are groups of their own: no signal of a terminal reaches them.
const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
let problems: readonly string[] = ["it did not end"];
try {
  const report = await chaos(database, {
    duration,
    seed,
    pair: database,
    runs: true,
    signal: interrupted.signal,
    tell: console.log,
  });
  print(report);
  ({ problems } = report);
} finally {
  await database.close();
}
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? "as it should be" : `${problems.length} problems, seed ${seed}`);
process.exit(problems.length === 0 ? 0 : 1);
