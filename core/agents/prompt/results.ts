/** Tool results in the model messages of a request, and the calls that they belong to. */

import type { LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import type { CallToolResult } from "@modelcontextprotocol/client";
import type { ContentItem, McpContent } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { type Fields, isObject } from "../../lib/is-object.ts";
import { isContent } from "../../tools/content.ts";

type Spoken = { readonly role: unknown; readonly content: unknown };

/** Where what comes after the last answer begins: results of its calls, and what the user says, in any order. */
export const afterLastAnswer = (messages: readonly Fields[]): number =>
  messages.findLastIndex(({ role }) => role === "assistant") + 1;

/** Ids of the calls in a message. */
export function callsIn({ parts, content }: Fields): string[] {
  const list: unknown[] = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list.flatMap((part) =>
    isObject(part) && typeof part.toolCallId === "string" && part.type !== "tool-result" ? [part.toolCallId] : [],
  );
}

/**
 * Checks that every result has a call.
 *
 * @param messages checked by `buildPrompt`
 * @param end index from which the calls of results may be in the store instead
 * @throws ServiceError `invalid_input` that names the field
 */
export function requireCalls(messages: readonly Fields[], field: string, end: number): void {
  const calls = new Set(messages.flatMap(callsIn));
  for (const [index, { role, content }] of messages.slice(0, end).entries()) {
    if (role !== "tool") continue;
    for (const [position, { type, toolCallId }] of (content as readonly Fields[]).entries())
      if (type === "tool-result" && !calls.has(toolCallId as string))
        throw invalid(
          `${field}[${index}].content[${position}].toolCallId: there is no call ${JSON.stringify(toolCallId)} to which this is the result`,
        );
  }
}

/**
 * Ids of the calls without a result in the last answer, when nobody but tools has spoken since. Empty when the answer has no results
 * either: then its calls have been left alone.
 *
 * @param counts which tools do
 * @param isAnswered whether something else of the answer has been answered
 */
export function callsLeft(
  messages: readonly Spoken[],
  counts: (toolName: string) => boolean = () => true,
  isAnswered = false,
): string[] {
  if (messages.at(-1)?.role === "user") return [];
  const results = new Set<unknown>();
  const calls: Fields[] = [];
  for (let index = messages.length - 1; index >= 0; index--) {
    const { role, content } = messages[index]!;
    if (role === "system") continue;
    if (role !== "assistant" && (role !== "tool" || calls.length > 0)) break;
    for (const part of Array.isArray(content) ? (content as readonly Fields[]) : []) {
      if (part.type === "tool-result") results.add(part.toolCallId);
      else if (part.type === "tool-call" && counts(part.toolName as string)) calls.push(part);
    }
  }
  const left = calls.filter(({ toolCallId }) => !results.has(toolCallId));
  return isAnswered || left.length < calls.length ? left.map(({ toolCallId }) => toolCallId as string).reverse() : [];
}

/** @throws ServiceError `invalid_input` when a request ends with results of some calls and others have none */
export function requireAllResults(messages: readonly Spoken[], field: string): void {
  const [id] = callsLeft(messages);
  if (id !== undefined)
    throw invalid(
      `${field}: the call ${JSON.stringify(id.slice(0, MAX_NAMED_ID))} has no output: send those of all calls`,
    );
}

/** Of an id in an error: clients choose how long they are. */
const MAX_NAMED_ID = 128;

// Results and failures of tools in the form that models accept, and their content in that of MCP.

type JsonOutput = Extract<LanguageModelV3ToolResultOutput, { type: "json" }>["value"];
type ModelItem = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>["value"][number];

/** A string is sent as text, content as a list of texts and files, anything else as JSON. */
export function resultOutput(value: unknown): LanguageModelV3ToolResultOutput {
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
