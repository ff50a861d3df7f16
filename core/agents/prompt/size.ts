/** Estimates the size of a prompt for a model. */
import type {
  LanguageModelV3FunctionTool,
  LanguageModelV3Message,
  LanguageModelV3ProviderTool,
  LanguageModelV3ToolResultOutput as ToolOutput,
} from "@ai-sdk/provider";

/** A token of most texts has about four bytes of UTF-8, in English and, approximately, in scripts with three bytes per character. */
export const BYTES_PER_TOKEN = 4;
/** Overhead that providers add to a message or a part of it. */
const BYTES_AROUND = 16;
/** An image costs some hundred tokens whatever its size, a page of a document somewhat more. */
const IMAGE_BYTES = 1_000 * BYTES_PER_TOKEN;
const FILE_BYTES = 3_000 * BYTES_PER_TOKEN;

type Part = Exclude<LanguageModelV3Message["content"], string>[number] | { type: "image" };

export function messageBytes({ content }: LanguageModelV3Message): number {
  if (typeof content === "string") return BYTES_AROUND + Buffer.byteLength(content);
  let bytes = BYTES_AROUND;
  for (const part of content) bytes += BYTES_AROUND + partBytes(part);
  return bytes;
}

function partBytes(part: Part): number {
  switch (part.type) {
    case "text":
    case "reasoning":
      return Buffer.byteLength(part.text);
    case "image":
      return IMAGE_BYTES;
    case "file":
      return fileBytes(part);
    case "tool-call":
      return jsonBytes(part.input);
    case "tool-result":
      if (part.output.type === "content") return part.output.value.reduce((sum, item) => sum + itemBytes(item), 0);
      return "value" in part.output ? jsonBytes(part.output.value) : 0;
    default:
      return 0;
  }
}

/** In a request the media type may be in the data alone. */
function fileBytes({ mediaType = "", data }: Extract<Part, { type: "file" }>): number {
  if (mediaType.startsWith("text/") && !(data instanceof URL)) return Math.ceil(data.length * 0.75);
  return mediaType.startsWith("image/") ? IMAGE_BYTES : FILE_BYTES;
}

/** Of content of a tool. */
function itemBytes(item: Extract<ToolOutput, { type: "content" }>["value"][number]): number {
  if (item.type === "text") return Buffer.byteLength(item.text);
  return item.type.startsWith("image") ? IMAGE_BYTES : FILE_BYTES;
}

const jsonBytes = (value: unknown): number =>
  Buffer.byteLength(typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

type Tools = readonly (LanguageModelV3FunctionTool | LanguageModelV3ProviderTool)[];
const toolBytesKnown = new WeakMap<Tools, number>();

/** The size of the tool definitions, which are part of every prompt. Most agents have one list of them for all runs. */
export function toolBytes(tools: Tools | undefined): number {
  if (tools === undefined) return 0;
  let bytes = toolBytesKnown.get(tools);
  if (bytes === undefined) {
    bytes = jsonBytes(tools);
    toolBytesKnown.set(tools, bytes);
  }
  return bytes;
}

// Cuts tool results to the size that the model is shown. The client and the conversation have them in full.

type ToolMessage = Extract<LanguageModelV3Message, { role: "tool" }>;

/** The message with each result cut to its limit in bytes; the same object when none is larger. */
export function clipResults(message: ToolMessage, limitOf: (toolName: string) => number): ToolMessage {
  let changed = false;
  const content = message.content.map((part) => {
    if (part.type !== "tool-result") return part;
    const output = clipOutput(part.output, limitOf(part.toolName));
    if (output === part.output) return part;
    changed = true;
    return { ...part, output };
  });
  return changed ? { ...message, content } : message;
}

/** @param json the value of a JSON output as text, where it is known */
export function clipOutput(output: ToolOutput, limit: number, json?: string): ToolOutput {
  switch (output.type) {
    case "text":
    case "error-text": {
      const value = clipText(output.value, limit);
      return value === output.value ? output : { ...output, value };
    }
    case "json":
    case "error-json": {
      const text = json ?? JSON.stringify(output.value) ?? "null";
      const value = clipText(text, limit);
      return value === text ? output : { type: output.type === "json" ? "text" : "error-text", value };
    }
    case "content":
      return clipContent(output, limit);
    default:
      return output;
  }
}

type ContentOutput = Extract<ToolOutput, { type: "content" }>;

/** Cuts a list of texts, which share the limit; files stay. */
function clipContent(output: ContentOutput, limit: number): ContentOutput {
  let left = limit;
  let changed = false;
  const value = output.value.map((item) => {
    if (item.type !== "text") return item;
    const text = clipText(item.text, left);
    left = Math.max(0, left - Buffer.byteLength(item.text));
    if (text === item.text) return item;
    changed = true;
    return { ...item, text };
  });
  return changed ? { ...output, value } : output;
}

/** Most bytes per UTF-16 unit in UTF-8. */
const MAX_BYTES_PER_UNIT = 3;

export function clipText(text: string, limit: number): string {
  if (text.length * MAX_BYTES_PER_UNIT <= limit) return text;
  const bytes = Buffer.byteLength(text);
  if (bytes <= limit) return text;
  const { read, written } = new TextEncoder().encodeInto(text, new Uint8Array(limit));
  return `${text.slice(0, read)}\n[cut here: ${bytes - written} of ${bytes} bytes are not shown]`;
}
