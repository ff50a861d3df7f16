/**
 * Resumes a step that waits while others of its execution run: in a race with a timer, or beside a busy branch of andAll. The resume
 * is an entry of the journal like any other, so that it survives a crash. The branch then runs again from its start, skipping the steps
 * that are done.
 */
import type { JournalEntry } from "../journal/entries.ts";
import type { Execution } from "./execution.ts";
import type { Outcome } from "./outcome.ts";

/** Whether the execution can take a resume now: it runs, and is not about to settle. */
export const takesResume = ({ state, lifetime }: Execution): boolean =>
  state.status === "running" && lifetime.stopped === null;

/**
 * Resumes the step; only to be called when `takesResume`. Resolves when the resume is on disk.
 *
 * @param token of the request of another process, which looks for it in the journal
 */
export function resumeBeside(execution: Execution, entry: JournalEntry, token?: string): Promise<void> {
  const [, path, at] = entry;
  execution.append(entry);
  // Appended now, so that both entries are in the same commit.
  if (token !== undefined) execution.append(["answer", path, at, token]);
  const written = execution.flush();
  // No callback is registered while the outcome of the branch is being reported: its receiver checks `isAnswered`.
  execution.resumable.get(path)?.();
  return written;
}

/** Whether a step of a suspended outcome was resumed while the outcome was being reported, which makes it outdated. */
export const isAnswered = ({ state }: Execution, outcome: Outcome): boolean =>
  outcome.kind === "suspended" && outcome.paths.some((path) => state.steps.get(path)?.status !== "waiting");
