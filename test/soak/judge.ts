/** What must be true of a soak. */
import { leftBehind } from "./aftermath.ts";
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
  return [...problems, ...leftBehind(served, sockets)];
}
