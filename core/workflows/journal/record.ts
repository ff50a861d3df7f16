/** An execution as the API shows it: the record in lists, the result, and the state. */
import type { ExecutionState, PendingApproval } from "../../../generated/types.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import { type CompactText, CompactTextBuilder } from "./compact-text.ts";
import {
  type EntryKind,
  EVENT_COUNTS,
  type ExecutionStart,
  type ExecutionStatus,
  type JournalEntry,
  type StepPath,
} from "./entries.ts";
import { isSuperseded, type JournalState, type StepState, waitingSteps } from "./state.ts";

// How an execution settled, as JSON text for results, records, states and events.

type RestKind = Extract<EntryKind, "suspend" | "end" | "error" | "cancel">;
/** An entry with which an execution settles. */
type RestEntry = Extract<JournalEntry, readonly [RestKind, ...unknown[]]>;

/** JSON text of a value; `null` for undefined. */
export const entryJson = (value: unknown): string => JSON.stringify(value) ?? "null";

/**
 * @param index name of the member for the index of the step, which differs between results and events
 */
function suspensionText(
  [, stepId, at, reason, data]: Extract<JournalEntry, readonly ["suspend", ...unknown[]]>,
  outline: Outline,
  index: "stepIndex" | "suspendedStepIndex",
): string {
  const place = `"${index}":${outline.get(stepId)?.index ?? 0}`;
  const step = stepId === "" ? "" : `,"stepId":"${stepId}"`;
  const suspendData = data === undefined || data === null ? "" : `,"suspendData":${JSON.stringify(data)}`;
  return `{"suspendedAt":"${isoTime(at)}","reason":${JSON.stringify(reason)},${place}${step}${suspendData}}`;
}

function errorText(message: string, stepId: StepPath): string {
  const step = stepId === "" ? "" : `,"stepId":"${stepId}"`;
  return `{"message":${JSON.stringify(message)}${step}}`;
}

const cancellationText = (at: number, reason: string): string =>
  `{"cancelledAt":"${isoTime(at)}","reason":${JSON.stringify(reason)}}`;

/** The member that says how the execution settled: `"suspension":{...}`, `"error":{...}` or `"cancellation":{...}`. */
function outcomeMembers(entry: Exclude<RestEntry, readonly ["end", ...unknown[]]>, outline: Outline): string {
  switch (entry[0]) {
    case "suspend":
      return `"suspension":${suspensionText(entry, outline, "stepIndex")}`;
    case "error":
      return `"error":${errorText(entry[3], entry[1])}`;
    case "cancel":
      return `"cancellation":${cancellationText(entry[2], entry[3])}`;
  }
}

/** The members of an execution result, starting with `startAt`. */
function outcomeText(startAt: number, entry: RestEntry, outline: Outline): string {
  const start = `"startAt":"${isoTime(startAt)}"`;
  if (entry[0] === "suspend") {
    const suspension = suspensionText(entry, outline, "suspendedStepIndex");
    return `${start},"endAt":null,"status":"suspended","result":null,"suspension":${suspension}`;
  }
  const end = `${start},"endAt":"${isoTime(entry[2])}"`;
  if (entry[0] === "end") return `${end},"status":"completed","result":${entryJson(entry[3])}`;
  const status = entry[0] === "error" ? "error" : "cancelled";
  return `${end},"status":"${status}","result":null,${outcomeMembers(entry, outline)}`;
}

/** The entry with which the execution settled; null while it runs. */
function restEntry({ suspension, cancellation, error, status, output, endedAt }: JournalState): RestEntry | null {
  if (suspension !== null) {
    const { stepId, at, reason, data } = suspension;
    return ["suspend", stepId, at, reason, data];
  }
  if (cancellation !== null) return ["cancel", "", cancellation.at, cancellation.reason];
  if (error !== null) return ["error", error.stepId, endedAt ?? 0, error.message];
  return status === "completed" ? ["end", "", endedAt ?? 0, output] : null;
}

// Executions that are runs of agents: their definition is not in the manifest, and their record differs.

