/** Splits the input of a request into the user's message of this turn and what was said before it. */
import type {
  LanguageModelV3Message,
  LanguageModelV3ToolResultOutput,
  LanguageModelV3ToolResultPart,
} from "@ai-sdk/provider";
import type { Message } from "../../../generated/types.ts";
import { cutText } from "../../lib/cut-text.ts";
import { invalid, quoted } from "../../lib/errors.ts";
import { type Fields, isObject } from "../../lib/is-object.ts";
import type { NewMessage } from "../../memory/memory.ts";
import { pushModelMessage, type UserContent } from "../prompt/model-input.ts";
import { afterLastAnswer, callsIn } from "../prompt/results.ts";

// Calls that a stored answer leaves to the client: their results come with a later request, which completes that answer.

/** How calls have ended, by their ids: what a part of a UI message says of it. */
type Results = ReadonlyMap<string, Fields>;

/** The results after the last answer of a request. */
interface PostedResults {
  /** Those whose calls are stored alone. */
  readonly alone: Results;
  /** Those whose calls the request has too. */
  readonly withCalls: Results;
}

/** An answer of the conversation as a client has it, with results of its own in it. */
interface ShownAnswer {
  readonly id: string;
  readonly results: Results;
}

export type CompletedMessage = Message & Required<Pick<Message, "parts">>;

const NO_RESULTS: PostedResults = { alone: new Map(), withCalls: new Map() };

/** Those of a request, as model messages. */
function postedResults(messages: readonly Fields[]): PostedResults {
  const begin = afterLastAnswer(messages);
  const given = messages.slice(begin).filter(({ role }) => role === "tool");
  if (given.length === 0) return NO_RESULTS;
  const calls = new Set(messages.slice(0, begin).flatMap(callsIn));
  const alone = new Map<string, Fields>();
  const withCalls = new Map<string, Fields>();
  const prompt: LanguageModelV3Message[] = [];
  for (const message of given) pushModelMessage(prompt, message, "input");
  for (const { toolCallId, output } of prompt.flatMap(
    ({ content }) => content as readonly LanguageModelV3ToolResultPart[],
  ))
    (calls.has(toolCallId) ? withCalls : alone).set(toolCallId, outcome(output));
  return { alone, withCalls };
}

/** Of a UI message that ends with calls: answers that go on after their calls are stored as they are. */
function shownAnswer({ id, role, parts }: Fields): ShownAnswer | null {
  if (role !== "assistant" || typeof id !== "string" || !Array.isArray(parts)) return null;
  if (typeof parts.at(-1)?.toolCallId !== "string") return null;
  const results = new Map<string, Fields>();
  for (const { toolCallId, state, output, errorText } of parts as Fields[]) {
    if (state === "output-available") results.set(toolCallId as string, { state, output });
    else if (state === "output-error") results.set(toolCallId as string, { state, errorText });
  }
  return results.size === 0 ? null : { id, results };
}

/** @throws ServiceError `invalid_input` for a result whose call is not open in the last answer, or has been answered */
export function requireOpen(messages: readonly Message[], results: Results): void {
  if (results.size === 0) return;
  const open = new Set(lastAnswer(messages)?.parts?.map(openCall));
  for (const id of results.keys())
    if (!open.has(id)) throw invalid(`input: the call ${quoted(id)} is not open in the conversation`);
}

/** The last answer with the results put into its open calls; null when none of them is open there. */
export function completed(messages: readonly Message[], results: Results): CompletedMessage | null {
  if (results.size === 0) return null;
  const message = lastAnswer(messages);
  let changed = false;
  const parts = message?.parts?.map((part) => {
    const result = results.get(openCall(part) ?? "");
    if (result === undefined) return part;
    changed = true;
    return { ...part, ...result };
  });
  return changed ? ({ ...message, parts } as CompletedMessage) : null;
}

const lastAnswer = (messages: readonly Message[]) => messages.findLast(({ role }) => role === "assistant");

/** The id of a call that has no result yet. */
function openCall(part: object): string | null {
  const { state, toolCallId } = part as Fields;
  return state === "input-available" && typeof toolCallId === "string" ? toolCallId : null;
}

/** A result as a part of a UI message has it. */
function outcome(output: LanguageModelV3ToolResultOutput): Fields {
  switch (output.type) {
    case "error-text":
      return { state: "output-error", errorText: output.value };
    case "error-json":
      return { state: "output-error", errorText: JSON.stringify(output.value) };
    case "execution-denied":
      return { state: "output-error", errorText: output.reason ?? "The call was denied." };
    default:
      return { state: "output-available", output: output.value };
  }
}

export interface TurnInput {
  /** The user's message of this turn, or null when the request continues an earlier turn. */
  readonly user: NewMessage | null;
  /** Ids of the messages in the request: they need not be read from the conversation. */
  readonly messageIds: ReadonlySet<string>;
  /** What the request has between its message of that id and this turn; that message too, where it is the user's. */
  since(id: string): NewMessage[];
  /** What the request has before this turn, and in it before an answer that nobody goes on from. */
  history(): NewMessage[];
  /** Whether the request has a conversation of its own, more than what is said in this turn. */
  readonly complete: boolean;
  /** The assistant's message that the run continues. */
  readonly continued: { readonly id: string; readonly parts: readonly unknown[] } | null;
  /** Results of calls that an earlier answer has left to the client. */
  readonly results: PostedResults;
  /** The answer before this turn, where the client has answered calls with which it ends. */
  readonly shown: ShownAnswer | null;
  /** The text of the last user message. */
  readonly text: string;
  /** The title of a conversation that begins with this request; at most 80 characters. */
  title(): string;
}

