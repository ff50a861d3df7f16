/**
 * Makes a prompt acceptable to every provider. It comes from clients, from the store and from models, in any mixture: whatever it holds,
 * the conversation must be able to go on. What only one provider refuses is learned from its answer (`models/refusals.ts`).
 */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import { type AssistantContent, CALL_NOT_COMPLETED, type ToolContent, type UserContent } from "./model-input.ts";
import { toolFailure } from "./results.ts";

type Message = LanguageModelV3Message;
type Part = UserContent[number] | AssistantContent[number] | ToolContent[number];
type Of<T extends Part["type"]> = Extract<Part, { type: T }>;
type Call = Of<"tool-call">;
type Result = Of<"tool-result">;

/** Added when the assistant speaks first: Anthropic requires a user message before every answer. */
const OPENING: Message = { role: "user", content: [{ type: "text", text: "(The assistant begins.)" }] };

/** The part with well-formed text, and with an object as the input of a call; the same part when there is nothing to change. */
function tidyPart(part: Part): Part {
  switch (part.type) {
    case "text":
    case "reasoning":
      return replaced(part, "text", wellFormed(part.text));
    case "file":
      return replaced(part, "filename", wellFormed(part.filename));
    // The model was told what was wrong with an input that is no object.
    case "tool-call":
      return replaced(part, "input", isObject(part.input) ? wellFormed(part.input) : {});
    case "tool-result":
      return replaced(part, "output", wellFormed(part.output));
    default:
      return part;
  }
}

/**
 * The prompt, or one that is accepted in its place: results stand right behind their calls, each call has one, ids of calls are unique,
 * nothing is empty, system messages come first and then the user. The contents of its messages are replaced where that is needed.
 */
export function acceptable(prompt: Message[]): Message[] {
  for (const message of prompt) tidy(message);
  return inOrder(isAnswered(prompt) ? prompt : withResults(prompt));
}

/** Makes one message acceptable by itself. Its content may be empty then. */
export function tidy<M extends Message>(message: M): M {
  if (message.role === "system") message.content = /\S/.test(message.content) ? wellFormed(message.content) : "";
  else message.content = tidyParts(message.content, message.role === "assistant") as Exclude<M["content"], string> & [];
  return message;
}

function tidyParts(parts: Part[], isAnswer: boolean): Part[] {
  for (let index = 0; index < parts.length; index++) parts[index] = tidyPart(parts[index]!);
  const kept = parts.some(isBlank) ? parts.filter((part) => !isBlank(part)) : parts;
  if (!isAnswer) return kept;
  const answer = kept.some(({ type }) => type === "file") ? withNotes(kept) : kept;
  // Nothing follows reasoning with which an interrupted answer ends: providers refuse that.
  while (answer.at(-1)?.type === "reasoning") answer.pop();
  return answer;
}

/** Behind each file of an answer words that say so: most providers take none in answers, and their packages leave it out in silence. */
function withNotes(parts: Part[]): Part[] {
  const notes = parts.map((part, index) => {
    const text = part.type === "file" ? `[A file of this answer: ${part.filename ?? part.mediaType}]` : null;
    const next = parts[index + 1];
    return next?.type === "text" && next.text === text ? null : text;
  });
  if (notes.every((text) => text === null)) return parts;
  return parts.flatMap((part, index) =>
    notes[index] === null ? [part] : [part, { type: "text", text: notes[index]! }],
  );
}

/** Blank text, unless it carries something for the provider. */
const isBlank = (part: Part): boolean =>
  part.type === "text" && part.providerOptions === undefined && !/\S/.test(part.text);

function replaced<T extends object, K extends keyof T>(part: T, key: K, value: T[K]): T {
  return value === part[key] ? part : { ...part, [key]: value };
}

/** The value with every lone surrogate in it replaced; the same value when there is none. Values of clients are not changed. */
function wellFormed<T>(value: T): T {
  if (typeof value === "string") return value.isWellFormed() ? value : (value.toWellFormed() as T);
  if (Array.isArray(value)) {
    let list: unknown[] | null = null;
    for (let index = 0; index < value.length; index++) {
      const fixed = wellFormed(value[index]);
      if (fixed === value[index]) continue;
      list ??= [...value];
      list[index] = fixed;
    }
    return (list ?? value) as T;
  }
  if (!isObject(value)) return value;
  let fields: Map<string, unknown> | null = null;
  for (const key in value) {
    const name = wellFormed(key);
    const fixed = wellFormed(value[key]);
    if (fixed === value[key] && name === key) continue;
    fields ??= new Map(Object.entries(value));
    if (name !== key) fields.delete(key);
    fields.set(name, fixed);
  }
  return fields === null ? value : (Object.fromEntries(fields) as T);
}

