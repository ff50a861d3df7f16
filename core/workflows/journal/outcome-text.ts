/** JSON text of how an execution came to rest, as results, records, states and events put it together. */

import { isoTime } from "../../lib/iso-time.ts";
import type { Outline } from "../definition/definition.ts";
import type { EntryKind, JournalEntry, StepPath } from "./entries.ts";
import type { JournalState } from "./state.ts";

type Rests = Extract<EntryKind, "suspend" | "end" | "error" | "cancel">;
/** An entry after which an execution rests. */
export type RestEntry = Extract<JournalEntry, readonly [Rests, ...unknown[]]>;

/** JSON text of a value; of none at all, null. */
export const entryJson = (value: unknown): string => JSON.stringify(value) ?? "null";

/**
 * @param index what the place of the step at the top is called
 * @returns an object; `suspendData` is what the step hands out
 */
export function suspensionText(
  [, stepId, at, reason, data]: Extract<JournalEntry, readonly ["suspend", ...unknown[]]>,
  outline: Outline,
  index: "stepIndex" | "suspendedStepIndex",
): string {
  const place = `"${index}":${outline.get(stepId)?.index ?? 0}`;
  const step = stepId === "" ? "" : `,"stepId":"${stepId}"`;
  const handed = data === undefined || data === null ? "" : `,"suspendData":${JSON.stringify(data)}`;
  return `{"suspendedAt":"${isoTime(at)}","reason":${JSON.stringify(reason)},${place}${step}${handed}}`;
}

export function errorText(message: string, stepId: StepPath): string {
  const step = stepId === "" ? "" : `,"stepId":"${stepId}"`;
  return `{"message":${JSON.stringify(message)}${step}}`;
}

export const cancellationText = (at: number, reason: string): string =>
  `{"cancelledAt":"${isoTime(at)}","reason":${JSON.stringify(reason)}}`;

/** Why it rests: `"suspension":{...}`, `"error":{...}` or `"cancellation":{...}`. */
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

/** The members of an execution result from `startAt` on. */
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

/** The entry after which it rests. Null while it runs. */
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
