/** Converts items to the form that agents read, and validates those that a client sends. */

import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import { summarySection } from "../agents/conversation/recall.ts";
import { filePart } from "../agents/prompt/file-data.ts";
import { CALL_WAITS } from "../agents/prompt/model-input.ts";
import { resultOutput } from "../agents/prompt/results.ts";
import { objectsIn, parseJsonText, textAt } from "../http/decode.ts";
import { invalid, listed } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { type InputPart, placed, unsupported } from "./errors.ts";
import { type CallOutputItem, type ConversationItem, itemId, type MessageItem, type ReasoningItem } from "./items.ts";
import { isNothing } from "./tools.ts";

// Texts, images and files of messages, in the form that agents read.

/** Reads a part of a message; `path` is its place in the request. */
type PartReader = (part: Fields, path: string) => InputPart;
type PartReaders = Readonly<Record<string, PartReader>>;

/** Reads a text, or a list of parts. */
export function readContent(content: unknown, readers: PartReaders, path: string): readonly InputPart[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return objectsIn(content, path).map(([part, at]) => {
    const reader = typeof part.type === "string" && Object.hasOwn(readers, part.type) ? readers[part.type] : undefined;
    if (reader === undefined) throw invalid(`${at}.type must be one of ${listed(Object.keys(readers))}`);
    return reader(part, at);
  });
}

/** Reads content and joins it to one text. */
export const readText = (content: unknown, readers: PartReaders, path: string): string =>
  readContent(content, readers, path)
    .map(({ text }) => text as string)
    .join("\n");

/** Makes a reader of parts with a text in the field `key`. */
export const textPart =
  (key = "text"): PartReader =>
  (part, path) => ({ type: "text", text: textAt(part, key, path) });

/** Reads an image: a web address or a `data:` URL. */
export function readImage(url: unknown, path: string): InputPart {
  if (typeof url !== "string" || url === "") throw invalid(`${path} must be a data: or http(s) URL`);
  return placed({ type: "image", image: url }, path);
}

const PDF = "application/pdf";

/** Reads a file: bytes as a `data:` URL or base64 text, or a web address. Without a media type it is assumed to be a PDF. */
export function readFile(file: Fields, path: string): InputPart {
  const { file_id: id, file_data: bytes, file_url: url, filename } = file;
  if (typeof id === "string" && bytes === undefined && url === undefined)
    throw unsupported(`${path}.file_id`, "is not available: send the file itself");
  const key = typeof bytes === "string" ? "file_data" : "file_url";
  const data = textAt(file, key, path);
  const name = typeof filename === "string" ? { filename } : undefined;
  const type = /^data:/i.test(data) ? undefined : { mediaType: PDF };
  return placed({ type: "file", data, ...type, ...name }, `${path}.${key}`);
}

const AUDIO_TYPES: Readonly<Record<string, string>> = { wav: "audio/wav", mp3: "audio/mpeg" };

export function readAudio(audio: unknown, path: string): InputPart {
  if (!isObject(audio)) throw invalid(`${path} must be object`);
  const mediaType = AUDIO_TYPES[String(audio.format)];
  if (mediaType === undefined) throw invalid(`${path}.format must be one of "wav", "mp3"`);
  return placed({ type: "file", data: textAt(audio, "data", path), mediaType }, `${path}.data`);
}

// Reads `input` of a response: a text or items, as items with an id.

/** A reference to an item of a stored response. */
interface ItemReference {
  readonly type: "item_reference";
  readonly id: string;
}

export type InputItem = ConversationItem | ItemReference;

const ROLES: readonly string[] = ["user", "system", "developer", "assistant"] satisfies MessageItem["role"][];
const MAX_CALL_ID = 256;

