/** An execution as the API shows it: the record in lists, the result, and the state. */
import type { ExecutionState } from "../../../generated/types.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import { type CompactText, CompactTextBuilder } from "./compact-text.ts";
import type { ExecutionStatus } from "./entries.ts";
import { errorText, outcomeMembers, outcomeText, type RestEntry, restEntry } from "./outcome-text.ts";
import { isRun, runRecordText } from "./run-record.ts";
import type { JournalState, StepState } from "./state.ts";
import { isSuperseded, waitingSteps } from "./superseded.ts";

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
function stepText(step: StepState, status: ExecutionStatus, outline: Outline): string {
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

/**
 * The record as JSON. It is written to the store when the execution settles, and lists return it from there.
 *
 * @param texts values as JSON, of those that the caller has already
 */
export function executionRecord(
  state: JournalState,
  outline: Outline,
  texts?: ReadonlyMap<unknown, string>,
): CompactText {
  const { start, status, values } = state;
  if (isRun(start.workflowId)) return { text: runRecordText(state), repeats: [] };
  const workflow = JSON.stringify(start.workflowId);
  const name = JSON.stringify(start.workflowName);
  const named = `"name":${name},"from":${workflow}`;
  const createdAt = isoTime(start.at);
  const head = `{"id":"${start.id}","workflowId":${workflow},"workflowName":${name},"status":"${status}"${ownerText(state)}`;
  const metadata = start.metadata === undefined ? "{}" : JSON.stringify(start.metadata);
  const begun = `{"id":"start","type":"workflow-start",${named},"startTime":"${createdAt}","endTime":"${createdAt}"`;
  const text = new CompactTextBuilder(texts).add(`${head},"input":`).addValue(start.input);
  text.add(`,"metadata":${metadata},"events":[${begun},"status":"running","input":`).addValue(start.input).add("}");
  for (const step of state.steps.values()) {
    const hasOutput = step.status === "done" || step.status === "skipped";
    const superseded = !hasOutput && isSuperseded(step.path, state, outline);
    text.add(`,${stepText(step, superseded ? "completed" : status, outline)}`);
    if (hasOutput) text.add(',"output":').addValue(values.get(step.output));
    text.add("}");
  }
  const rest = restEntry(state);
  if (rest !== null) text.add(",").add(endText(rest, named));
  addOutcome(text, rest, outline, (kind) => kind === "end" || kind === "error");
  text.add(rest === null ? "]" : "}]");
  addOutcome(text, rest, outline, () => true);
  return text.add(`,"createdAt":"${createdAt}","updatedAt":"${isoTime(state.updatedAt)}"}`);
}

/** Adds the members that say how the execution settled. */
function addOutcome(
  text: CompactTextBuilder,
  rest: RestEntry | null,
  outline: Outline,
  has: (kind: RestEntry[0]) => boolean,
): void {
  if (rest === null || !has(rest[0])) return;
  if (rest[0] === "end") text.add(',"output":').addValue(rest[3]);
  else text.add(`,${outcomeMembers(rest, outline)}`);
}

function ownerText({ start }: JournalState): string {
  let text = start.userId === undefined ? "" : `,"userId":${JSON.stringify(start.userId)}`;
  if (start.conversationId !== undefined) text += `,"conversationId":${JSON.stringify(start.conversationId)}`;
  const { replay } = start;
  if (replay === undefined) return text;
  return `${text},"replayedFromExecutionId":"${replay.executionId}","replayFromStepId":"${replay.stepId}"`;
}

const END_TYPE = {
  suspend: "workflow-suspended",
  end: "workflow-complete",
  error: "workflow-error",
  cancel: "workflow-cancelled",
} as const;
const END_STATUS = { suspend: "suspended", end: "success", error: "error", cancel: "cancelled" } as const;

/** The last step event of a record, still open for its outcome. A suspension has no end time, because the execution may continue. */
function endText(rest: RestEntry, named: string): string {
  const [kind, , at] = rest;
  const time = isoTime(at);
  const end = kind === "suspend" ? "" : `,"endTime":"${time}"`;
  return `{"id":"end","type":"${END_TYPE[kind]}",${named},"startTime":"${time}"${end},"status":"${END_STATUS[kind]}"`;
}

/** The result of a settled execution, as JSON. */
export function executionResultText(state: JournalState, outline: Outline): string {
  const rest = restEntry(state);
  if (rest === null) throw new Error(`execution ${state.start.id} has no result yet`);
  return `{"executionId":"${state.start.id}",${outcomeText(state.start.at, rest, outline)}}`;
}

/** For the first step that waits while others run: the entry as if the execution were suspended there. Null when no step waits. */
function waitEntry(state: JournalState, outline: Outline): RestEntry | null {
  const [step] = waitingSteps(state, outline);
  return step === undefined ? null : ["suspend", step.path, step.waitsSince, step.message, step.data];
}

export function executionStateView(current: JournalState, outline: Outline): ExecutionState {
  const { start, status, state, endedAt } = current;
  const { replay } = start;
  const rest = restEntry(current);
  const shown = rest ?? waitEntry(current, outline);
  const members = shown === null || shown[0] === "end" ? {} : JSON.parse(`{${outcomeMembers(shown, outline)}}`);
  return {
    executionId: start.id,
    workflowId: start.workflowId,
    status,
    startAt: isoTime(start.at),
    ...(endedAt !== null && { endAt: isoTime(endedAt) }),
    input: start.input,
    context: start.context,
    workflowState: state,
    ...(start.userId !== undefined && { userId: start.userId }),
    ...(start.conversationId !== undefined && { conversationId: start.conversationId }),
    ...members,
    ...(replay !== undefined && { replayedFromExecutionId: replay.executionId, replayFromStepId: replay.stepId }),
  };
}
