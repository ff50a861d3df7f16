/** Results and failures of tools in the form that models accept, and their content in that of MCP. */
import type { LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import type { CallToolResult } from "@modelcontextprotocol/client";
import type { ContentItem, McpContent } from "../../../generated/types.ts";
import { isContent } from "../../tools/content.ts";

type JsonOutput = Extract<LanguageModelV3ToolResultOutput, { type: "json" }>["value"];
type ModelItem = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>["value"][number];

/** A string is sent as text, content as a list of texts and files, anything else as JSON. */
export function toolOutput(value: unknown): LanguageModelV3ToolResultOutput {
  if (typeof value === "string") return { type: "text", value };
  if (isContent(value)) return { type: "content", value: value.value.map(modelItem) };
  return { type: "json", value: (value ?? null) as JsonOutput };
}

const TEXTS = /^text\/|[/+](?:json|xml|yaml)\b/;
const PDF = "application/pdf";

/** Pictures, documents and texts are what models read in a result; of anything else a sentence stays. */
function modelItem(item: ContentItem): ModelItem {
  if (item.type === "text") return { type: "text", text: item.text };
  const { mediaType = "" } = item;
  if ("url" in item) {
    const { type, url } = item;
    const isRead = /^https?:/i.test(url) && (type === "image-url" || mediaType === PDF);
    return isRead ? { type, url } : { type: "text", text: `[A file is at ${url}]` };
  }
  const { data, filename } = item;
  if (item.type === "image-data" || mediaType.startsWith("image/")) return { type: "image-data", data, mediaType };
  if (mediaType === PDF) return { type: "file-data", data, mediaType, ...(filename && { filename }) };
  if (TEXTS.test(mediaType)) return { type: "text", text: Buffer.from(data, "base64").toString() };
  return { type: "text", text: `[A file was here, which models are not given: ${mediaType}]` };
}

export const toolFailure = (message: string): LanguageModelV3ToolResultOutput => ({
  type: "error-text",
  value: message,
});

/** A piece of what a tool of a foreign MCP server gave. */
export function fromMcp(piece: CallToolResult["content"][number]): ContentItem {
  switch (piece.type) {
    case "text":
      return { type: "text", text: piece.text };
    case "resource_link":
      return { type: "file-url", url: piece.uri, ...(piece.mimeType && { mediaType: piece.mimeType }) };
    case "resource": {
      const { uri: filename, mimeType, ...resource } = piece.resource;
      const [data, type] =
        "text" in resource
          ? [Buffer.from(resource.text).toString("base64"), "text/plain"]
          : [resource.blob, "application/octet-stream"];
      return { type: "file-data", data, mediaType: mimeType ?? type, filename };
    }
    default:
      return { type: piece.type === "image" ? "image-data" : "file-data", data: piece.data, mediaType: piece.mimeType };
  }
}

/** The piece that MCP clients get: as it came, if it is from another server. */
export function toMcp(item: ContentItem): McpContent {
  if (item.type === "text") return { type: "text", text: item.text };
  const { mediaType: mimeType = "" } = item;
  if ("url" in item) return { type: "resource_link", uri: item.url, name: item.url, ...(mimeType && { mimeType }) };
  const { data, filename: uri = "file:///result" } = item;
  if (item.type === "image-data") return { type: "image", data, mimeType };
  if (mimeType.startsWith("audio/")) return { type: "audio", data, mimeType };
  const held = TEXTS.test(mimeType) ? { text: Buffer.from(data, "base64").toString() } : { blob: data };
  return { type: "resource", resource: { uri, mimeType, ...held } };
}

/** The file in an item; undefined for a text, and for an address that only another server knows. */
export function fileOf(item: ContentItem) {
  const { data: raw, url, mediaType, filename } = item as Partial<Record<string, string>>;
  return raw !== undefined || /^https?:/i.test(url ?? "")
    ? ({ raw, url, mediaType, filename } as Record<"mediaType", string> & { raw?: string; url?: string })
    : undefined;
}
