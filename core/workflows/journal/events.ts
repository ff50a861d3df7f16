/**
 * The events of an execution's stream (contract, "Workflow stream"), each as JSON text. They follow from its journal, so that
 * the same ones are told to whoever listens now and to whoever asks later.
 */
import type { Outline } from "../definition/definition.ts";
import type { JournalState } from "./state.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { JournalEntry, EntryKind, StepPath } from "./entries.ts";
import { cancellationText, errorText, outcomeText, type RestEntry, suspensionText, jsonText } from "./outcome-text.ts";

/** Event 1. */
export const startEvent = (fold: JournalState, _outline: Outline): string =>
  `${workflowHead("workflow-start", fold, fold.start.at)},"status":"running","input":${jsonText(fold.start.input)}}`;

/**
 * The events that an entry is; `EVENTS_OF` says how many.
 *
 * @param fold one that has the entry; it may have gone on since
 */
export const eventsOf = (entry: JournalEntry, fold: JournalState, outline: Outline): string[] =>
  (EVENTS[entry[0]] as Events<JournalEntry>)(entry, fold, outline);

type Events<E extends JournalEntry> = (entry: E, fold: JournalState, outline: Outline) => string[];
type EventTable = { readonly [K in EntryKind]: Events<Extract<JournalEntry, readonly [K, ...unknown[]]>> };

const EVENTS: EventTable = {
  begin: ([, path, at, source], fold, outline) => [
    `${stepHead("step-start", path, at, fold, outline)},"status":"running","input":${jsonText(fold.values.get(source))}}`,
  ],
  done: ([, path, at, output], fold, outline) => [
    `${stepHead("step-complete", path, at, fold, outline)},"status":"success","output":${jsonText(output)}}`,
  ],
  same: ([, path, at, source], fold, outline) => {
    const status = fold.steps.get(path)?.branch === "none" ? "skipped" : "success";
    const output = jsonText(fold.values.get(source));
    return [`${stepHead("step-complete", path, at, fold, outline)},"status":"${status}","output":${output}}`];
  },
  fail: ([, path, at, message], fold, outline) => [
    `${stepHead("step-error", path, at, fold, outline)},"status":"error","error":${errorText(message, path)}}`,
  ],
  retry: () => [],
  wait: () => [],
  part: ([, path, at, part], fold, outline) => [
    `${stepHead("agent-part", path, at, fold, outline)},"data":${jsonText(part)}}`,
  ],
  suspend(entry, fold, outline) {
    const suspension = suspensionText(entry, outline, "stepIndex");
    const head = workflowHead("workflow-suspended", fold, entry[2]);
    return [`${head},"status":"suspended","suspension":${suspension}}`, resultEvent(entry, fold, outline)];
  },
  resume([, path, at], fold) {
    const step = path === "" ? "" : `,"stepId":"${path}"`;
    const input = jsonText(fold.start.input);
    const head = workflowHead("workflow-start", fold, at);
    return [`${head},"status":"running","input":${input},"metadata":{"resumed":true${step}}}`];
  },
  end(entry, fold, outline) {
    const head = workflowHead("workflow-complete", fold, entry[2]);
    return [`${head},"status":"completed","output":${jsonText(entry[3])}}`, resultEvent(entry, fold, outline)];
  },
  error(entry, fold, outline) {
    const [, stepId, at, message] = entry;
    const head = workflowHead("workflow-error", fold, at);
    return [`${head},"status":"error","error":${errorText(message, stepId)}}`, resultEvent(entry, fold, outline)];
  },
  cancel(entry, fold, outline) {
    const [, , at, reason] = entry;
    const cancellation = cancellationText(at, reason);
    const head = workflowHead("workflow-cancelled", fold, at);
    return [`${head},"status":"cancelled","cancellation":${cancellation}}`, resultEvent(entry, fold, outline)];
  },
};

/** What all events begin with. Types, ids and paths hold nothing that JSON would escape. */
const head = (type: string, { start }: JournalState, at: number): string =>
  `{"type":"${type}","executionId":"${start.id}","timestamp":"${isoTime(at)}"`;

const workflowHead = (type: string, fold: JournalState, at: number): string =>
  `${head(type, fold, at)},"from":${JSON.stringify(fold.start.workflowId)}`;

function stepHead(type: string, path: StepPath, at: number, fold: JournalState, outline: Outline): string {
  const step = outline.get(path);
  const place = step === undefined ? "" : `,"stepIndex":${step.index},"stepType":"${step.type}"`;
  return `${head(type, fold, at)},"from":"${path}"${place}`;
}

const resultEvent = (entry: RestEntry, fold: JournalState, outline: Outline): string =>
  `${head("workflow-result", fold, entry[2])},${outcomeText(fold.start.at, entry, outline)}}`;
