/** A step in the record of its execution, as JSON text. */

import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import type { ExecutionStatus } from "./entries.ts";
import { errorText } from "./outcome-text.ts";
import type { StepState } from "./state.ts";

/** The status of a step that has not ended, by the status of its execution. */
const UNFINISHED: Readonly<Record<ExecutionStatus, string>> = {
  running: "running",
  suspended: "suspended",
  completed: "cancelled",
  error: "cancelled",
  cancelled: "cancelled",
};

/**
 * The step as JSON without the closing brace, and without its output if it is done.
 *
 * @param status of the execution
 */
export function stepText(step: StepState, status: ExecutionStatus, outline: Outline): string {
  const name = JSON.stringify(outline.get(step.path)?.name ?? step.path);
  switch (step.status) {
    case "done":
      return endedStepText("step-complete", step, name, `"success"${handledText(step)}`);
    case "skipped":
      return endedStepText("step-complete", step, name, `"skipped"`);
    case "failed":
      // A failed step that is about to run again has no `endedAt`.
      if (step.resume === null && step.endedAt !== null)
        return endedStepText("step-error", step, name, `"error","error":${errorText(step.message, step.path)}`);
      return unfinishedStepText(step, name, UNFINISHED[status]);
    case "waiting":
      return unfinishedStepText(step, name, status === "running" ? "suspended" : UNFINISHED[status]);
    case "running":
      return unfinishedStepText(step, name, UNFINISHED[status]);
  }
}

/** Why the step failed, if its `onError` provided the output. */
const handledText = ({ message, failedAt }: StepState): string =>
  failedAt === "" ? "" : `,"error":${errorText(message, failedAt)}`;

const headText = (type: string, { path, begunAt }: StepState, name: string): string =>
  `{"id":"step:${path}","type":"${type}","name":${name},"from":"${path}","startTime":"${isoTime(begunAt)}"`;

const endedStepText = (type: string, step: StepState, name: string, rest: string): string =>
  `${headText(type, step, name)},"endTime":"${isoTime(step.endedAt ?? step.begunAt)}","status":${rest}`;

const unfinishedStepText = (step: StepState, name: string, status: string): string =>
  `${headText("step-start", step, name)},"status":"${status}"`;
