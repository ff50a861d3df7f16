/** Reads UI messages (`{role, parts}`), as chat hooks keep and post them, into a prompt. */

import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import { textAt } from "../../http/decode.ts";
import { invalid } from "../../lib/errors.ts";
import type { Fields } from "../../lib/is-object.ts";
import type { AssistantContent, ToolContent, UserContent } from "./content.ts";
import { filePart } from "./file-data.ts";
import { readProviderOptions } from "./provider-options.ts";
import { modelToolName } from "./tool-names.ts";
import { toolFailure, toolOutput } from "./tool-output.ts";

/** Parts for the user interface only: they are not shown to the model. */
const UI_ONLY_PARTS = new Set(["source-url", "source-document", "reasoning-file", "custom"]);

/** Appends the message. `path` is where it is in the request: `input[0]`. */
export function pushUiMessage(prompt: LanguageModelV3Message[], message: Fields, path: string): void {
  const parts = message.parts as unknown[];
  switch (message.role) {
    case "system":
      prompt.push({
        role: "system",
        content: parts.map((part, index) => systemText(part, partPath(path, index))).join("\n"),
      });
      return;
    case "user":
      pushUser(prompt, parts, path);
      return;
    case "assistant":
      pushAssistant(prompt, parts, path);
      return;
    default:
      throw invalid(`${path}.role must be one of "system", "user", "assistant"`);
  }
}

const partPath = (path: string, index: number) => `${path}.parts[${index}]`;

/** Checks that a part is an object with a string `type`. */
function requirePart(part: unknown, path: string): Fields & { type: string } {
  if (typeof part !== "object" || part === null) throw invalid(`${path} must be object`);
  const fields = part as Fields;
  if (typeof fields.type !== "string") throw invalid(`${path}.type must be string`);
  return fields as Fields & { type: string };
}

const isUiOnly = (type: string) => UI_ONLY_PARTS.has(type) || type.startsWith("data-");
const unknownPartError = (type: string, role: string, path: string) =>
  invalid(`${path}.type "${type.slice(0, 64)}" is not a known part of a UI message of role ${role}`);

function systemText(raw: unknown, path: string): string {
  const part = requirePart(raw, path);
  if (part.type !== "text") throw unknownPartError(part.type, "system", path);
  return textAt(part, "text", path);
}

function pushUser(prompt: LanguageModelV3Message[], parts: unknown[], path: string): void {
  if (parts.length === 0) throw invalid(`${path}.parts must not be empty`);
  const content: UserContent = [];
  parts.forEach((raw, index) => {
    const here = partPath(path, index);
    const part = requirePart(raw, here);
    if (part.type === "text") content.push({ type: "text", text: textAt(part, "text", here), ...metadata(part, here) });
    else if (part.type === "file") content.push(readFile(part, here));
    else if (!isUiOnly(part.type)) throw unknownPartError(part.type, "user", here);
  });
  if (content.length > 0) prompt.push({ role: "user", content });
}

/** Each step of an assistant's turn is one assistant message, and one tool message when tools answered in it. */
function pushAssistant(prompt: LanguageModelV3Message[], parts: unknown[], path: string): void {
  let content: AssistantContent = [];
  let answers: ToolContent = [];
  parts.forEach((raw, index) => {
    const here = partPath(path, index);
    const part = requirePart(raw, here);
    if (part.type === "step-start") {
      pushStep(prompt, content, answers);
      content = [];
      answers = [];
    } else if (part.type === "text" || part.type === "reasoning")
      content.push({ type: part.type, text: textAt(part, "text", here), ...metadata(part, here) });
    else if (part.type === "file") content.push(readFile(part, here));
    else if (part.type === "dynamic-tool" || part.type.startsWith("tool-")) pushTool(content, answers, part, here);
    else if (!isUiOnly(part.type)) throw unknownPartError(part.type, "assistant", here);
  });
  pushStep(prompt, content, answers);
}

/** The metadata that the provider expects back with a part. That of an unfinished part is incomplete, and left out. */
const metadata = (part: Fields, path: string) =>
  part.state === "streaming" ? undefined : readProviderOptions(part, "providerMetadata", path);

const readFile = (part: Fields, path: string) => ({
  ...filePart(part.url, "url", part.mediaType, path, { filename: part.filename }),
  ...metadata(part, path),
});

function pushStep(prompt: LanguageModelV3Message[], content: AssistantContent, answers: ToolContent): void {
  if (content.length > 0) prompt.push({ role: "assistant", content });
  if (answers.length > 0) prompt.push({ role: "tool", content: answers });
}

function pushTool(
  content: AssistantContent,
  answers: ToolContent,
  part: Fields & { type: string },
  path: string,
): void {
  const name = part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
  const { toolCallId } = part;
  if (typeof name !== "string" || name === "") throw invalid(`${path}.toolName must be a non-empty string`);
  if (typeof toolCallId !== "string") throw invalid(`${path}.toolCallId must be string`);
  if (part.state === "input-streaming") return;
  const byProvider = part.providerExecuted === true;
  const toolName = modelToolName(name);
  content.push({
    type: "tool-call",
    toolCallId,
    toolName,
    input: part.input,
    ...(byProvider && { providerExecuted: true }),
    ...readProviderOptions(part, "callProviderMetadata", path),
  });
  // Nobody has answered it: what the model is told then is `acceptable`'s.
  if (part.state === "input-available" && !byProvider) return;
  const output = toolResultOutput(part, path);
  const returned = readProviderOptions(part, "resultProviderMetadata", path);
  (byProvider ? content : answers).push({ type: "tool-result", toolCallId, toolName, output, ...returned });
}

/** The result that a model sees for a call without one. */
export const CALL_NOT_COMPLETED = "The call was not completed.";
/** Of one that waits for a person. */
export const CALL_WAITS = "The call waits for a person's approval. It runs by itself once it is approved.";

/** The result of a call. An unfinished call gets one that says so, because models refuse a call without a result. */
function toolResultOutput(part: Fields, path: string): LanguageModelV3ToolResultOutput {
  switch (part.state) {
    case "output-available":
      return toolOutput(part.output);
    case "output-error":
      return toolFailure(typeof part.errorText === "string" ? part.errorText : CALL_NOT_COMPLETED);
    case "output-denied":
      return denied(part.approval);
    case "approval-responded":
      return (part.approval as Fields | undefined)?.approved === false
        ? denied(part.approval)
        : toolFailure(CALL_NOT_COMPLETED);
    case "approval-requested":
      return { type: "text", value: CALL_WAITS };
    case "input-available":
      return toolFailure(CALL_NOT_COMPLETED);
    default:
      throw invalid(`${path}.state is not a known state of a tool part`);
  }
}

function denied(approval: unknown): LanguageModelV3ToolResultOutput {
  const reason = (approval as Fields | null | undefined)?.reason;
  return typeof reason === "string" ? { type: "execution-denied", reason } : { type: "execution-denied" };
}
