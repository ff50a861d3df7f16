/** The tries of steps that were in progress when an execution was read from the store: an earlier process started them. */
import type { StepPath } from "../journal/entries.ts";
import type { JournalState, StepState } from "../journal/state.ts";

/** A step that waits continues with the same try. */
const UNDER_WAY: ReadonlySet<StepState["status"]> = new Set<StepState["status"]>(["running", "waiting"]);

export class OpenTries {
  readonly #tries = new Map<StepPath, string>();

  /** @param state as it was read from the store */
  constructor({ steps }: JournalState) {
    for (const step of steps.values()) if (UNDER_WAY.has(step.status)) this.#tries.set(step.path, tryOf(step));
  }

  /** Whether the step is still at the same try as then. */
  has(step: StepState): boolean {
    return this.#tries.get(step.path) === tryOf(step);
  }
}

/** Identifies a try: a step that starts anew has another start, and after a failure another number of tries. */
const tryOf = ({ begunWith, tries }: StepState): string => `${begunWith}:${tries}`;
