/** Stored messages in the format of AG-UI: an answer becomes several messages, one for each text, call and result. */
import type { Message } from "../../generated/types.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { deniedText, resultText } from "./events.ts";

type AgUiMessage = Record<string, unknown>;

/** A call of the last answer without a result. With an approval it waits for a person, otherwise for the client. */
export interface WaitingCall {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly approvalId?: string;
}

export function threadMessages(stored: readonly Message[]): { messages: AgUiMessage[]; waiting: WaitingCall[] } {
  const messages = stored.flatMap(messagesOf);
  const last = stored.at(-1);
  const parts = last?.role === "assistant" ? ((last.parts ?? []) as unknown as Fields[]) : [];
  return { messages, waiting: parts.flatMap(waitingCall) };
}

function waitingCall({ type, toolName, toolCallId, state, approval, providerExecuted }: Fields): WaitingCall[] {
  if (typeof toolCallId !== "string" || providerExecuted === true) return [];
  const call = { toolCallId, toolName: nameOf(type, toolName) };
  if (state === "input-available") return [call];
  if (state !== "approval-requested" || !isObject(approval) || typeof approval.id !== "string") return [];
  return [{ ...call, approvalId: approval.id }];
}

const nameOf = (type: unknown, toolName: unknown): string =>
  type === "dynamic-tool" ? String(toolName) : String(type).slice("tool-".length);

function messagesOf({ id, role, parts, content }: Message): AgUiMessage[] {
  const list = (parts ?? contentParts(content)) as unknown as Fields[];
  if (role === "assistant") return new Answer(id).read(list);
  if (role === "tool") return [];
  const text = list.flatMap((part) => (part.type === "text" ? [String(part.text)] : [])).join("\n");
  const files = role === "user" ? list.flatMap(filePart) : [];
  if (files.length === 0) return [{ id, role, content: text }];
  return [{ id, role, content: [...(text === "" ? [] : [{ type: "text", text }]), ...files] }];
}

function contentParts(content: unknown): unknown[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content : [];
}

const FILE_KINDS = ["image", "audio", "video"];
const DATA_URL = /^data:[^,]*;base64,/;

function filePart({ type, url, mediaType }: Fields): object[] {
  if (type !== "file" || typeof url !== "string") return [];
  const kind = FILE_KINDS.find((each) => String(mediaType).startsWith(`${each}/`)) ?? "document";
  const head = DATA_URL.exec(url.slice(0, 256));
  const source =
    head === null
      ? { type: "url", value: url, mimeType: mediaType }
      : { type: "data", value: url.slice(head[0].length), mimeType: mediaType };
  return [{ type: kind, source }];
}

/** The messages of one answer. Its first text has its id, as in the stream. */
class Answer {
  readonly #id: string;
  readonly #messages: AgUiMessage[] = [];
  /** The message to which the calls of this step are added. */
  #current: { id: string; role: "assistant"; content?: string; toolCalls?: object[] } | null = null;
  #texts = 0;
  #others = 0;

  constructor(id: string) {
    this.#id = id;
  }

  read(parts: readonly Fields[]): AgUiMessage[] {
    for (const part of parts) this.#add(part);
    return this.#messages;
  }

  #add(part: Fields): void {
    const { type, text, toolCallId } = part;
    if (type === "step-start") this.#current = null;
    else if (type === "text" && text !== "") this.#begin().content = String(text);
    else if (type === "reasoning" && text !== "")
      this.#messages.push({ id: this.#otherId(), role: "reasoning", content: text, ...carried(part.providerMetadata) });
    else if (typeof toolCallId === "string") this.#addCall(part, toolCallId);
  }

  #begin() {
    this.#texts += 1;
    const id = this.#texts === 1 ? this.#id : `${this.#id}.${this.#texts}`;
    this.#current = { id, role: "assistant" };
    this.#messages.push(this.#current);
    return this.#current;
  }

  #addCall(part: Fields, id: string): void {
    const message = this.#current ?? this.#begin();
    const name = nameOf(part.type, part.toolName);
    const call = { name, arguments: typeof part.input === "string" ? part.input : JSON.stringify(part.input ?? {}) };
    message.toolCalls ??= [];
    message.toolCalls.push({ id, type: "function", function: call, ...carried(part.callProviderMetadata) });
    const content = outcomeOf(part);
    if (content !== null) this.#messages.push({ id: this.#otherId(), role: "tool", toolCallId: id, content });
  }

  #otherId(): string {
    this.#others += 1;
    return `${this.#id}:${this.#others}`;
  }
}

const carried = (metadata: unknown) => (isObject(metadata) ? { encryptedValue: JSON.stringify(metadata) } : undefined);

/** The result of a call as text; null for a call without one. */
function outcomeOf({ state, output, errorText, approval }: Fields): string | null {
  switch (state) {
    case "output-available":
      return resultText(output);
    case "output-error":
      return String(errorText);
    case "output-denied": {
      const reason = isObject(approval) && typeof approval.reason === "string" ? approval.reason : undefined;
      return deniedText(reason);
    }
    default:
      return null;
  }
}
