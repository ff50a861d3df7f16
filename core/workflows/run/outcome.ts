/** The outcome of a step, of a list of steps, and of a whole execution. */
import type { StepPath, ValueSource } from "../journal/entries.ts";

export type Outcome = Done | Bailed | Suspended | Failed | Stopped;

/** An output and its source in the journal. */
export interface Done {
  readonly kind: "done";
  readonly data: unknown;
  readonly source: ValueSource;
}

/** The workflow of the step ends with this result. */
interface Bailed {
  readonly kind: "bailed";
  readonly data: unknown;
  readonly source: ValueSource;
}

/** The execution waits to be resumed at these steps, in the order of branches. */
interface Suspended {
  readonly kind: "suspended";
  readonly paths: readonly StepPath[];
}

interface Failed {
  readonly kind: "failed";
  readonly message: string;
  /** Code of the error, or null. */
  readonly code: string | null;
  readonly path: StepPath;
  /** Whether another try would fail in the same way. */
  readonly isPermanent: boolean;
}

/** The step was stopped from outside before it had ended. Its lifetime has the reason. */
interface Stopped {
  readonly kind: "stopped";
  readonly path: StepPath;
}

export const done = (data: unknown, source: ValueSource): Done => ({ kind: "done", data, source });
export const bailed = (data: unknown, source: ValueSource): Bailed => ({ kind: "bailed", data, source });
export const failed = (path: StepPath, message: string, isPermanent = false, code: string | null = null): Failed => ({
  kind: "failed",
  path,
  message,
  code,
  isPermanent,
});
export const stopped = (path: StepPath): Stopped => ({ kind: "stopped", path });
