/** Runs an execution until it rests: from where its journal stands to an entry that says how it came out. */

import { formatDuration } from "../../lib/duration.ts";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import type { JournalEntry, StepPath } from "../journal/entries.ts";
import { timeAfter } from "../journal/state.ts";
import { UnrecordableError } from "./commit.ts";
import type { Execution } from "./execution.ts";
import { runSteps } from "./interpreter.ts";
import { executionLogger } from "./logger.ts";
import type { Outcome } from "./outcome.ts";
import { createFrame } from "./scope.ts";

/**
 * Resolves when the execution rests, or stands still because the process is closing. Rejects when it cannot go on here: its id
 * was taken, it is another process's by now, or its first commit failed.
 */
export async function drive(execution: Execution): Promise<void> {
  const { state, definition, lifetime } = execution;
  if (definition.timeout !== null) {
    const ran = state.ran + (state.updatedAt - state.since);
    lifetime.setTimeLimit(Math.max(definition.timeout - ran, 0));
  }
  try {
    const { input } = state.start;
    const frame = createFrame(execution, input, "");
    const outcome = await runSteps(execution, definition.steps, frame, { data: input, source: "" }, lifetime);
    await conclude(execution, outcome);
  } catch (error) {
    if (error instanceof CommitConflict || !execution.isRecorded || lifetime.stopped?.kind === "closing") throw error;
    // A fault of ours: the execution must not hang for it. Other branches end too, and record nothing more.
    lifetime.stop({ kind: "lost", reason: "internal error", gracePeriod: 0 });
    executionLogger(execution).error({ err: error }, messageOf(error));
    // What it came to included, when that is what cannot be recorded.
    if (error instanceof UnrecordableError || state.status !== "running") await execution.rollBack();
    const message = error instanceof UnrecordableError ? error.message : "internal error";
    execution.append(["error", "", timeAfter(execution.state), message]);
    await execution.writeRecord();
  } finally {
    lifetime.end();
  }
}

async function conclude(execution: Execution, outcome: Outcome): Promise<void> {
  const entry = entryOf(execution, outcome);
  if (entry === null) return execution.flush();
  execution.append(entry);
  return execution.writeRecord();
}

/** How it came out; null when it only stands still. */
function entryOf(execution: Execution, outcome: Outcome): JournalEntry | null {
  const { state, definition } = execution;
  const at = timeAfter(execution.state);
  switch (outcome.kind) {
    case "done": {
      const problem = definition.resultCheck?.(outcome.data, "result") ?? null;
      return problem === null ? ["end", "", at, outcome.data] : ["error", "", at, problem];
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
    default:
      return null;
  }
}