/** Whether every call is followed by its result and by nothing else, with an id of its own. */
function isAnswered(prompt: readonly Message[]): boolean {
  let ids: Set<string> | null = null;
  for (let index = 0; index < prompt.length; index++) {
    const { role, content } = prompt[index]!;
    if (role === "tool") return false;
    if (role !== "assistant") continue;
    let calls = 0;
    for (const part of content) {
      if (part.type === "tool-result") return false;
      if (part.type !== "tool-call") continue;
      calls++;
      ids ??= new Set();
      if (part.providerExecuted === true || ids.has(part.toolCallId)) return false;
      ids.add(part.toolCallId);
    }
    if (calls === 0) continue;
    const answers = prompt[++index];
    if (answers?.role !== "tool" || answers.content.length !== calls) return false;
    const open = new Set(content.map((part) => (part.type === "tool-call" ? part.toolCallId : "")));
    for (const part of answers.content) if (part.type !== "tool-result" || !open.delete(part.toolCallId)) return false;
  }
  return true;
}

/** A call of a prompt as it is sent. */
interface Asked {
  readonly id: string;
  result?: Result;
  /** The message that the result came with. */
  from?: Message;
}

/**
 * Puts each result behind its call, wherever it was, and a failure behind a call without one. A result without a call is dropped: the
 * newest messages of a conversation may begin between the two. Calls that their provider has run keep their results in the answer.
 */
function withResults(prompt: readonly Message[]): Message[] {
  const asked = new Map<Call, Asked>();
  /** Calls without a result by their ids, the last one first to be answered. */
  const open = new Map<string, Asked[]>();
  const early: { readonly result: Result; readonly from: Message }[] = [];
  const answer = (result: Result, from: Message): boolean => {
    const call = open.get(result.toolCallId)?.pop();
    return call !== undefined && Object.assign(call, { result, from }) === call;
  };
  const ids = new Map<string, number>();
  const ofProvider = new Set<string>();
  for (const message of prompt) {
    if (message.role !== "tool" && message.role !== "assistant") continue;
    for (const part of message.content) {
      if (part.type === "tool-call" && part.providerExecuted === true) ofProvider.add(part.toolCallId);
      else if (part.type === "tool-call") {
        const call: Asked = { id: ownId(part.toolCallId, ids) };
        asked.set(part, call);
        const others = open.get(part.toolCallId);
        if (others === undefined) open.set(part.toolCallId, [call]);
        else others.push(call);
      } else if (part.type === "tool-result" && !answer(part, message)) early.push({ result: part, from: message });
    }
  }
  const ended = new Set<string>();
  for (const { result, from } of early)
    if (!answer(result, from) && from.role === "assistant") ended.add(result.toolCallId);
  const isKept = ({ toolCallId }: Call | Result) => ofProvider.has(toolCallId) && ended.has(toolCallId);
  return prompt.flatMap((message): Message[] => {
    if (message.role === "tool") return [];
    if (message.role !== "assistant") return [message];
    const answers: ToolContent = [];
    let from: Message | undefined;
    message.content = message.content.flatMap((part): AssistantContent => {
      const call = part.type === "tool-call" ? asked.get(part) : undefined;
      if (part.type !== "tool-call" || call === undefined)
        return (part.type !== "tool-call" && part.type !== "tool-result") || isKept(part) ? [part] : [];
      const { id, result } = call;
      const output = toolFailure(CALL_NOT_COMPLETED);
      from ??= call.from;
      answers.push({ ...(result ?? { type: "tool-result", toolName: part.toolName, output }), toolCallId: id });
      return [replaced(part, "toolCallId", id)];
    });
    tidy(message);
    if (answers.length === 0) return [message];
    const { providerOptions } = from?.role === "tool" ? from : {};
    return [message, { role: "tool", content: answers, ...(providerOptions && { providerOptions }) }];
  });
}

/** The id, or one like it when a call has it already: some models count their calls anew in every answer. */
function ownId(id: string, taken: Map<string, number>): string {
  let count = taken.get(id) ?? 0;
  let own = id;
  while (count > 0 && taken.has(own)) own = `${id}_${++count}`;
  taken.set(own, taken.get(own) ?? 1);
  taken.set(id, Math.max(count, 1));
  return own;
}

/**
 * Moves system messages to the front, in their order: Anthropic and Gemini accept them nowhere else. So the client's come before the
 * conversation that was recalled. Messages that say nothing are left out.
 */
function inOrder(given: Message[]): Message[] {
  const prompt = given.some(isEmpty) ? given.filter((message) => !isEmpty(message)) : given;
  const begin = prompt.findIndex(isNotSystem);
  if (begin === -1) return prompt;
  const assistantBegins = prompt[begin]!.role === "assistant";
  const isOrdered = prompt.findLastIndex(isSystem) < begin;
  if (isOrdered && !assistantBegins) return prompt;
  const systems = prompt.filter(isSystem);
  const others = prompt.filter(isNotSystem);
  return assistantBegins ? [...systems, OPENING, ...others] : [...systems, ...others];
}

const isEmpty = ({ content }: Message): boolean => content.length === 0;
const isSystem = ({ role }: Message): boolean => role === "system";
const isNotSystem = ({ role }: Message): boolean => role !== "system";
