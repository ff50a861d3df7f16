/** The tries of steps that were under way when an execution was read from the store: what they did before is not known here. */
import type { EntryKind, JournalEntry, StepPath } from "../journal/entries.ts";
import type { JournalState, StepState } from "../journal/state.ts";

/** A step that waits goes on with the same try. */
const UNDER_WAY: ReadonlySet<StepState["status"]> = new Set<StepState["status"]>(["running", "waiting"]);
const ENDS_TRY: ReadonlySet<EntryKind> = new Set<EntryKind>(["done", "same", "fail", "retry"]);

export class OpenTries {
  readonly #steps = new Set<StepPath>();

  /** @param state as it was read */
  constructor({ steps }: JournalState) {
    for (const { path, status } of steps.values()) if (UNDER_WAY.has(status)) this.#steps.add(path);
  }

  entry([kind, path]: JournalEntry): void {
    if (ENDS_TRY.has(kind)) this.#steps.delete(path);
  }

  has(path: StepPath): boolean {
    return this.#steps.has(path);
  }
}
