/** What must be true of a soak. */
import { residentIn, type SoakReport } from "./soak.ts";

/** Least share of visits that are answered: with more refusals the load would show nothing. */
const ANSWERED = 0.6;

/** @param growth share by which the last quarter may be above the one before. Gives what is wrong, in words. */
export function judge(report: SoakReport, growth: number): string[] {
  const { wrong, outcomes, measures, sockets, served } = report;
  if (wrong.length > 0) return wrong;
  const problems: string[] = [];
  const expect = (holds: boolean, problem: string) => void (holds || problems.push(problem));
  const counts = [...outcomes.values()].flatMap((each) => [...each]);
  const sum = (chosen: (outcome: string) => boolean) =>
    counts.reduce((total, [outcome, count]) => total + (chosen(outcome) ? count : 0), 0);
  const refused = sum((outcome) => outcome.startsWith("refused"));
  const answered = sum((outcome) => outcome === "answered");
  expect(answered >= ANSWERED * (answered + refused), `${answered} visits were answered and ${refused} refused`);
  const [third, last] = [residentIn(measures, 3), residentIn(measures, 4)];
  expect(last <= third * (1 + growth), `resident memory: ${third} bytes in the third quarter, ${last} in the last`);
  const [before, after] = sockets;
  expect(
    after.length <= before.length,
    `sockets before the load: ${before.join(", ")}; and after it: ${after.join(", ")}`,
  );
  const faults = served
    .stdout()
    .split("\n")
    .filter((line) => /^\{"level":"(error|fatal)"/.test(line));
  expect(faults.length === 0, `the log tells of faults: ${faults.slice(0, 3).join("\n")}`);
  return problems;
}