/** Marks workflow ids of runs: no id of a workflow has a colon. */
const PREFIX = "agent:";
/** Prefix of the ids of runs, so that they differ from ids of executions: no id that a client chooses has a slash. */
const ID_PREFIX = "run/";

export const runDefinitionId = (agentId: string): string => PREFIX + agentId;
export const runAgentId = (definitionId: string): string => definitionId.slice(PREFIX.length);
export const isRun = (workflowId: string): boolean => workflowId.startsWith(PREFIX);
/** Whether it is a task of A2A. */
export const isTask = ({ workflowId, input }: Pick<ExecutionStart, "workflowId" | "input">): boolean =>
  isRun(workflowId) && (input as { isTask?: true }).isTask === true;
export const runExecutionId = (runId: string): string => ID_PREFIX + runId;
export const runIdOf = ({ id }: Pick<ExecutionStart, "id">): string => id.slice(ID_PREFIX.length);

/** The status of a run by that of its execution. */
export const RUN_STATUS: Readonly<Record<ExecutionStatus, string>> = {
  running: "running",
  suspended: "waiting",
  completed: "completed",
  error: "error",
  cancelled: "cancelled",
};

/** The output of the step of a run. */
export interface RunOutput {
  readonly output: unknown;
  readonly usage: unknown;
}

/** What a run waits for, as the data of its suspension. */
export interface RunSuspension {
  readonly approvals: readonly PendingApproval[];
}

/** The record of a run as JSON, as its list returns it. */
export function runRecordText(state: JournalState): string {
  const { start, status, endedAt, output, error } = state;
  let text = `{"runId":${JSON.stringify(runIdOf(start))},"agentId":${JSON.stringify(start.workflowName)},"status":"${RUN_STATUS[status]}"`;
  if (start.userId !== undefined) text += `,"userId":${JSON.stringify(start.userId)}`;
  if (start.conversationId !== undefined) text += `,"conversationId":${JSON.stringify(start.conversationId)}`;
  text += `,"startTime":"${isoTime(start.at)}"`;
  if (endedAt !== null) text += `,"endTime":"${isoTime(endedAt)}"`;
  if (status === "completed") {
    const { usage, output: given } = output as RunOutput;
    text += `,"usage":${entryJson(usage)},"output":${entryJson(given)}`;
  }
  if (error !== null) text += `,"error":${JSON.stringify(error.message)}`;
  return `${text},"approvals":${state.suspension === null ? "[]" : entryJson((state.suspension.data as RunSuspension).approvals)}}`;
}

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

/*
 * The events of an execution's stream, each as JSON text. They are derived from its journal, so that a client that reads the stream
 * later gets the same events as one that is connected now.
 */

/** How journal entries become events. */
export interface EventForm {
  /** Makes the first event; null when there is none beside those of the entries. */
  readonly start: ((state: JournalState, outline: Outline) => string) | null;
  /** How many events an entry of each kind produces. */
  readonly counts: Readonly<Record<EntryKind, number>>;
  /** The events of an entry. @param state after the entry, or after later ones */
  texts(entry: JournalEntry, state: JournalState, outline: Outline): string[];
}

const NO_EVENTS = Object.fromEntries(Object.keys(EVENT_COUNTS).map((kind) => [kind, 0])) as Record<EntryKind, number>;

/** The stream of an agent's run: its parts, and how it ended when the last part does not tell. */
const RUN_EVENTS: EventForm = {
  start: null,
  counts: { ...NO_EVENTS, part: 1, error: 1, cancel: 1 },
  texts([kind, , , value]) {
    if (kind === "part") return [entryJson(value)];
    return [kind === "error" ? JSON.stringify({ type: "error", error: value }) : '{"type":"abort"}'];
  },
};

export const eventForm = ({ start }: JournalState): EventForm =>
  isRun(start.workflowId) ? RUN_EVENTS : WORKFLOW_EVENTS;

export const startEvent = (state: JournalState, _outline: Outline): string =>
  `${workflowHead("workflow-start", state, state.start.at)},"status":"running","input":${entryJson(state.start.input)}}`;

/**
 * The events that an entry produces, as many as `EVENT_COUNTS` says.
 *
 * @param state after the entry, or after later ones
 */
