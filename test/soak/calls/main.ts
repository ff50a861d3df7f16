/**
 * `npm run test:calls -- 1000000`: so many calls of agents over a real HTTP upstream, of which one in a hundred goes wrong for every kind
 * of fault (default: 20,000 calls). No call may be answered wrongly or have no end, and the heap must stay as it was.
 * `PENSTOCK_SOAK_TRANSPORT` is the transport, `PENSTOCK_SOAK_SEED` decides what chance decides. Exits with 1 when something is wrong.
 */
import { callOften, mega } from "./calls.ts";
import { judgeCalls } from "./judge.ts";

const calls = Number((process.argv[2] ?? "20000").replaceAll(/[,_]/g, ""));
if (!Number.isInteger(calls) || calls < 1) throw new Error(`"${process.argv[2]}" is no number of calls`);
const seed = Number(process.env.PENSTOCK_SOAK_SEED ?? Date.now() % 1_000_000_007);
const transport = process.env.PENSTOCK_SOAK_TRANSPORT ?? "auto";

const ends: (() => unknown)[] = [];
const test = { after: (end: () => unknown) => void ends.push(end) };
console.log(`${calls} calls over ${transport}, seed ${seed}`);
// The processes are groups of their own: no signal of a terminal reaches them.
const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
let problems: string[];
try {
  const { signal } = interrupted;
  const settings = { calls, seed, transport, signal, tell: console.log };
  const report = await callOften(test as Parameters<typeof callOften>[0], settings);
  for (const [name, counts] of [...report.outcomes].toSorted()) {
    console.log(`${name.padEnd(16)} ${[...counts].map(([outcome, count]) => `${outcome} ${count}`).join(", ")}`);
  }
  console.log(
    `the model        ${Object.entries(report.gave)
      .map(([what, count]) => `${what} ${count}`)
      .join(", ")}`,
  );
  console.log(`${report.seconds.toFixed(0)} s, the longest call ${(report.longest / 1_000).toFixed(1)} s`);
  console.log(`heap             ${report.measures.map(({ heapUsed }) => mega(heapUsed)).join(", ")}`);
  console.log(`sockets          ${report.sockets.map(({ length }) => length).join(" before, ")} after`);
  problems = signal.aborted ? [...report.wrong, "interrupted"] : judgeCalls(report, calls);
} finally {
  for (const end of ends) await end();
}
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? "as it should be" : `${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
