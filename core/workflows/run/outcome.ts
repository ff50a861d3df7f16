/** What comes of a step, of a list of steps, and of a whole execution. */
import type { StepPath, ValueSource } from "../journal/entries.ts";

export type Outcome = Done | Suspended | Failed | Stopped;

/** A value, and where it is on record. */
export interface Done {
  readonly kind: "done";
  readonly data: unknown;
  readonly source: ValueSource;
}

/** Waits to be resumed, at these steps in the order of branches. */
export interface Suspended {
  readonly kind: "suspended";
  readonly paths: readonly StepPath[];
}

export interface Failed {
  readonly kind: "failed";
  /** What the step said. */
  readonly message: string;
  readonly path: StepPath;
  /** Whether no other try can go better. */
  readonly lasting: boolean;
}

/** Something outside stopped it before this step was over; why, its lifetime says. */
export interface Stopped {
  readonly kind: "stopped";
  readonly path: StepPath;
}

export const done = (data: unknown, source: ValueSource): Done => ({ kind: "done", data, source });
export const failed = (path: StepPath, message: string, lasting = false): Failed => ({
  kind: "failed",
  path,
  message,
  lasting,
});
export const stopped = (path: StepPath): Stopped => ({ kind: "stopped", path });
