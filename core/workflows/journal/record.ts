/** An execution as the API shows it: the record of lists, the result, and the state. */
import type { ExecutionState } from "../../../generated/types.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import { entryJson, outcomeMembers, outcomeText, type RestEntry, restEntry } from "./outcome-text.ts";
import { isRun, runRecordText } from "./run-record.ts";
import type { JournalState } from "./state.ts";
import { stepText } from "./step-text.ts";
import { isSuperseded } from "./superseded.ts";

/** The record as JSON. It is written to the store when the execution comes to rest, and lists return that text unchanged. */
export function executionRecordText(state: JournalState, outline: Outline): string {
  const { start, status, values } = state;
  if (isRun(start.workflowId)) return runRecordText(state);
  const workflow = JSON.stringify(start.workflowId);
  const name = JSON.stringify(start.workflowName);
  const named = `"name":${name},"from":${workflow}`;
  const createdAt = isoTime(start.at);
  const input = entryJson(start.input);
  let events = `{"id":"start","type":"workflow-start",${named},"startTime":"${createdAt}","endTime":"${createdAt}","status":"running","input":${input}}`;
  // Steps often pass a value on, and the last output is that of the execution: do not write the same value as JSON twice.
  let value: unknown = start.input;
  let text = input;
  for (const step of state.steps.values()) {
    let output = "";
    if (step.status === "done" || step.status === "skipped") {
      const given = values.get(step.output);
      if (given !== value) {
        value = given;
        text = entryJson(given);
      }
      output = text;
    }
    const superseded = output === "" && isSuperseded(step.path, state, outline);
    events += `,${stepText(step, superseded ? "completed" : status, outline, output)}`;
  }
  const rest = restEntry(state);
  let outcome = "";
  if (rest !== null) {
    const members =
      rest[0] === "end" ? `"output":${rest[3] === value ? text : entryJson(rest[3])}` : outcomeMembers(rest, outline);
    events += `,${endText(rest, named, members)}`;
    outcome = `,${members}`;
  }
  const metadata = start.metadata === undefined ? "{}" : JSON.stringify(start.metadata);
  return `{"id":"${start.id}","workflowId":${workflow},"workflowName":${name},"status":"${status}"${ownerText(state)},"input":${input},"metadata":${metadata},"events":[${events}]${outcome},"createdAt":"${createdAt}","updatedAt":"${isoTime(state.updatedAt)}"}`;
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

/** A suspension has no end time, because the execution may go on. */
function endText(rest: RestEntry, named: string, members: string): string {
  const [kind, , at] = rest;
  const time = isoTime(at);
  const end = kind === "suspend" ? "" : `,"endTime":"${time}"`;
  const outcome = kind === "end" || kind === "error" ? `,${members}` : "";
  return `{"id":"end","type":"${END_TYPE[kind]}",${named},"startTime":"${time}"${end},"status":"${END_STATUS[kind]}"${outcome}}`;
}

/** The result of an execution at rest, as JSON. */
export function executionResultText(state: JournalState, outline: Outline): string {
  const rest = restEntry(state);
  if (rest === null) throw new Error(`execution ${state.start.id} has no result yet`);
  return `{"executionId":"${state.start.id}",${outcomeText(state.start.at, rest, outline)}}`;
}

export function executionStateView(current: JournalState, outline: Outline): ExecutionState {
  const { start, status, state, endedAt } = current;
  const { replay } = start;
  const rest = restEntry(current);
  const members = rest === null || rest[0] === "end" ? {} : JSON.parse(`{${outcomeMembers(rest, outline)}}`);
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
