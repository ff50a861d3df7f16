/** Why an answer that did not simply stop is not whole, for those who use it. */
import type { FinishReason } from "./parts.ts";

/** What became of an answer of which the end is missing: its tool calls may not be whole either. */
export const CUT: Partial<Record<FinishReason, string>> = {
  length: "was cut off at the limit of output tokens",
  "content-filter": "was stopped by the provider's content filter",
};

const UNFINISHED: Partial<Record<FinishReason, string>> = {
  ...CUT,
  "tool-calls": "is missing, since it reached its maxSteps and still called tools",
  error: "ended with an error of the provider",
  other: "ended for a reason that is not known",
};

/** What to say of an agent whose run ended so; null when it has finished. */
export function unfinished(agentId: string, reason: FinishReason): string | null {
  const why = UNFINISHED[reason];
  return why === undefined ? null : `agent ${JSON.stringify(agentId)} did not finish: its answer ${why}`;
}

/** The reason with which a step of a run ended: what providers say does not always go with what came. */
export function stepReason(given: FinishReason, hasCalls: boolean): FinishReason {
  if (!hasCalls) return given === "tool-calls" ? "stop" : given;
  return given === "stop" || given === "other" ? "tool-calls" : given;
}
