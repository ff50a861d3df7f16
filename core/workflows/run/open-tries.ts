/** The tries of steps that were in progress when an execution was read from the store: an earlier process started them. */
import { isObject } from "../../lib/is-object.ts";
import type { StepPath } from "../journal/entries.ts";
import type { JournalState, StepState } from "../journal/state.ts";

/** A step that waits continues with the same try. */
const UNDER_WAY: ReadonlySet<StepState["status"]> = new Set<StepState["status"]>(["running", "waiting"]);

export class OpenTries {
  readonly #tries = new Map<StepPath, string>();
  /** Whether one of them may have asked a person: it waits for approval, or its process has ended in the middle of it. */
  mayHaveAsked = false;

  /** @param state as it was read from the store */
  constructor({ steps }: JournalState) {
    for (const step of steps.values()) {
      if (!UNDER_WAY.has(step.status)) continue;
      this.#tries.set(step.path, tryOf(step));
      this.mayHaveAsked ||= step.status === "running" || waitsForApproval(step);
    }
  }

  /** Whether the step is still at the same try as then. */
  has(step: StepState): boolean {
    return this.#tries.get(step.path) === tryOf(step);
  }
}

/** As `suspendForApproval` and kept runs say it. */
const waitsForApproval = ({ data }: StepState): boolean =>
  isObject(data) && ("approvalId" in data || "approvals" in data);

/** Identifies a try: a step that starts anew has another start, and after a failure another number of tries. */
const tryOf = ({ begunWith, tries }: StepState): string => `${begunWith}:${tries}`;
