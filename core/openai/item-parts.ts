/** Converts items to the form that agents read, and validates those that a client sends. */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import { summarySection } from "../agents/conversation/recall.ts";
import { filePart } from "../agents/prompt/file-data.ts";
import { CALL_WAITS } from "../agents/prompt/model-input.ts";
import { resultOutput } from "../agents/prompt/results.ts";
import { parseJsonText } from "../http/decode.ts";
import { invalid } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { parseArguments } from "./chat-input.ts";
import { type PartReaders, readContent, readFile, readImage, textPart } from "./content.ts";
import { unsupported } from "./errors.ts";
import type { CallOutputItem, ConversationItem, MessageItem, ReasoningItem } from "./items.ts";
import { type InputPart, placed } from "./places.ts";
import { isNothing } from "./tools.ts";

const TEXTS: PartReaders = { input_text: textPart(), output_text: textPart() };
const USER_PARTS: PartReaders = {
  ...TEXTS,
  input_image({ image_url: url, file_id: id }, path) {
    if (isNothing(url) && !isNothing(id))
      throw unsupported(`${path}.file_id`, "is not available: send the image itself");
    return readImage(url, `${path}.image_url`);
  },
  input_file: readFile,
};
const ASSISTANT_PARTS: PartReaders = { ...TEXTS, refusal: textPart("refusal") };

const CONTENT: Readonly<Record<MessageItem["role"], PartReaders>> = {
  user: USER_PARTS,
  system: TEXTS,
  developer: TEXTS,
  assistant: ASSISTANT_PARTS,
};

/** Names of functions by the ids of their calls that have no output yet. */
type OpenCalls = ReadonlyMap<string, string[]>;

/** @param items of the whole conversation: a client may put an output before its call */
export function unansweredCalls(items: readonly ConversationItem[]): OpenCalls {
  const open = new Map<string, string[]>();
  for (const item of items) {
    if (item.type !== "function_call") continue;
    const names = open.get(item.call_id) ?? [];
    open.set(item.call_id, names);
    names.push(item.name);
  }
  return open;
}

/** @param path of the item, for messages @throws ServiceError `invalid_input` that names the field */
export function partsOf(item: ConversationItem, path: string, open: OpenCalls): readonly InputPart[] {
  const parts = readParts(item, path, open);
  const field = item.type === "reasoning" ? "encrypted_content" : "provider_metadata";
  for (const part of parts) if (part.providerOptions !== undefined) placed(part, `${path}.${field}`);
  return parts;
}

function readParts(item: ConversationItem, path: string, open: OpenCalls): readonly InputPart[] {
  const carried = carriedBy(item);
  switch (item.type) {
    case "message": {
      const parts = readContent(item.content, CONTENT[item.role], `${path}.content`);
      const texts = parts.filter(({ type, text }) => type !== "text" || (text as string).trim() !== "");
      return item.role === "assistant" ? texts.map((part) => ({ ...part, ...carried })) : parts;
    }
    case "function_call": {
      const { call_id: toolCallId, name: toolName } = item;
      const input = parseArguments(item.arguments, `${path}.arguments`);
      return [{ type: "tool-call", toolCallId, toolName, input, ...carried }];
    }
    case "function_call_output": {
      const toolName = open.get(item.call_id)?.shift();
      if (toolName === undefined) throw invalid(`${path}.call_id must be the id of a call that has no output yet`);
      return [{ type: "tool-result", toolCallId: item.call_id, toolName, output: outputOf(item, path) }];
    }
    case "penstock:tool_call": {
      const call = { toolCallId: item.call_id, toolName: item.name };
      const input = parseArguments(item.arguments, `${path}.arguments`);
      const given = item.status === "in_progress" ? CALL_WAITS : item.output;
      const output = item.error === null ? resultOutput(given) : { type: "error-text", value: item.error };
      return [
        { type: "tool-call", ...call, input, ...carried },
        { type: "tool-result", ...call, output },
      ];
    }
    case "compaction":
      return [{ type: "text", text: summarySection(unsealedSummary(item.encrypted_content, path)) }];
    case "reasoning": {
      const text = item.summary.map((part) => part.text).join("\n\n");
      return text === "" && carried === undefined ? [] : [{ type: "reasoning", text, ...carried }];
    }
  }
}

function carriedBy(item: ConversationItem): { providerOptions: SharedV3ProviderMetadata } | undefined {
  if (item.type === "compaction") return undefined;
  const metadata = item.type === "reasoning" ? unsealed(item) : item.provider_metadata;
  return metadata === undefined ? undefined : { providerOptions: metadata };
}

/** `encrypted_content` is opaque, but not secret: the metadata that a provider expects back with its reasoning, or a summary. */
export const sealed = (content: SharedV3ProviderMetadata | { summary: string }): string =>
  Buffer.from(JSON.stringify(content)).toString("base64url");

const opened = (text: string): unknown => parseJsonText(Buffer.from(text, "base64url").toString());

function unsealedSummary(text: string, path: string): string {
  const content = opened(text);
  if (isObject(content) && typeof content.summary === "string" && content.summary !== "") return content.summary;
  throw invalid(`${path}.encrypted_content must be that of an item which /v1/responses/compact has given`);
}

/** Decodes the metadata; undefined for a text that another service has encoded. */
function unsealed({ encrypted_content: text }: ReasoningItem): SharedV3ProviderMetadata | undefined {
  if (text === undefined) return undefined;
  const metadata = opened(text);
  return isObject(metadata) && Object.values(metadata).every(isObject)
    ? (metadata as SharedV3ProviderMetadata)
    : undefined;
}

/** Texts become one text for the model; with images and files they stay a list. */
function outputOf({ output }: CallOutputItem, path: string): Fields {
  if (typeof output === "string") return { type: "text", value: output };
  const parts = readContent(output, USER_PARTS, `${path}.output`);
  if (parts.every(({ type }) => type === "text"))
    return { type: "text", value: parts.map(({ text }) => text).join("\n") };
  return { type: "content", value: parts.map((part, index) => resultPart(part, `${path}.output[${index}]`)) };
}

function resultPart(part: InputPart, path: string): Fields {
  if (part.type === "text") return part;
  const kind = part.type === "image" ? "image" : "file";
  const source = part.image ?? part.data;
  if (/^https?:/i.test(String(source))) return { type: `${kind}-url`, url: source };
  const field = kind === "image" ? "image_url" : "file_data";
  const { data, mediaType } = filePart(source, field, part.mediaType, path, { allowBase64: true });
  return { type: `${kind}-data`, data, mediaType };
}
