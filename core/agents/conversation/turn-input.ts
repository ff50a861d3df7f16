/** What a request says in a conversation: the user's message of this turn, and what the request carries besides. */

import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import type { NewMessage } from "../../memory/memory.ts";
import { pushModelMessage } from "../prompt/model-input.ts";

type Fields = Readonly<Record<string, unknown>>;
type UserContent = Extract<LanguageModelV3Message, { role: "user" }>["content"];

export interface TurnInput {
  /** The user's message of this turn, or null when the request goes on with an earlier one. */
  readonly user: NewMessage | null;
  /** Ids of the messages that the request carries: the conversation need not tell them again. */
  readonly known: ReadonlySet<string>;
  /** Id of the last of them that the user said; what the conversation holds after it is being said anew. */
  readonly last: string | undefined;
  /** The assistant's message that the run goes on with. */
  readonly continued: { readonly id: string; readonly parts: readonly unknown[] } | null;
  /** The last text of the user. */
  readonly text: string;
  /** Of a conversation that begins with this request; at most 80 characters. */
  readonly title: string;
}

const LONGEST_TITLE = 80;
/** Characters. A longer id is replaced: it could not be a key. */
const LONGEST_ID = 128;

/** @param input as it was sent, and checked by `promptOf` */
export function turnInput(input: unknown): TurnInput {
  if (typeof input === "string") {
    const user: NewMessage = { role: "user", parts: [{ type: "text", text: input }] };
    return { user, known: NONE, last: undefined, continued: null, text: input, title: titleOf(input) };
  }
  const messages = input as readonly Fields[];
  const said = messages.filter((message) => message.role === "user");
  const ids = messages.flatMap((message) => idOf(message) ?? []);
  return {
    user: userMessage(messages),
    known: new Set(ids),
    last: said.length === 0 ? undefined : idOf(said.at(-1)!),
    continued: continuedOf(messages.at(-1)!),
    text: said.length === 0 ? "" : inputText(said.at(-1)!),
    title: said.length === 0 ? "" : titleOf(inputText(said[0]!)),
  };
}

const NONE: ReadonlySet<string> = new Set();

function idOf({ id }: Fields): string | undefined {
  return typeof id === "string" && id !== "" && id.length <= LONGEST_ID ? id : undefined;
}

/** What the user said since the assistant last spoke, as one message. */
function userMessage(messages: readonly Fields[]): NewMessage | null {
  let end = messages.length;
  const going = messages[end - 1]!.role === "assistant";
  if (going) end--;
  let begin = end;
  while (begin > 0 && (messages[begin - 1]!.role === "user" || messages[begin - 1]!.role === "system")) begin--;
  const turn = messages.slice(begin, end).filter((message) => message.role === "user");
  const last = turn.at(-1);
  if (last === undefined) return null;
  const id = idOf(last);
  // It was stored with the answer that goes on here; without an id it would be stored a second time.
  if (going && id === undefined) return null;
  const message: NewMessage = { role: "user", parts: turn.flatMap(uiParts) };
  if (id !== undefined) message.id = id;
  if (isObject(last.metadata)) message.metadata = last.metadata;
  return message;
}

function continuedOf(last: Fields): TurnInput["continued"] {
  const id = idOf(last);
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

/** The texts of a message of either form. */
export function inputText(message: { parts?: unknown; content?: unknown }): string {
  const { parts, content } = message;
  if (typeof content === "string") return content;
  const list = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list
    .flatMap((part) => (isObject(part) && part.type === "text" && typeof part.text === "string" ? [part.text] : []))
    .join("\n");
}

function titleOf(text: string): string {
  const line = text
    .slice(0, 4 * LONGEST_TITLE)
    .replace(/\s+/g, " ")
    .trim();
  if (line.length <= LONGEST_TITLE) return line;
  const cut = line.slice(0, LONGEST_TITLE);
  // Half of a character at the end would be no text.
  return (/[\uD800-\uDBFF]$/.test(cut) ? cut.slice(0, -1) : cut).trimEnd();
}
