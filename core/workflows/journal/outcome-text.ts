/** How an execution settled, as JSON text for results, records, states and events. */

import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import type { EntryKind, JournalEntry, StepPath } from "./entries.ts";
import type { JournalState } from "./state.ts";

type RestKind = Extract<EntryKind, "suspend" | "end" | "error" | "cancel">;
/** An entry with which an execution settles. */
export type RestEntry = Extract<JournalEntry, readonly [RestKind, ...unknown[]]>;

/** JSON text of a value; `null` for undefined. */
export const entryJson = (value: unknown): string => JSON.stringify(value) ?? "null";

/**
 * @param index name of the member for the index of the step, which differs between results and events
 */
export function suspensionText(
  [, stepId, at, reason, data]: Extract<JournalEntry, readonly ["suspend", ...unknown[]]>,
  outline: Outline,
  index: "stepIndex" | "suspendedStepIndex",
): string {
  const place = `"${index}":${outline.get(stepId)?.index ?? 0}`;
  const step = stepId === "" ? "" : `,"stepId":"${stepId}"`;
  const suspendData = data === undefined || data === null ? "" : `,"suspendData":${JSON.stringify(data)}`;
  return `{"suspendedAt":"${isoTime(at)}","reason":${JSON.stringify(reason)},${place}${step}${suspendData}}`;
}

export function errorText(message: string, stepId: StepPath): string {
  const step = stepId === "" ? "" : `,"stepId":"${stepId}"`;
  return `{"message":${JSON.stringify(message)}${step}}`;
}

export const cancellationText = (at: number, reason: string): string =>
  `{"cancelledAt":"${isoTime(at)}","reason":${JSON.stringify(reason)}}`;

/** The member that says how the execution settled: `"suspension":{...}`, `"error":{...}` or `"cancellation":{...}`. */
export function outcomeMembers(entry: Exclude<RestEntry, readonly ["end", ...unknown[]]>, outline: Outline): string {
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
export function outcomeText(startAt: number, entry: RestEntry, outline: Outline): string {
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
export function restEntry({
  suspension,
  cancellation,
  error,
  status,
  output,
  endedAt,
}: JournalState): RestEntry | null {
  if (suspension !== null) {
    const { stepId, at, reason, data } = suspension;
    return ["suspend", stepId, at, reason, data];
  }
  if (cancellation !== null) return ["cancel", "", cancellation.at, cancellation.reason];
  if (error !== null) return ["error", error.stepId, endedAt ?? 0, error.message];
  return status === "completed" ? ["end", "", endedAt ?? 0, output] : null;
}
