/** Parts of a provider as parts of a run: with the fields that are known, and what the provider wants back. */
import type {
  JSONObject,
  LanguageModelV3File,
  LanguageModelV3Source,
  SharedV3ProviderMetadata,
} from "@ai-sdk/provider";
import { carriesMessage, type Thought } from "../prompt/provider-options.ts";
import type { AgentPart, ToolCall } from "./parts.ts";

type Source = Extract<AgentPart, { type: "source" }>;

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
export const uiSource = (part: Source) => ({
  type: `source-${part.sourceType}` as const,
  sourceId: part.id,
  ...sourceFields(part),
});

export const byProvider = (part: { providerExecuted?: boolean }) =>
  part.providerExecuted === true ? ({ providerExecuted: true } as const) : undefined;

export const base64Of = ({ data }: LanguageModelV3File): string =>
  typeof data === "string" ? data : Buffer.from(data).toString("base64");

export const sourcePart = (part: LanguageModelV3Source): AgentPart => {
  const { type, sourceType, id } = part;
  return { type, sourceType, id, ...sourceFields(part) } as Source;
};

function sourceFields(part: Source | LanguageModelV3Source) {
  const metadata = metadataOf(part);
  if (part.sourceType === "url") {
    const { url, title } = part;
    return { url, ...(title !== undefined && { title }), ...metadata };
  }
  const { mediaType, title, filename } = part;
  return { mediaType, title, ...(filename !== undefined && { filename }), ...metadata };
}
