/** The state of one step of an execution. */
import type { Branch, StepPath, ValueSource } from "./entries.ts";
import { forgetKept, NOTHING_KEPT } from "./kept-values.ts";

type StepStatus = "running" | "done" | "skipped" | "failed" | "waiting";

export interface StepState {
  readonly path: StepPath;
  status: StepStatus;
  /** Milliseconds since 1970. */
  begunAt: number;
  /** Null until the step has ended, and again when it failed and is about to run again. */
  endedAt: number | null;
  /** The source of its input. */
  source: ValueSource;
  /** The source of its output once it is done: its own path, or the source of a value that it passed on. */
  output: ValueSource;
  /** How many tries have failed, and when the last of them did. */
  tries: number;
  triedAt: number;
  /** How many tries have failed since the step started anew; a wait does not reset the count. */
  failures: number;
  /** Milliseconds of its time limit that the present try had used when the step last waited or was suspended. */
  used: number;
  /** What andWhen or bail has decided. */
  branch: Branch | null;
  /** Why the step waits, or why it failed. */
  message: string;
  /** Code of the error with which it failed. */
  code: string | null;
  /** The step that failed: itself, or one inside it. Empty until it has failed; kept when its `onError` provides the output. */
  failedAt: StepPath;
  /** The data of its suspension, and the time since which it waits. */
  data: unknown;
  /** The number of the event with which it started, which is unique to this start. */
  begunWith: number;
  /** The values that its work has recorded since it started anew: after a crash it continues from there. */
  kept: unknown[];
  /** Whether it has sent parts to the stream since it started anew. */
  hasStreamed: boolean;
  waitsSince: number;
  /** Set from a resume until the step waits again or fails. `waited`: the step had suspended itself. */
  resume: { readonly data: unknown; readonly waited: boolean } | null;
}

export function endStep(step: StepState, status: StepStatus, at: number, output: ValueSource): void {
  step.status = status;
  step.endedAt = at;
  step.output = output;
  forgetKept(step);
}

/** @param state of the execution */
export function getOrAddStep(
  state: { readonly steps: Map<StepPath, StepState> },
  path: StepPath,
  at: number,
): StepState {
  let step = state.steps.get(path);
  if (step === undefined) {
    step = {
      path,
      status: "running",
      begunAt: at,
      endedAt: null,
      source: "",
      output: "",
      tries: 0,
      triedAt: 0,
      failures: 0,
      used: 0,
      branch: null,
      message: "",
      code: null,
      failedAt: "",
      data: null,
      begunWith: 0,
      kept: NOTHING_KEPT,
      hasStreamed: false,
      waitsSince: 0,
      resume: null,
    };
    state.steps.set(path, step);
  }
  return step;
}
