/** Executions are counted when they come to rest, steps by what the journal of their execution says of them. */
import type { WorkflowMeter } from "../../observability/metrics/named.ts";
import type { StepOutcome } from "../../observability/metrics/outcomes.ts";
import type { EntryKind, JournalEntry } from "../journal/entries.ts";
import type { Execution } from "./execution.ts";

/** What an entry says of how a step came out. */
const OUTCOMES: Readonly<Partial<Record<EntryKind, StepOutcome>>> = {
  done: "done",
  same: "done",
  fail: "failed",
  retry: "retried",
  wait: "suspended",
};

export function countStep(meter: WorkflowMeter | undefined, [kind, path]: JournalEntry): void {
  const outcome = OUTCOMES[kind];
  if (outcome !== undefined) meter?.steps.of(path).count(outcome);
}

export function countEntry({ definition: { meter } }: Execution): void {
  if (meter !== undefined) meter.running++;
}

export function countExit({ definition: { meter }, state: { status }, isAtRest }: Execution): void {
  if (meter === undefined) return;
  meter.running--;
  if (isAtRest && status !== "running") meter.executions.count(status);
}
