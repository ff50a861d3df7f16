/** Where one step of an execution stands. */
import type { Branch, StepPath, ValueSource } from "./entries.ts";
import { forgetKept, NOTHING_KEPT } from "./kept-values.ts";

type StepStatus = "running" | "done" | "skipped" | "failed" | "waiting";

export interface StepState {
  readonly path: StepPath;
  status: StepStatus;
  /** Milliseconds since 1970. */
  begunAt: number;
  /** Null until it has ended, and again when it failed and is about to run again. */
  endedAt: number | null;
  /** Where its input comes from. */
  source: ValueSource;
  /** Where its output comes from once it is done: its own path, or the source of a value that it passed on. */
  output: ValueSource;
  /** How many tries have failed, and when the last of them did. */
  tries: number;
  triedAt: number;
  /** How many tries have failed since it began anew: a wait does not change that. */
  failures: number;
  /** Milliseconds of its time limit that the present try had used when it last came to rest. */
  used: number;
  /** The choice of andWhen or bail. */
  branch: Branch | null;
  /** Why it waits, or why it failed. */
  message: string;
  /** Of the error that it failed with. */
  code: string | null;
  /** The step that failed: itself, or one inside it. Empty until it has failed; kept when its `onError` gives its output. */
  failedAt: StepPath;
  /** The data of its suspension, and since when it waits. */
  data: unknown;
  /** The number of the event that it began with, which no other begin has. */
  begunWith: number;
  /** What its work has recorded since it began anew: after a crash it goes on behind that. */
  kept: unknown[];
  /** Whether it has sent parts to the stream since then. */
  hasStreamed: boolean;
  waitsSince: number;
  /** Set from a resume until it waits again or fails. `waited`: the step had suspended itself. */
  resume: { readonly data: unknown; readonly waited: boolean } | null;
}

export function endStep(step: StepState, status: StepStatus, at: number, output: ValueSource): void {
  step.status = status;
  step.endedAt = at;
  step.output = output;
  forgetKept(step);
}

/** @param state that the step is in */
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
