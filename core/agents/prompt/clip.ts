/** Cuts tool results to the size that the model is shown. The client and the conversation have them in full. */
import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";

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

function clipOutput(output: LanguageModelV3ToolResultOutput, limit: number): LanguageModelV3ToolResultOutput {
  switch (output.type) {
    case "text":
    case "error-text": {
      const value = clipText(output.value, limit);
      return value === output.value ? output : { ...output, value };
    }
    case "json":
    case "error-json": {
      const text = JSON.stringify(output.value) ?? "null";
      const value = clipText(text, limit);
      return value === text ? output : { type: output.type === "json" ? "text" : "error-text", value };
    }
    case "content":
      return clipContent(output, limit);
    default:
      return output;
  }
}

type ContentOutput = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>;

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
