/**
 * Resumes a step that waits while others of its execution run: in a race with a timer, or beside a branch of andAll that is at work. The
 * resume is an entry of the journal like any other, so that it counts after a crash too. The branch then runs again from its begin,
 * where what is done is not done again.
 */
import type { JournalEntry } from "../journal/entries.ts";
import type { Execution } from "./execution.ts";
import type { Outcome } from "./outcome.ts";

/** Whether a resume can be given to it now: it runs, and is not about to come to rest. */
export const takesResume = ({ state, lifetime }: Execution): boolean =>
  state.status === "running" && lifetime.stopped === null;

/**
 * To be called only when `takesResume`. Resolves when it is on disk.
 *
 * @param token of the request of another process, which finds it in the journal
 */
export function resumeBeside(execution: Execution, entry: JournalEntry, token?: string): Promise<void> {
  const [, path, at] = entry;
  execution.append(entry);
  // In the same commit.
  if (token !== undefined) execution.append(["answer", path, at, token]);
  const written = execution.flush();
  // Nothing is registered while the outcome of the branch is on its way: whoever takes it sees that it is out of date.
  execution.resumable.get(path)?.();
  return written;
}

/** Whether a step at which something waits has been resumed on the way of that outcome, so that it is out of date. */
export const isAnswered = ({ state }: Execution, outcome: Outcome): boolean =>
  outcome.kind === "suspended" && outcome.paths.some((path) => state.steps.get(path)?.status !== "waiting");
