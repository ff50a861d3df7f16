/**
 * Converts the messages of a client to UI messages, which agents and conversations use. The texts, calls and results between two messages
 * of the user, which are several messages in AG-UI, become one answer.
 */

import { filePart } from "../agents/prompt/file-data.ts";
import { objectsIn, parseJsonText, textAt } from "../http/decode.ts";
import { invalid, quoted } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";

// Converts the content of AG-UI messages to parts of UI messages.

export type UiPart = Record<string, unknown>;

/** Media types by kind of file, for clients that do not name one: the first bytes then decide. */
const MEDIA_TYPES: Readonly<Record<string, string>> = {
  image: "image/*",
  audio: "audio/*",
  video: "video/*",
  document: "application/pdf",
};

/** The text of a message that may only contain text. @throws ServiceError `invalid_input` naming the field */
function textOf(content: unknown, path: string): string {
  if (content === undefined || content === null) return "";
  if (typeof content === "string") return content;
  return objectsIn(content, path)
    .flatMap(([part, here]) => (part.type === "text" ? [textAt(part, "text", here)] : []))
    .join("\n");
}

/** The parts of a user's message. Parts that a model cannot be shown are left out. */
function userParts(content: unknown, path: string): UiPart[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return objectsIn(content, path).flatMap(([part, here]) => userPart(part, here));
}

function userPart(part: Fields, path: string): UiPart[] {
  const { type } = part;
  if (type === "text") return [{ type, text: textAt(part, "text", path) }];
  if (typeof type !== "string" || !Object.hasOwn(MEDIA_TYPES, type)) return [];
  const { source } = part;
  if (!isObject(source)) throw invalid(`${path}.source must be object`);
  // A file with an id of one provider is not available to others.
  if (source.type !== "data" && source.type !== "url") return [];
  const value = textAt(source, "value", `${path}.source`);
  const mediaType = typeof source.mimeType === "string" ? source.mimeType : MEDIA_TYPES[type]!;
  const url = source.type === "data" ? `data:${mediaType};base64,${value}` : value;
  filePart(url, "value", mediaType, `${path}.source`);
  return [{ type: "file", mediaType, url }];
}

/** The metadata of a part for the provider, as the client sent it back. */
function metadataIn(value: unknown): object | undefined {
  const parsed = typeof value === "string" ? parsedObject(value) : undefined;
  return isObject(parsed) && Object.values(parsed).every(isObject) ? parsed : undefined;
}

