/** Parts of a provider as parts of a run: with the fields that are known, and what the provider wants back. */
import type {
  JSONObject,
  LanguageModelV3File,
  LanguageModelV3Source,
  SharedV3ProviderMetadata,
} from "@ai-sdk/provider";
import { carriesMessage, type Thought } from "../prompt/provider-options.ts";
import type { AgentPart, ToolCall } from "./parts.ts";

interface Signed {
  readonly providerMetadata?: SharedV3ProviderMetadata | undefined;
}

export const metadataOf = ({ providerMetadata }: Signed) =>
  providerMetadata === undefined ? undefined : { providerMetadata };

/**
 * A call with the thoughts that led to it, where their provider wants them back: clients of whole replies are sent no parts, and send
 * back the calls. Calls of chat completions have them already.
 */
export function withThoughts(call: ToolCall, thoughts: readonly Thought[]): ToolCall {
  const signed = thoughts.filter(({ providerMetadata }) => providerMetadata !== undefined);
  if (signed.length === 0 || Object.values(call.providerMetadata ?? {}).some(carriesMessage)) return call;
  const penstock = { thoughts: signed as (Thought & JSONObject)[] };
  return { ...call, providerMetadata: { ...call.providerMetadata, penstock } };
}

/** A source as UI messages and their chunks have it. */
export function uiSource(part: Extract<AgentPart, { type: "source" }>) {
  const { id: sourceId, title } = part;
  if (part.sourceType === "url") {
    const { url } = part;
    return { type: "source-url", sourceId, url, ...(title !== undefined && { title }), ...metadataOf(part) } as const;
  }
  const { mediaType, filename } = part;
  const source = { type: "source-document", sourceId, mediaType, title: part.title } as const;
  return { ...source, ...(filename !== undefined && { filename }), ...metadataOf(part) };
}

export const byProvider = (part: { providerExecuted?: boolean }) =>
  part.providerExecuted === true ? ({ providerExecuted: true } as const) : undefined;

export const base64Of = ({ data }: LanguageModelV3File): string =>
  typeof data === "string" ? data : Buffer.from(data).toString("base64");

export function sourcePart(part: LanguageModelV3Source): AgentPart {
  const { type, id, title } = part;
  const metadata = metadataOf(part);
  if (part.sourceType === "url") {
    const { sourceType, url } = part;
    return { type, sourceType, id, url, ...(title !== undefined && { title }), ...metadata };
  }
  const { sourceType, mediaType, filename } = part;
  const source = { type, sourceType, id, mediaType, title: part.title } as const;
  return { ...source, ...(filename !== undefined && { filename }), ...metadata };
}
