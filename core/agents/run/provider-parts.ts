/** Parts of a provider as parts of a run: with the fields that are known, and what the provider wants back. */
import type { LanguageModelV3File, LanguageModelV3Source, SharedV3ProviderMetadata } from "@ai-sdk/provider";
import type { AgentPart } from "./parts.ts";

interface Signed {
  readonly providerMetadata?: SharedV3ProviderMetadata | undefined;
}

export const metadataOf = ({ providerMetadata }: Signed) =>
  providerMetadata === undefined ? undefined : { providerMetadata };

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
