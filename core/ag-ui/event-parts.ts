/** Builds single events and their parts. */
import type { AgUiEvent, AgUiUsage } from "../../generated/types.ts";
import type { AgentPart, Usage } from "../agents/run/parts.ts";

export type PartOf<T extends AgentPart["type"]> = Extract<AgentPart, { type: T }>;
type EventOf<T extends AgUiEvent["type"]> = Extract<AgUiEvent, { type: T }>;

/** A result as text: a value that is not text becomes JSON. */
export const resultText = (output: unknown): string =>
  typeof output === "string" ? output : (JSON.stringify(output) ?? "null");

export const deniedText = (reason: string | undefined): string =>
  reason === undefined ? "The call was denied." : `The call was denied: ${reason}`;

export function usageOf(usage: Usage, model: string | undefined): AgUiUsage {
  const { promptTokens: inputTokens, completionTokens: outputTokens, totalTokens } = usage;
  const { cachedInputTokens, reasoningTokens } = usage;
  return {
    ...(model !== undefined && model !== "" && { model }),
    inputTokens,
    outputTokens,
    totalTokens,
    // A count that a provider does not report is 0 here, and is left out.
    ...(cachedInputTokens > 0 && { cachedInputTokens }),
    ...(reasoningTokens > 0 && { reasoningTokens }),
  };
}

/** The event for a part that the protocol does not cover. */
export function customEvent(part: PartOf<"source" | "file">): EventOf<"CUSTOM"> {
  if (part.type === "file") return { type: "CUSTOM", name: "file", value: part.file };
  const { id, sourceType, title } = part;
  if (part.sourceType === "url")
    return { type: "CUSTOM", name: "source", value: { id, sourceType, url: part.url, title } };
  const { mediaType, filename } = part;
  return { type: "CUSTOM", name: "source", value: { id, sourceType, mediaType, title, filename } };
}

/** The event with metadata that the provider expects back, as text that a client keeps. */
export const encryptedValue = (
  subtype: "message" | "tool-call",
  entityId: string,
  metadata: object,
): EventOf<"REASONING_ENCRYPTED_VALUE"> => ({
  type: "REASONING_ENCRYPTED_VALUE",
  subtype,
  entityId,
  encryptedValue: JSON.stringify(metadata),
});
