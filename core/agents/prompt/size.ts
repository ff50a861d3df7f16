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