const MAX_TITLE_LENGTH = 80;
/** A longer id is replaced, since it could not be a key in the store. */
const MAX_ID_LENGTH = 128;

/** @param input as it was sent; `buildPrompt` has checked it */
export function parseTurnInput(input: unknown): TurnInput {
  if (typeof input === "string") {
    const user: NewMessage = { role: "user", parts: [{ type: "text", text: input }] };
    return {
      user,
      messageIds: NO_IDS,
      since: nothing,
      history: nothing,
      complete: false,
      continued: null,
      results: NO_RESULTS,
      shown: null,
      text: input,
      title() {
        return makeTitle(input);
      },
    };
  }
  const messages = input as readonly Fields[];
  const userMessages = messages.filter((message) => message.role === "user");
  const ids = messages.flatMap((message) => messageId(message) ?? []);
  const results = postedResults(messages);
  const user = userMessage(messages);
  const continued = continuedMessage(messages.at(-1)!);
  const { begin } = turnBounds(messages);
  const before = user !== null ? begin : continued !== null ? messages.length - 1 : messages.length;
  return {
    user,
    messageIds: new Set(ids),
    since: (id) => messagesSince(messages, id),
    history: () => historyOf(messages, before),
    // Results alone belong to calls that are stored.
    complete: results.alone.size === 0 && hasHistory(messages),
    continued,
    results,
    shown: shownAnswer(messages[begin - 1] ?? {}),
    text: userMessages.length === 0 ? "" : inputText(userMessages.at(-1)!),
    title: () => (userMessages.length === 0 ? "" : makeTitle(inputText(userMessages[0]!))),
  };
}

const NO_IDS: ReadonlySet<string> = new Set();
const nothing = () => [];

function messageId({ id }: Fields): string | undefined {
  return typeof id === "string" && id !== "" && id.length <= MAX_ID_LENGTH ? id : undefined;
}

/** Where this turn begins and ends: after the last assistant message, leaving out the one that is continued. */
function turnBounds(messages: readonly Fields[]): { begin: number; end: number } {
  const end = messages.at(-1)!.role === "assistant" ? messages.length - 1 : messages.length;
  return { begin: afterLastAnswer(messages.slice(0, end)), end };
}

/** Whether something was said before this turn, or in it before the message that is continued. */
function hasHistory(messages: readonly Fields[]): boolean {
  const { begin, end } = turnBounds(messages);
  const before = end < messages.length ? end : begin;
  return messages.slice(0, before).some(({ role }) => role !== "system");
}

function messagesSince(messages: readonly Fields[], id: string): NewMessage[] {
  const first = messages.findLastIndex((message) => message.id === id);
  return historyOf(messages, turnBounds(messages).begin, messages[first]!.role === "user" ? first : first + 1);
}

/** What was said before the turn that begins there; results in the turn belong to it. */
const historyOf = (messages: readonly Fields[], begin: number, first = 0): NewMessage[] =>
  messages
    .filter(({ role }, index) => index >= first && (index < begin || role === "tool") && role !== "system")
    .map(asStored);

function asStored(message: Fields): NewMessage {
  const { role, parts, content, metadata } = message;
  const stored: NewMessage = { role: role as NewMessage["role"] };
  const own = messageId(message);
  if (own !== undefined) stored.id = own;
  if (Array.isArray(parts)) stored.parts = parts;
  else stored.content = content;
  if (isObject(metadata)) stored.metadata = metadata;
  return stored;
}

/** All that the user said after the last assistant message, as one message. */
function userMessage(messages: readonly Fields[]): NewMessage | null {
  const { begin, end } = turnBounds(messages);
  const continues = end < messages.length;
  const turn = messages.slice(begin, end).filter((message) => message.role === "user");
  const last = turn.at(-1);
  if (last === undefined) return null;
  const id = messageId(last);
  // The turn that is continued has stored it already; without an id it would be stored a second time.
  if (continues && id === undefined) return null;
  const message: NewMessage = { role: "user", parts: turn.flatMap(uiParts) };
  if (id !== undefined) message.id = id;
  if (isObject(last.metadata)) message.metadata = last.metadata;
  return message;
}

function continuedMessage(last: Fields): TurnInput["continued"] {
  const id = messageId(last);
  if (last.role !== "assistant" || id === undefined || !Array.isArray(last.parts)) return null;
  return { id, parts: last.parts };
}

function uiParts(message: Fields): unknown[] {
  if (Array.isArray(message.parts)) return message.parts;
  const prompt: LanguageModelV3Message[] = [];
  pushModelMessage(prompt, message, "input");
  return (prompt[0]!.content as UserContent).map((part) => {
    if (part.type === "text") return { type: "text", text: part.text };
    const { data, mediaType, filename } = part;
    const url = data instanceof URL ? data.href : `data:${mediaType};base64,${data}`;
    return { type: "file", mediaType, url, ...(filename !== undefined && { filename }) };
  });
}

/** The text of a UI message or a model message. */
function inputText(message: { parts?: unknown; content?: unknown }): string {
  const { parts, content } = message;
  if (typeof content === "string") return content;
  const list = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list
    .flatMap((part) => (isObject(part) && part.type === "text" && typeof part.text === "string" ? [part.text] : []))
    .join("\n");
}

function makeTitle(text: string): string {
  const line = text
    .slice(0, 4 * MAX_TITLE_LENGTH)
    .replace(/\s+/g, " ")
    .trim();
  if (line.length <= MAX_TITLE_LENGTH) return line;
  return cutText(line, MAX_TITLE_LENGTH).trimEnd();
}
