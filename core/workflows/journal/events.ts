/**
 * The events of an execution's stream, each as JSON text. They are derived from its journal, so that a client that reads the stream
 * later gets the same events as one that is connected now.
 */

import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import { type EntryKind, EVENT_COUNTS, type JournalEntry, type StepPath } from "./entries.ts";
import { cancellationText, entryJson, errorText, outcomeText, type RestEntry, suspensionText } from "./outcome-text.ts";
import { isRun } from "./run-record.ts";
import type { JournalState } from "./state.ts";

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
