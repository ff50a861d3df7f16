/** Reads model messages (`{role, content}`) into a prompt. */
import type {
  LanguageModelV3Message,
  LanguageModelV3ToolResultOutput,
  SharedV3ProviderOptions,
} from "@ai-sdk/provider";
import { objectsIn, textAt } from "../../http/decode.ts";
import { invalid } from "../../lib/errors.ts";
import { type Fields, isObject } from "../../lib/is-object.ts";
import { mediaTypeOf } from "../../models/files/media-types.ts";
import { filePart } from "./file-data.ts";
import { resultOutput, toolFailure } from "./results.ts";
import { modelToolName } from "./tool-names.ts";

// Data for the provider in messages and their parts: cache control, and reasoning that it expects back.

type Carried = { providerOptions: SharedV3ProviderOptions } | undefined;

/**
 * Reads the field for a part of the prompt; undefined when there is none. Model messages call it `providerOptions`, UI
 * messages `providerMetadata`.
 */
function readProviderOptions(fields: Fields, field: string, path: string): Carried {
  const value = fields[field];
  if (value === undefined || value === null) return undefined;
  if (!isObject(value) || !Object.values(value).every(isObject))
    throw invalid(`${path}.${field} must be an object of objects, one for each provider`);
  const { thoughts } = (value.penstock ?? {}) as Fields;
  if (thoughts !== undefined) checkThoughts(thoughts, `${path}.${field}.penstock.thoughts`);
  return { providerOptions: value as SharedV3ProviderOptions };
}

/** A thought, with what its provider wants back of it. */
export interface Thought {
  readonly text: string;
  readonly providerMetadata?: SharedV3ProviderOptions | undefined;
}

/** Whether what a provider gave with a call has the thoughts of its answer (`Carried.ofMessage`). */
export const carriesMessage = (given: object): boolean => "message" in given;

/** The thoughts that a call of a reply carries. */
function checkThoughts(thoughts: unknown, path: string): void {
  if (!Array.isArray(thoughts)) throw invalid(`${path} must be array`);
  for (const [index, thought] of thoughts.entries()) {
    if (!isObject(thought) || typeof thought.text !== "string") throw invalid(`${path}[${index}].text must be string`);
    readProviderOptions(thought, "providerMetadata", `${path}[${index}]`);
  }
}

/** Merges metadata; the later takes precedence, key by key: a provider may sign at the end what it named at the start. */
export function mergeMetadata(
  earlier: SharedV3ProviderOptions | undefined,
  later: SharedV3ProviderOptions | undefined,
): SharedV3ProviderOptions | undefined {
  if (earlier === undefined || later === undefined || earlier === later) return later ?? earlier;
  const merged = { ...earlier };
  for (const [provider, values] of Object.entries(later)) merged[provider] = { ...earlier[provider], ...values };
  return merged;
}

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
  if (typeof type !== "string" || !OUTPUT_TYPES.has(type)) return resultOutput(output);
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

// Reads UI messages (`{role, parts}`), as chat hooks keep and post them, into a prompt.

/** Parts for the user interface only: they are not shown to the model. */
const UI_ONLY_PARTS = new Set(["source-url", "source-document", "reasoning-file", "custom"]);

/** Appends the message. `path` is where it is in the request: `input[0]`. */
export function pushUiMessage(prompt: LanguageModelV3Message[], message: Fields, path: string): void {
  const parts = message.parts as unknown[];
  switch (message.role) {
    case "system":
      prompt.push({
        role: "system",
        content: parts.map((part, index) => uiSystemText(part, partPath(path, index))).join("\n"),
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

function uiSystemText(raw: unknown, path: string): string {
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
      return resultOutput(part.output);
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

// The types of the content of prompt messages, by role.

type ContentOf<R extends string> = Extract<LanguageModelV3Message, { role: R }>["content"];

export type UserContent = ContentOf<"user">;
export type AssistantContent = ContentOf<"assistant">;
export type ToolContent = ContentOf<"tool">;