export const eventTexts = (entry: JournalEntry, state: JournalState, outline: Outline): string[] =>
  (EVENTS[entry[0]] as Events<JournalEntry>)(entry, state, outline);

type Events<E extends JournalEntry> = (entry: E, current: JournalState, outline: Outline) => string[];
type EventTable = { readonly [K in EntryKind]: Events<Extract<JournalEntry, readonly [K, ...unknown[]]>> };

const EVENTS: EventTable = {
  begin: ([, path, at, source], state, outline) => [
    `${stepHead("step-start", path, at, state, outline)},"status":"running","input":${entryJson(state.values.get(source))}}`,
  ],
  done: ([, path, at, output], state, outline) => [
    `${stepHead("step-complete", path, at, state, outline)},"status":"success","output":${entryJson(output)}}`,
  ],
  same: ([, path, at, source], state, outline) => {
    const status = state.steps.get(path)?.branch === "none" ? "skipped" : "success";
    const output = entryJson(state.values.get(source));
    return [`${stepHead("step-complete", path, at, state, outline)},"status":"${status}","output":${output}}`];
  },
  fail: ([, path, at, message], state, outline) => [
    `${stepHead("step-error", path, at, state, outline)},"status":"error","error":${errorText(message, path)}}`,
  ],
  retry: () => [],
  wait: () => [],
  rest: () => [],
  interrupt: () => [],
  answer: () => [],
  part: ([, path, at, part], state, outline) => [
    `${stepHead("agent-part", path, at, state, outline)},"data":${entryJson(part)}}`,
  ],
  keep: () => [],
  suspend(entry, state, outline) {
    const suspension = suspensionText(entry, outline, "stepIndex");
    const head = workflowHead("workflow-suspended", state, entry[2]);
    return [`${head},"status":"suspended","suspension":${suspension}}`, resultEvent(entry, state, outline)];
  },
  resume([, path, at], state) {
    const step = path === "" ? "" : `,"stepId":"${path}"`;
    const input = entryJson(state.start.input);
    const head = workflowHead("workflow-start", state, at);
    return [`${head},"status":"running","input":${input},"metadata":{"resumed":true${step}}}`];
  },
  end(entry, state, outline) {
    const ended: RestEntry = ["end", "", entry[2], state.output];
    const head = workflowHead("workflow-complete", state, entry[2]);
    return [`${head},"status":"completed","output":${entryJson(state.output)}}`, resultEvent(ended, state, outline)];
  },
  error(entry, state, outline) {
    const [, stepId, at, message] = entry;
    const head = workflowHead("workflow-error", state, at);
    return [`${head},"status":"error","error":${errorText(message, stepId)}}`, resultEvent(entry, state, outline)];
  },
  cancel(entry, state, outline) {
    const [, , at, reason] = entry;
    const cancellation = cancellationText(at, reason);
    const head = workflowHead("workflow-cancelled", state, at);
    return [`${head},"status":"cancelled","cancellation":${cancellation}}`, resultEvent(entry, state, outline)];
  },
};

const WORKFLOW_EVENTS: EventForm = { start: startEvent, counts: EVENT_COUNTS, texts: eventTexts };

/** The members that every event begins with. Types, ids and paths contain nothing that JSON would escape. */
const head = (type: string, { start }: JournalState, at: number): string =>
  `{"type":"${type}","executionId":"${start.id}","timestamp":"${isoTime(at)}"`;

const workflowHead = (type: string, state: JournalState, at: number): string =>
  `${head(type, state, at)},"from":${JSON.stringify(state.start.workflowId)}`;

function stepHead(type: string, path: StepPath, at: number, state: JournalState, outline: Outline): string {
  const step = outline.get(path);
  const place = step === undefined ? "" : `,"stepIndex":${step.index},"stepType":"${step.type}"`;
  return `${head(type, state, at)},"from":"${path}"${place}`;
}

const resultEvent = (entry: RestEntry, state: JournalState, outline: Outline): string =>
  `${head("workflow-result", state, entry[2])},${outcomeText(state.start.at, entry, outline)}}`;
