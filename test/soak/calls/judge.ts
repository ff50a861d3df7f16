/** What must be true of very many calls. */

import { median } from "../../support/measured.ts";
import { leftBehind } from "../aftermath.ts";
import { type CallsReport, mega } from "./calls.ts";
import { FAULT_KINDS, FAULT_SHARE } from "./faults.ts";

/** A heap that grows with the calls is above this at their end, whatever the noise. */
const HEAP_GROWTH = 1.1;
const HEAP_SLACK = 4_000_000;
/** The least number of answers by which each kind of fault must have come about. */
const ENOUGH = 5_000;
/** So many refusals are chance in a short run. */
const FEW = 50;

/** Calls by the outcome that is chosen. */
function count({ outcomes }: CallsReport, chosen: (outcome: string) => boolean): number {
  const counts = [...outcomes.values()].flatMap((each) => [...each]);
  return counts.reduce((sum, [outcome, times]) => sum + (chosen(outcome) ? times : 0), 0);
}

/** Gives what is wrong, in words. */
export function judgeCalls(report: CallsReport, calls: number): string[] {
  const { wrong, measures, outcomes, gave, sockets, served } = report;
  if (wrong.length > 0) return wrong;
  const problems: string[] = [];
  const expect = (holds: boolean, problem: string) => void (holds || problems.push(problem));
  const answered = count(report, (outcome) => outcome === "answered");
  const refused = count(report, (outcome) => outcome.startsWith("refused"));
  expect(answered + refused === calls, `${calls} calls, of which ${answered} were answered and ${refused} refused`);
  // A fault before the first visible part is tried again: those after it, and a second one, may refuse.
  const most = Math.max(FEW, FAULT_KINDS.length * FAULT_SHARE * calls);
  const kinds = [...outcomes].map(([name, counts]) => `${name}: ${[...counts].join(" ")}`);
  expect(refused <= most, `${refused} of ${calls} calls were refused (${kinds.join("; ")})`);
  for (const kind of FAULT_KINDS) expect(calls < ENOUGH || (gave[kind] ?? 0) > 0, `the model made no ${kind}`);
  const quarter = (from: number) => {
    const size = measures.length / 4;
    return median(measures.slice(from * size, (from + 1) * size).map(({ heapUsed }) => heapUsed));
  };
  // The first quarter fills the bounded buffers: log, history, compiled code.
  const [second, last] = [quarter(1), quarter(3)];
  expect(
    last <= second * HEAP_GROWTH + HEAP_SLACK,
    `the heap was ${mega(second)} early on, and ${mega(last)} at the end`,
  );
  return [...problems, ...leftBehind(served, sockets)];
}
