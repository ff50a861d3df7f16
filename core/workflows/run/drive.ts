/** Runs an execution from the state in its journal until it settles, and records the outcome. */

import { formatDuration } from "../../lib/duration.ts";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { openExecutionKey } from "../../storage/keys.ts";
import type { JournalEntry, StepPath } from "../journal/entries.ts";
import { timeAfter } from "../journal/state.ts";
import { UnrecordableError } from "./commit-retry.ts";
import type { Execution } from "./execution.ts";
import { runSteps } from "./interpreter.ts";
import { executionLogger } from "./logger.ts";
import { runWorkflow } from "./on-error.ts";
import type { Outcome } from "./outcome.ts";
import { isAnswered } from "./resume-beside.ts";
import { createFrame } from "./scope.ts";

/**
 * Resolves when the execution has settled, or was interrupted because the process is closing. Rejects when it cannot continue here:
 * its id is taken, another process has recovered it, or its first commit failed.
 */
export async function drive(execution: Execution): Promise<void> {
  const { state, definition, lifetime } = execution;
  if (definition.timeout !== null) {
    const ran = state.ran + (state.updatedAt - state.since);
    lifetime.setTimeLimit(Math.max(definition.timeout - ran, 0));
  }
  try {
    const { input } = state.start;
    const frame = createFrame(execution, input, definition);
    let outcome: Outcome;
    do outcome = await runWorkflow(runSteps, execution, "", definition, frame, { data: input, source: "" }, lifetime);
    while (isAnswered(execution, outcome));
    await conclude(execution, outcome);
  } catch (error) {
    const stop = lifetime.stopped?.kind;
    if (error instanceof CommitConflict || !execution.isRecorded || stop === "closing" || stop === "lost") throw error;
    // A bug of ours must not leave the execution hanging. Branches that still run are stopped and record nothing more.
    lifetime.stop({ kind: "lost", reason: "internal error", gracePeriod: 0 });
    executionLogger(execution).error({ err: error }, messageOf(error));
    // The outcome itself may be what cannot be recorded: then the state before it is used.
    if (error instanceof UnrecordableError || state.status !== "running") await execution.rollBack();
    const message = error instanceof UnrecordableError ? error.message : "internal error";
    execution.append(["error", "", timeAfter(execution.state), message]);
    await execution.writeRecord();
  } finally {
    lifetime.end();
  }
}

async function conclude(execution: Execution, outcome: Outcome): Promise<void> {
  const entry = outcomeEntry(execution, outcome);
  if (entry === null) {
    const stop = execution.lifetime.stopped?.kind;
    // Without this entry, the next process would think that the execution has killed this one.
    if (stop === "closing" && execution.isRecorded) execution.append(["interrupt", "", timeAfter(execution.state)]);
    await execution.flush();
    if (stop !== "lost") return;
    throw new CommitConflict([openExecutionKey(execution.state.start.number)]);
  }
  execution.append(entry);
  return execution.writeRecord();
}

/** The entry for the outcome; null when the execution was interrupted and continues later. */
function outcomeEntry(execution: Execution, outcome: Outcome): JournalEntry | null {
  const { state, definition } = execution;
  const at = timeAfter(execution.state);
  // The last output may be what was too large.
  if (execution.lifetime.stopped?.kind === "size") return stopEntry(execution, "", at);
  switch (outcome.kind) {
    case "bailed":
    case "done": {
      const problem = definition.resultCheck?.(outcome.data, "result") ?? null;
      return problem === null ? ["end", "", at, null, outcome.source] : ["error", "", at, problem];
    }
    case "failed":
      return ["error", outcome.path, at, outcome.message];
    case "suspended": {
      const path = outcome.paths[0] as StepPath;
      const step = state.steps.get(path);
      return ["suspend", path, at, step?.message ?? "", step?.data ?? null];
    }
    case "stopped":
      return stopEntry(execution, outcome.path, at);
  }
}

function stopEntry({ lifetime, definition }: Execution, path: StepPath, at: number): JournalEntry | null {
  const stop = lifetime.stopped;
  switch (stop?.kind) {
    case "suspend":
      return ["suspend", path, at, stop.reason, null];
    case "cancel":
      return ["cancel", "", at, stop.reason];
    case "timeout":
      return ["error", "", at, `the workflow timed out after ${formatDuration(definition.timeout ?? 0)}`];
    case "size":
      return ["error", "", at, stop.reason];
    default:
      return null;
  }
}
