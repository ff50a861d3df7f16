/**
 * `npm run test:soak`: an hour of agents over a real HTTP upstream with faults, memory, workflows and sockets, and at the end the
 * process must be what it was. `PENSTOCK_SOAK` is how long (`5m`), `PENSTOCK_SOAK_RATE` how many visits a second,
 * `PENSTOCK_SOAK_TRANSPORT` which transport, `PENSTOCK_SOAK_STORE` which store (`memory:`), `PENSTOCK_SOAK_SEED` what chance decides. Exits
 * with 1 when something is wrong.
 */
import { formatDuration, parseDuration } from "../../core/lib/duration.ts";
import { judge } from "./judge.ts";
import { describeMeasure, residentIn, type SoakReport, soak } from "./soak.ts";

/** Share by which the last quarter may be above the one before. */
const GROWTH = 0.05;

const duration = parseDuration(process.env.PENSTOCK_SOAK ?? "1h");
const rate = Number(process.env.PENSTOCK_SOAK_RATE ?? 60);
const seed = Number(process.env.PENSTOCK_SOAK_SEED ?? Date.now() % 1_000_000_007);
const transport = process.env.PENSTOCK_SOAK_TRANSPORT ?? "auto";
const store = process.env.PENSTOCK_SOAK_STORE;

function print({ outcomes, measures, base, end, sockets }: SoakReport): void {
  for (const [name, counts] of [...outcomes].toSorted()) {
    console.log(`${name.padEnd(24)} ${[...counts].map(([outcome, count]) => `${outcome} ${count}`).join(", ")}`);
  }
  console.log(`before    ${describeMeasure(base)}, ${sockets[0].length} sockets`);
  for (const quarter of [1, 2, 3, 4] as const) {
    if (measures.length < 4) break;
    console.log(`quarter ${quarter} resident ${(residentIn(measures, quarter) / 1e6).toFixed(1)} MB`);
  }
  console.log(`after     ${describeMeasure(end)}, ${sockets[1].length} sockets`);
}

const ends: (() => unknown)[] = [];
const test = { after: (end: () => unknown) => void ends.push(end) };
console.log(`${formatDuration(duration)} over ${transport}, ${rate} visits a second, seed ${seed}`);
// The processes are groups of their own: no signal of a terminal reaches them.
const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
let problems: string[];
try {
  const { signal } = interrupted;
  const settings = { duration, rate, seed, transport, signal, tell: console.log, ...(store && { store }) };
  const report = await soak(test as Parameters<typeof soak>[0], settings);
  print(report);
  problems = signal.aborted ? [...report.wrong, "interrupted"] : judge(report, GROWTH);
} finally {
  for (const end of ends) await end();
}
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? "as it should be" : `${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
