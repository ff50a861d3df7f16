/** The definition by which the engine runs an agent: one step, which is the run. */
import type { KeptAgent } from "../agents/run-requests.ts";
import type { Uses } from "../lib/uses.ts";
import type { Outline, StepCall, WorkflowDefinition, WorkStep } from "../workflows/definition/definition.ts";
import { runDefinitionId } from "../workflows/journal/record.ts";

export const RUN_STEP = "run";
/** How often a run that makes no progress is taken up after its process died. */
const MAX_RECOVERIES = 3;
/**
 * The begin of a run is on disk after this time, before its first tool runs, and before its client hears of it. So a run that answers
 * at once is one commit.
 */
const RECORD_WITHIN_MS = 100;

export const OUTLINE: Outline = new Map([
  [
    RUN_STEP,
    { path: RUN_STEP, id: RUN_STEP, name: RUN_STEP, type: "andAgent" as const, index: 0, order: 0, parents: [] },
  ],
]);

/** @param uses counts the runs that go on with it */
export function runDefinition(
  { id, recovery }: KeptAgent,
  run: (call: StepCall) => unknown,
  uses: Uses,
): WorkflowDefinition {
  const step: WorkStep = {
    kind: "work",
    id: RUN_STEP,
    path: RUN_STEP,
    type: "andAgent",
    inputCheck: null,
    outputCheck: null,
    suspendCheck: null,
    resumeCheck: null,
    retry: { attempts: 0, delay: 0, backoff: "fixed", maxDelay: null, jitter: false, unless: null },
    timeout: null,
    tap: false,
    onError: null,
    // The run records what it does before that has effects.
    readOnly: true,
    recordWithin: RECORD_WITHIN_MS,
    run,
  };
  const definitionId = runDefinitionId(id);
  return {
    workflowId: definitionId,
    name: id,
    hash: definitionId,
    outline: OUTLINE,
    steps: [step],
    onError: null,
    inputCheck: null,
    resultCheck: null,
    suspendCheck: null,
    resumeCheck: null,
    timeout: null,
    recovery,
    recoveries: MAX_RECOVERIES,
    uses,
  };
}