/** Readers by type of item. Each builds a new item, so that unknown fields are dropped. */
const READERS: Readonly<Record<string, (item: Fields, path: string, newId: NewId) => InputItem>> = {
  message: readMessage,
  function_call(item, path, newId) {
    return {
      type: "function_call",
      id: newId("function_call"),
      ...called(item, path),
      status: "completed",
      ...metadata(item, path),
    };
  },
  function_call_output(item, path, newId) {
    const { output } = item;
    if (typeof output !== "string" && !Array.isArray(output)) throw invalid(`${path}.output must be string or array`);
    const id = newId("function_call_output");
    return { type: "function_call_output", id, call_id: callId(item, path), output, status: "completed" };
  },
  reasoning(item, path, newId) {
    const { summary = [], encrypted_content: content } = item;
    const texts = objectsIn(summary, `${path}.summary`, "array").map(([part, here]) => ({
      type: "summary_text" as const,
      text: textAt(part, "text", here),
    }));
    const carried = typeof content === "string" ? { encrypted_content: content } : undefined;
    return { type: "reasoning", id: newId("reasoning"), summary: texts, status: "completed", ...carried };
  },
  "penstock:tool_call"(item, path, newId) {
    const { output = null, error = null } = item;
    const call = called(item, path);
    const failed = isNothing(error) ? null : textAt(item, "error", path);
    const id = newId("penstock:tool_call");
    const ended = { output, error: failed, status: "completed" as const };
    return { type: "penstock:tool_call", id, ...call, ...ended, ...metadata(item, path) };
  },
  compaction(item, path, newId) {
    const content = textAt(item, "encrypted_content", path);
    return { type: "compaction", id: newId("compaction"), encrypted_content: content, status: "completed" };
  },
  item_reference: (item, path) => ({ type: "item_reference", id: textAt(item, "id", path) }),
};

type NewId = (type: ConversationItem["type"]) => string;

/** @throws ServiceError `invalid_input` that names the field */
export function readInput(input: unknown, response: string): InputItem[] {
  let count = 0;
  const newId: NewId = (type) => itemId(type, response, `i${count++}`);
  if (typeof input === "string") return [readMessage({ role: "user", content: input }, "input", newId)];
  const items = objectsIn(input, "input");
  if (items.length === 0) throw invalid("input must not be empty");
  return items.map(([item, path]) => {
    // The type of messages is optional, and some clients leave out the type of a reference.
    const type = item.type ?? (item.role === undefined ? "item_reference" : "message");
    const reader = typeof type === "string" && Object.hasOwn(READERS, type) ? READERS[type] : undefined;
    if (reader === undefined) throw invalid(`${path}.type must be one of ${listed(Object.keys(READERS))}`);
    return reader(item, path, newId);
  });
}

function readMessage(item: Fields, path: string, newId: NewId): MessageItem {
  const { role, content, phase } = item;
  if (typeof role !== "string" || !ROLES.includes(role)) throw invalid(`${path}.role must be one of ${listed(ROLES)}`);
  const type = role === "assistant" ? "output_text" : "input_text";
  const parts = typeof content === "string" ? [{ type, text: content }] : content;
  if (!Array.isArray(parts)) throw invalid(`${path}.content must be string or array`);
  return {
    type: "message",
    id: newId("message"),
    role: role as MessageItem["role"],
    content: parts,
    status: "completed",
    ...(typeof phase === "string" && { phase }),
    ...metadata(item, path),
  };
}

function metadata({ provider_metadata: given }: Fields, path: string) {
  if (isNothing(given)) return undefined;
  if (!isObject(given) || !Object.values(given).every(isObject))
    throw invalid(`${path}.provider_metadata must be an object of objects, one for each provider`);
  return { provider_metadata: given as NonNullable<ConversationItem["provider_metadata"]> };
}

const called = (item: Fields, path: string) => ({
  call_id: callId(item, path),
  name: textAt(item, "name", path),
  arguments: textAt(item, "arguments", path),
});

function callId(item: Fields, path: string): string {
  const id = textAt(item, "call_id", path);
  if (id === "" || id.length > MAX_CALL_ID) throw invalid(`${path}.call_id must be 1 to ${MAX_CALL_ID} characters`);
  return id;
}

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

/** Parses the arguments of a call. Text of a model that is no JSON object stands in the prompt as `{}`. */
export function parseArguments(text: unknown, path: string): unknown {
  if (isNothing(text)) return {};
  if (typeof text !== "string") throw invalid(`${path} must be string`);
  return parseJsonText(text) ?? {};
}