function parsedObject(text: string): object | undefined {
  if (!/^\s*[[{]/.test(text)) return undefined;
  return parseJsonText(text) as object | undefined;
}

export interface UiMessage {
  id?: string;
  readonly role: "system" | "user" | "assistant";
  readonly parts: UiPart[];
}

/** The calls of a conversation by their ids, and results that came before their call. */
interface Calls {
  readonly known: Map<string, UiPart>;
  readonly early: Map<string, { readonly outcome: UiPart; readonly path: string }>;
}

/** @throws ServiceError `invalid_input` that names the field */
export function readMessages(messages: readonly unknown[]): UiMessage[] {
  const read: UiMessage[] = [];
  const ofSubAgents = new Set<string>();
  const calls: Calls = { known: new Map(), early: new Map() };
  let answer: UiMessage | null = null;
  for (const [index, message] of messages.entries()) {
    const path = `messages[${index}]`;
    if (!isObject(message)) throw invalid(`${path} must be object`);
    const { role, content } = message;
    if (isOfSubAgent(message, ofSubAgents)) continue;
    switch (role) {
      case "system":
      case "developer":
        answer = null;
        read.push({ role: "system", parts: [{ type: "text", text: textOf(content, `${path}.content`) }] });
        break;
      case "user":
        answer = null;
        read.push({ ...idOf(message), role, parts: userParts(content, `${path}.content`) });
        if (read.at(-1)!.parts.length === 0) throw invalid(`${path}.content must not be empty`);
        break;
      case "reasoning":
      case "assistant":
        if (answer === null) {
          answer = { role: "assistant", parts: [] };
          read.push(answer);
        }
        if (role === "reasoning") addReasoning(answer, message, path);
        else addAnswer(answer, message, path, calls);
        break;
      case "tool":
        addResult(calls, message, path);
        break;
      case "activity":
        break;
      default:
        throw invalid(
          `${path}.role must be one of "system", "developer", "user", "assistant", "reasoning", "tool", "activity"`,
        );
    }
  }
  for (const [id, { path }] of calls.early)
    throw invalid(`${path}.toolCallId: there is no call ${quoted(id)} to which this is the result`);
  // Thoughts alone do not count as an answer.
  return read.filter(({ parts }) => parts.some(({ type }) => type !== "step-start" && type !== "reasoning"));
}

/** Whether a message comes from a sub-agent: what it has said is part of the result of its call. */
function isOfSubAgent({ role, subagentRunId, toolCalls, toolCallId }: Fields, calls: Set<string>): boolean {
  if (role === "tool" && typeof toolCallId === "string" && calls.has(toolCallId)) return true;
  if (typeof subagentRunId !== "string") return false;
  for (const call of Array.isArray(toolCalls) ? toolCalls : [])
    if (isObject(call) && typeof call.id === "string") calls.add(call.id);
  return true;
}

const idOf = ({ id }: Fields) => (typeof id === "string" ? { id } : undefined);

function addReasoning(message: UiMessage, fields: Fields, path: string): void {
  beginStep(message);
  const text = textOf(fields.content, `${path}.content`);
  message.parts.push({ type: "reasoning", text, ...carried(fields, "providerMetadata") });
}

/** Starts a step, unless the last part is a thought, which belongs to what follows it. */
function beginStep({ parts }: UiMessage): void {
  if (parts.at(-1)?.type !== "reasoning") parts.push({ type: "step-start" });
}

function addAnswer(message: UiMessage, fields: Fields, path: string, { known, early }: Calls): void {
  if (message.id === undefined) Object.assign(message, idOf(fields));
  beginStep(message);
  const text = textOf(fields.content, `${path}.content`);
  const metadata = carried(fields, "providerMetadata");
  if (text !== "" || metadata !== undefined) message.parts.push({ type: "text", text, ...metadata });
  const { toolCalls = [] } = fields;
  if (!Array.isArray(toolCalls)) throw invalid(`${path}.toolCalls must be array`);
  for (const [index, call] of toolCalls.entries()) {
    const here = `${path}.toolCalls[${index}]`;
    if (!isObject(call) || !isObject(call.function)) throw invalid(`${here}.function must be object`);
    const toolCallId = textAt(call, "id", here);
    const name = textAt(call.function, "name", `${here}.function`);
    const input = inputIn(textAt(call.function, "arguments", `${here}.function`));
    if (name === "") throw invalid(`${here}.function.name must not be empty`);
    const part = { type: `tool-${name}`, toolCallId, state: "input-available", input };
    const whole: UiPart = { ...part, ...carried(call, "callProviderMetadata"), ...early.get(toolCallId)?.outcome };
    early.delete(toolCallId);
    known.set(toolCallId, whole);
    message.parts.push(whole);
  }
}

/** Wherever the result stands: people type while a tool runs. */
function addResult({ known, early }: Calls, fields: Fields, path: string): void {
  const id = textAt(fields, "toolCallId", path);
  const { error } = fields;
  const content = textOf(fields.content, `${path}.content`);
  const outcome =
    typeof error === "string"
      ? { state: "output-error", errorText: error }
      : { state: "output-available", output: parsedObject(content) ?? content };
  const call = known.get(id);
  if (call === undefined) early.set(id, { outcome, path });
  else Object.assign(call, outcome);
}

function carried({ encryptedValue }: Fields, key: string): UiPart | undefined {
  const metadata = metadataIn(encryptedValue);
  return metadata === undefined ? undefined : { [key]: metadata };
}

/** Parses the input of a call. Text that is not JSON is kept as the model wrote it. */
function inputIn(text: string): unknown {
  if (text.trim() === "") return {};
  const value = parseJsonText(text);
  return value === undefined ? text : value;
}
