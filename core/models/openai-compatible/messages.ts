/** Converts the prompt to OpenAI's wire format. */
import { UnsupportedFunctionalityError } from "@ai-sdk/provider";
import type { LanguageModelV3Prompt } from "../../plugin/plugin.ts";
import { carriedBy, extrasOf, type ThoughtName } from "./carried.ts";

type Message = LanguageModelV3Prompt[number];
type Content<R extends Message["role"]> = Extract<Message, { role: R }>["content"][number];
type File = Extract<Content<"user">, { type: "file" }>;
type ToolCall = Extract<Content<"assistant">, { type: "tool-call" }>;
type ToolOutput = Extract<Content<"tool">, { type: "tool-result" }>["output"];
type WireMessage = Record<string, unknown>;

const AUDIO_FORMATS: Readonly<Record<string, string>> = {
  "audio/wav": "wav",
  "audio/mp3": "mp3",
  "audio/mpeg": "mp3",
};

/** @param keys of the metadata with what the provider wants back @param thoughts the name of thoughts that do not say theirs */
export function toMessages(
  prompt: LanguageModelV3Prompt,
  keys: readonly string[],
  thoughts: ThoughtName,
): WireMessage[] {
  const messages: WireMessage[] = [];
  /** Of the results before: the tool's role takes text alone. */
  let files: WireMessage[] = [];
  for (const [index, message] of prompt.entries()) {
    if (message.role !== "tool") {
      messages.push(toMessage(message, keys, thoughts));
      continue;
    }
    addToolResults(message.content, messages, files);
    if (files.length === 0 || prompt[index + 1]?.role === "tool") continue;
    messages.push({ role: "user", content: files });
    files = [];
  }
  return messages;
}

function toMessage(
  message: Exclude<Message, { role: "tool" }>,
  keys: readonly string[],
  thoughts: ThoughtName,
): WireMessage {
  switch (message.role) {
    case "system":
      return withExtras({ role: "system", content: message.content }, message);
    case "user": {
      const [first] = message.content;
      if (message.content.length === 1 && first?.type === "text")
        return withExtras(withExtras({ role: "user", content: first.text }, message), first);
      return withExtras({ role: "user", content: message.content.map(toUserPart) }, message);
    }
    case "assistant":
      return withExtras(toAssistantMessage(message.content, keys, thoughts), message);
  }
}

/** Adds the keys in `providerOptions.openaiCompatible` of a message or a part. */
function withExtras(wire: WireMessage, { providerOptions }: Pick<Message, "providerOptions">): WireMessage {
  const extras = providerOptions?.openaiCompatible;
  return extras === undefined ? wire : Object.assign(wire, extras);
}

function toUserPart(part: Content<"user">): WireMessage {
  return withExtras(part.type === "text" ? { type: "text", text: part.text } : toFilePart(part), part);
}

function toFilePart({ data, mediaType, filename }: File): WireMessage {
  if (mediaType.startsWith("image/")) {
    const type = mediaType === "image/*" ? "image/jpeg" : mediaType;
    const url = data instanceof URL ? data.toString() : `data:${type};base64,${toBase64(data)}`;
    return { type: "image_url", image_url: { url } };
  }
  if (mediaType.startsWith("text/")) return { type: "text", text: fileText(data) };
  if (data instanceof URL) throw unsupported(`files of type ${mediaType} by URL`);
  if (Object.hasOwn(AUDIO_FORMATS, mediaType))
    return { type: "input_audio", input_audio: { data: toBase64(data), format: AUDIO_FORMATS[mediaType] } };
  if (mediaType !== "application/pdf") throw unsupported(`files of type ${mediaType}`);
  const file_data = `data:application/pdf;base64,${toBase64(data)}`;
  return { type: "file", file: { filename: filename ?? "document.pdf", file_data } };
}

const unsupported = (functionality: string) => new UnsupportedFunctionalityError({ functionality });

const toBase64 = (data: Exclude<File["data"], URL>): string =>
  typeof data === "string" ? data : Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");

function fileText(data: File["data"]): string {
  if (data instanceof URL) return data.toString();
  return (typeof data === "string" ? Buffer.from(data, "base64") : Buffer.from(data)).toString();
}

function toAssistantMessage(
  content: Content<"assistant">[],
  keys: readonly string[],
  thoughts: ThoughtName,
): WireMessage {
  let text = "";
  let reasoning = "";
  const calls: WireMessage[] = [];
  for (const part of content) {
    if (part.type === "text") text += part.text;
    else if (part.type === "reasoning") reasoning += part.text;
    else if (part.type === "tool-call") calls.push(toWireCall(part, keys));
  }
  const message: WireMessage = { role: "assistant", content: calls.length > 0 && text === "" ? null : text };
  Object.assign(message, carriedBy(content, keys, reasoning, thoughts));
  if (calls.length > 0) message.tool_calls = calls;
  return message;
}

function toWireCall(part: ToolCall, keys: readonly string[]): WireMessage {
  const { toolCallId: id, toolName: name, input } = part;
  const own = { id, type: "function", function: { name, arguments: JSON.stringify(input) } };
  const { message: _, ...call } = withExtras(own, part);
  const extras = extrasOf(part, keys);
  return extras ? { ...call, extra_content: extras } : call;
}

function addToolResults(content: Content<"tool">[], messages: WireMessage[], files: WireMessage[]): void {
  for (const part of content) {
    if (part.type !== "tool-result") continue;
    const message = { role: "tool", tool_call_id: part.toolCallId, content: outputText(part.output, files) };
    messages.push(withExtras(message, part));
  }
}

/** @param files takes those of the result */
function outputText(output: ToolOutput, files: WireMessage[]): string {
  switch (output.type) {
    case "text":
    case "error-text":
      return output.value;
    case "execution-denied":
      return output.reason ?? "Tool call execution denied.";
    case "content":
      return output.value.map((item) => itemText(item, files)).join("\n");
    default:
      return JSON.stringify(output.value);
  }
}

type ResultItem = Extract<ToolOutput, { type: "content" }>["value"][number];

/** The text of a part of a result. In place of a file it says where the file is. */
function itemText(item: ResultItem, files: WireMessage[]): string {
  if (item.type === "text") return item.text;
  const file = fileOf(item);
  if (file === null) return JSON.stringify(item);
  try {
    files.push(toFilePart(file));
    return "[The file is in the next message of the user.]";
  } catch (error) {
    if (!UnsupportedFunctionalityError.isInstance(error)) throw error;
    return `[A file was here, which this model does not take: ${file.mediaType}]`;
  }
}

function fileOf(item: ResultItem): File | null {
  switch (item.type) {
    case "image-data":
    case "file-data":
      return { type: "file", data: item.data, mediaType: item.mediaType };
    case "image-url":
      return URL.canParse(item.url) ? { type: "file", data: new URL(item.url), mediaType: "image/*" } : null;
    default:
      return null;
  }
}
