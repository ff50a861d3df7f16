/** Counts steps by the entries of the journal. */
import type { WorkflowMeter } from "../../observability/metrics/named.ts";
import type { StepOutcome } from "../../observability/metrics/outcomes.ts";
import type { EntryKind, JournalEntry } from "../journal/entries.ts";

/** The outcome of a step that an entry records. */
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
