/** Reads model messages (`{role, content}`) into a prompt. */

import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import { objectsIn, textAt } from "../../http/decode.ts";
import { invalid } from "../../lib/errors.ts";
import type { Fields } from "../../lib/is-object.ts";
import { mediaTypeOf } from "../../models/files/media-types.ts";
import type { AssistantContent, ToolContent, UserContent } from "./content.ts";
import { filePart } from "./file-data.ts";
import { carriesMessage, readProviderOptions, type Thought } from "./provider-options.ts";
import { modelToolName } from "./tool-names.ts";
import { toolOutput } from "./tool-output.ts";

/** Returns the part for the prompt, or null for a part that is not shown to the model. */
type PartReader<P> = (part: Fields, path: string) => P | null;

/** Appends the message. `path` is where it is in the request: `input[0]`. */
export function pushModelMessage(prompt: LanguageModelV3Message[], message: Fields, path: string): void {
  const { role, content } = message;
  const carried = readProviderOptions(message, "providerOptions", path);
  switch (role) {
    case "system":
      prompt.push({ role, content: typeof content === "string" ? content : systemText(content, path), ...carried });
      return;
    case "user":
      prompt.push({ role, content: readContent<UserContent[number]>(content, USER_PARTS, role, path), ...carried });
      return;
    case "assistant":
      for (const step of stepsOf(readContent<AssistantContent[number]>(content, ASSISTANT_PARTS, role, path)))
        prompt.push({ role, content: step, ...carried });
      return;
    case "tool":
      if (typeof content === "string") throw invalid(`${path}.content must be an array of tool results`);
      prompt.push({ role, content: readContent<ToolContent[number]>(content, TOOL_PARTS, role, path), ...carried });
      return;
    default:
      throw invalid(`${path}.role must be one of "system", "user", "assistant", "tool"`);
  }
}

function readContent<P>(
  content: unknown,
  readers: ReadonlyMap<string, PartReader<P>>,
  role: string,
  path: string,
): P[] {
  if (typeof content === "string") return [readers.get("text")!({ text: content }, path)!];
  if (!Array.isArray(content)) throw invalid(`${path}.content must be string or array`);
  if (content.length === 0) throw invalid(`${path}.content must not be empty`);
  const parts: P[] = [];
  content.forEach((raw: unknown, index) => {
    const here = `${path}.content[${index}]`;
    if (typeof raw !== "object" || raw === null) throw invalid(`${here} must be object`);
    const fields = raw as Fields;
    const reader = typeof fields.type === "string" ? readers.get(fields.type) : undefined;
    if (reader === undefined) {
      throw invalid(
        `${here}.type must be one of ${[...readers.keys()].map((type) => `"${type}"`).join(", ")} for role ${role}`,
      );
    }
    const part = reader(fields, here);
    const carried =
      readProviderOptions(fields, "providerOptions", here) ??
      // Calls of a reply may come back as they are.
      (role === "assistant" ? readProviderOptions(fields, "providerMetadata", here) : undefined);
    if (part !== null) parts.push(carried === undefined ? part : { ...part, ...carried });
  });
  return parts;
}

function systemText(content: unknown, path: string): string {
  return readContent<{ text: string }>(content, new Map([["text", text]]), "system", path)
    .map((part) => part.text)
    .join("\n");
}

const text = (part: Fields, path: string) => ({ type: "text" as const, text: textAt(part, "text", path) });
const reasoning = (part: Fields, path: string) => ({
  type: "reasoning" as const,
  text: textAt(part, "text", path),
});
const image = (part: Fields, path: string) =>
  filePart(part.image, "image", part.mediaType, path, { fallbackType: "image/*", allowBase64: true });
const file = (part: Fields, path: string) =>
  filePart(part.data, "data", part.mediaType, path, { filename: part.filename, allowBase64: true });

const toolCall = (part: Fields, path: string) => ({
  type: "tool-call" as const,
  toolCallId: textAt(part, "toolCallId", path),
  toolName: modelToolName(textAt(part, "toolName", path)),
  input: part.input ?? {},
  ...(part.providerExecuted === true && { providerExecuted: true }),
});

/**
 * The answers in a list of parts: clients send the calls of a reply as one list, and the first of each step carries the thoughts that led
 * to it (`withThoughts`, `Carried.ofMessage`).
 */
function stepsOf(parts: AssistantContent): AssistantContent[] {
  const steps: AssistantContent[] = [[]];
  for (const part of parts) {
    const { penstock: { thoughts } = {}, ...own } = part.providerOptions ?? {};
    const isFirst = part.type === "tool-call" && (thoughts !== undefined || Object.values(own).some(carriesMessage));
    if (isFirst && steps.at(-1)!.some(({ type }) => type === "tool-call")) steps.push([]);
    const step = steps.at(-1)!;
    if (thoughts === undefined) {
      step.push(part);
      continue;
    }
    for (const { text, providerMetadata } of thoughts as unknown as Thought[])
      step.push({ type: "reasoning", text, providerOptions: providerMetadata });
    step.push({ ...part, providerOptions: Object.keys(own).length === 0 ? undefined : own });
  }
  return steps;
}

const toolResult = (part: Fields, path: string) => ({
  type: "tool-result" as const,
  toolCallId: textAt(part, "toolCallId", path),
  toolName: modelToolName(textAt(part, "toolName", path)),
  output: readOutput(part.output, `${path}.output`),
});

const OUTPUT_TYPES = new Set(["text", "json", "error-text", "error-json", "content", "execution-denied"]);

/** Keeps `{type: "json", value}` and the like unchanged; any other value is taken for the bare output of the tool. */
function readOutput(output: unknown, path: string): LanguageModelV3ToolResultOutput {
  const type = (output as Fields | null | undefined)?.type;
  if (typeof type !== "string" || !OUTPUT_TYPES.has(type)) return toolOutput(output);
  const { value, reason } = output as Fields;
  if (type === "execution-denied") return { type, ...(typeof reason === "string" && { reason }) };
  if ((type === "text" || type === "error-text") && typeof value !== "string") {
    throw invalid(`${path}.value must be string`);
  }
  if (type === "content")
    return { type, value: objectsIn(value, `${path}.value`, "array").map(([item]) => named(item)) };
  return { type, value: value ?? null } as LanguageModelV3ToolResultOutput;
}

/** A file of a result under the name that providers take. */
const named = (item: Fields) =>
  (typeof item.data === "string" && typeof item.mediaType === "string"
    ? { ...item, mediaType: mediaTypeOf(item.data, item.mediaType) }
    : item) as never;

const USER_PARTS = new Map<string, PartReader<UserContent[number]>>([
  ["text", text],
  ["image", image],
  ["file", file],
]);
const ASSISTANT_PARTS = new Map<string, PartReader<AssistantContent[number]>>([
  ["text", text],
  ["reasoning", reasoning],
  ["file", file],
  ["tool-call", toolCall],
  ["tool-result", toolResult],
  ["tool-approval-request", () => null],
]);
const TOOL_PARTS = new Map<string, PartReader<ToolContent[number]>>([
  ["tool-result", toolResult],
  ["tool-approval-response", () => null],
]);
