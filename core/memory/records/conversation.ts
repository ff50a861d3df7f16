/** The row of a conversation, and the snapshot of it in this process. */

import { randomUUID } from "node:crypto";
import type { Conversation, Message } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { joinTexts, type Text } from "../../lib/serialized.ts";
import {
  conversationIdKey,
  conversationKey,
  decodeNumber,
  encodeNumber,
  indexEntry,
  NUMBER_LIMIT,
  resourceIndex,
  resourceTotal,
  userIndex,
  userTotal,
} from "../../storage/keys.ts";
import { type IdPlace, isVolatile, type Row, type Store } from "../../storage/store.ts";
import type { NewMessage } from "../memory.ts";
import type { Draft, MessagePlace } from "../semantic/semantic.ts";

/** A conversation at `revision`. Memory, number, id, `ownId`, user and resource never change. */
export interface Snapshot {
  readonly memory: string;
  readonly number: number;
  readonly id: string;
  /** Whether the id belongs to the user, so that other users may have the same one (storage/store.ts). */
  readonly ownId: boolean;
  readonly userId: string;
  readonly resourceId: string;
  /** Milliseconds since 1970. */
  readonly updatedAt: number;
  /** How many messages have ever been added to it, which is the sequence number of the last one. */
  readonly messages: number;
  /** The date of the newest message: the next one is not dated before it. */
  readonly latest: number;
  /** The JSON text up to the value of `updatedAt`, which comes last, so that a save does not change the text before it. */
  readonly head: string;
  readonly revision: number;
}

/** What is needed to find its rows, and those that lead to it. */
export type Stored = Omit<Snapshot, "messages" | "latest" | "head">;

const UPDATED_AT = '"updatedAt":"';
/** Length of the end of the text: `2026-11-20T08:12:36.000Z"}`. */
const TAIL_CHARACTERS = 26;

type Changing = Pick<Snapshot, "head" | "updatedAt" | "messages" | "latest">;

const apiText = ({ head, updatedAt }: Pick<Changing, "head" | "updatedAt">): string => `${head}${isoTime(updatedAt)}"}`;

/** The value of the row: a list of the conversation, the number of its messages, and the date of the newest. */
const conversationRow = (conversation: Changing): string =>
  `[${apiText(conversation)},${conversation.messages},${conversation.latest}]`;

/** The fields of a conversation that never change, and come first in its row. */
type Identity = Pick<Conversation, "id" | "resourceId" | "userId">;

const AFTER_IDENTITY = ',"title":';

/** Parses only the start of a row, which ends with quotes that no JSON string can contain. */
export const conversationIdentity = (row: string): Identity =>
  JSON.parse(`${row.slice(1, row.indexOf(AFTER_IDENTITY))}}`) as Identity;

/** The conversation of a row as JSON text for the API. */
export const conversationJson = (row: string): string => row.slice(1, row.lastIndexOf("}") + 1);
export const parseConversation = (row: string): Conversation => (JSON.parse(row) as [Conversation])[0];
export const conversationFromSnapshot = (snapshot: Pick<Changing, "head" | "updatedAt">): Conversation =>
  JSON.parse(apiText(snapshot)) as Conversation;

/** Longest conversation record: a page has two hundred, and metadata grows with every change. */
const MAX_CONVERSATION_CHARACTERS = 64 * 1024;

/**
 * The part of the row's text that saves do not change.
 *
 * @throws ServiceError `invalid_input` when the conversation is too large
 */
export function conversationHead(conversation: Omit<Conversation, "updatedAt">): string {
  const { id, resourceId, userId, title, metadata, createdAt } = conversation;
  const text = JSON.stringify({ id, resourceId, userId, title, metadata, createdAt });
  if (text.length > MAX_CONVERSATION_CHARACTERS)
    throw invalid("metadata is too large: a conversation may have 64 Ki characters as JSON");
  return `${text.slice(0, -1)},${UPDATED_AT}`;
}

/** The snapshot after a commit with `revision`. Written out, because saves are frequent and spreading an object is slower. */
export const changedSnapshot = (
  { memory, number, id, ownId, userId, resourceId }: Omit<Snapshot, "revision">,
  { updatedAt, messages, latest, head }: Changing,
  revision: number,
): Snapshot => ({ memory, number, id, ownId, userId, resourceId, updatedAt, messages, latest, head, revision });

/**
 * Whether the row with the number of a conversation is its own, because numbers can be reused. An undefined user matches any owner.
 * Compares texts, which costs less than parsing, because every read checks this.
 */
export function isRowOf({ id, userId }: { id: string; userId: string | undefined }, { value }: Row): boolean {
  if (!value.startsWith(`[{"id":${JSON.stringify(id)},"resourceId":`)) return false;
  const end = value.indexOf(AFTER_IDENTITY);
  return userId === undefined || value.slice(0, end).endsWith(`,"userId":${JSON.stringify(userId)}`);
}

/** The position after which all messages are new: date and sequence number of the newest one. Null in old rows. */
export function endOfMessages({ value }: Row): { time: number; sequence: number } | null {
  const [sequence, time] = value.slice(value.lastIndexOf("}") + 2, -1).split(",");
  return time === undefined ? null : { time: Number(time), sequence: Number(sequence) };
}

export function parseSnapshot(memory: string, { number, ownId }: IdPlace, { value, revision }: Row): Snapshot {
  const [conversation, messages, dated] = JSON.parse(value) as [Conversation, number, number?];
  const { id, userId, resourceId } = conversation;
  const updatedAt = Date.parse(conversation.updatedAt);
  const head = conversationJson(value).slice(0, -TAIL_CHARACTERS);
  // Rows of earlier versions lack the date.
  const latest = dated ?? updatedAt;
  return { memory, number, id, ownId, userId, resourceId, updatedAt, messages, latest, head, revision };
}

/** The fields that identify a conversation. */
export type ConversationRef = Pick<Snapshot, "memory" | "id" | "ownId" | "userId">;

/** The key of the row that maps the id to the conversation's number. */
export const idRowKey = ({ memory, id, ownId, userId }: ConversationRef): string =>
  conversationIdKey(memory, id, ownId ? userId : undefined);

// Messages as they are stored: a JSON text that begins with the role and the id.

const ROLES: ReadonlySet<string> = new Set(["system", "user", "assistant", "tool"]);

/** The start of a row. Role and id come first, so that both can be read without parsing. */
export const roleHead = (role: string) => `{"role":${JSON.stringify(role)},`;

/** A message that has been validated and serialized, ready to be saved. */
export interface PreparedMessage {
  readonly role: string;
  readonly id: string | undefined;
  /** Date from the client in milliseconds since 1970; undefined for a place after all stored messages. */
  readonly createdAt: number | undefined;
  /** Time on the service's clock in milliseconds since 1970; undefined for the time of storing. */
  readonly saidAt: number | undefined;
  readonly named?: ((id: string) => void) | undefined;
  /** The other members of the JSON object, as text. */
  readonly members: string;
  /** The text for semantic search; empty in a memory without it. */
  readonly search: string;
}

/** @throws ServiceError `invalid_input` for a message that cannot be stored */
export function prepareMessage(message: NewMessage, searched: boolean): PreparedMessage {
  const { role, id, parts, content, metadata = {} } = message;
  if (!ROLES.has(role)) throw invalid(`message.role must be one of ${[...ROLES].join(", ")}`);
  if (parts === undefined && content === undefined) throw invalid("message.parts or message.content is required");
  if (id === "") throw invalid("message.id must not be empty");
  return {
    role,
    id,
    createdAt: message.createdAt === undefined ? undefined : parseTime(message.createdAt),
    saidAt: message.saidAt,
    named: message.named,
    members: JSON.stringify({ parts, content, metadata }).slice(1, -1),
    search: searched ? searchableText(message) : "",
  };
}

export function messageText({ role, members }: PreparedMessage, id: string, time: number): string {
  const createdAt = isoTime(time);
  return `${roleHead(role)}"id":${JSON.stringify(id)},${members},"createdAt":"${createdAt}"}`;
}

/** The id of the message in a row. */
export function idOf(text: string): string {
  const start = text.indexOf(',"id":') + 6;
  let end = start + 1;
  while (text[end] !== '"') end += text[end] === "\\" ? 2 : 1;
  return JSON.parse(text.slice(start, end + 1)) as string;
}

export const parseMessage = (text: string): Message => JSON.parse(text) as Message;

/** @param texts JSON texts with commas between them, in pieces */
export const parseMessages = (texts: readonly Text[]): Message[] => JSON.parse(`[${joinTexts(texts)}]`) as Message[];

function parseTime(createdAt: string): number {
  const time = Date.parse(createdAt);
  if (time >= 0 && time < NUMBER_LIMIT) return time;
  throw invalid("message.createdAt must be an ISO 8601 date from 1970 on");
}

// How rows outside of a conversation refer to it.

export interface Target {
  readonly memory: string;
  readonly number: number;
  readonly userId: string;
}

/** The semantic index's reference to a message: the internal number of the conversation, and the position in it. */
export const messagePlace = (target: Target, position: string): MessagePlace => ({
  owner: target.userId,
  conversation: indexName(target.number),
  message: position,
});

export const indexName = (conversation: number): string => encodeNumber(conversation);
export const conversationNumber = (name: string): number => decodeNumber(name);

// Ids that the service creates: UUIDs of version 7, which increase with time.

const MESSAGE_ID = /^([0-9a-f]{8})-([0-9a-f]{4})-7([0-9a-f]{3})-[89ab]([0-9a-f]{3})-([0-9a-f]{2})[0-9a-f]{10}$/;

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");

/** @param time milliseconds since 1970 */
export function createId(time: number): string {
  const at = hex(time, 12);
  return `${at.slice(0, 8)}-${at.slice(8)}-7${randomUUID().slice(15)}`;
}

/**
 * The id of a message. It encodes the position of the message in its conversation, so that no row has to map the id to it.
 *
 * @param sequence below 2 ** 32
 */
export function createMessageId(time: number, sequence: number): string {
  const at = hex(time, 12);
  const number = hex(sequence, 8);
  const random = randomUUID();
  return `${at.slice(0, 8)}-${at.slice(8)}-7${number.slice(0, 3)}-${random[19]}${number.slice(3, 6)}-${number.slice(6)}${random.slice(26)}`;
}

/** The position that an id of `createMessageId` encodes; undefined for ids of any other format. */
export function parseMessageId(id: string): { time: number; sequence: number } | undefined {
  const match = MESSAGE_ID.exec(id);
  if (match === null) return undefined;
  const [, high, low, first, second, third] = match;
  const time = Number.parseInt(`${high}${low}`, 16);
  const sequence = Number.parseInt(`${first}${second}${third}`, 16);
  return time < NUMBER_LIMIT ? { time, sequence } : undefined;
}

/** The text for semantic search of a stored or new message, in UI form (`parts`) or model form (`content`); empty when it has none. */
export function searchableText(message: { parts?: unknown; content?: unknown }): string {
  const { parts, content } = message;
  if (typeof content === "string") return content.trim();
  const list = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list.map(partText).filter(Boolean).join("\n").trim();
}

/** The text of a part. Reasoning, tool calls and files are not searched, because nobody said them. */
function partText(part: unknown): string {
  if (typeof part !== "object" || part === null) return "";
  const { type, text } = part as { type?: unknown; text?: unknown };
  return type === "text" && typeof text === "string" ? text : "";
}

// The index rows by which conversations are listed. They change in the commit that changes the conversation.

type Change = Omit<Snapshot, "revision">;

/** Adds a new conversation. */
export function addConversation(draft: Draft, conversation: Change): void {
  const { memory, number, userId, resourceId } = conversation;
  draft.put.push([conversationKey(number), conversationRow(conversation)]);
  draft.of.push(conversation);
  putEntries(draft, conversation);
  draft.add.push([userTotal(memory, userId), 1], [resourceTotal(memory, resourceId), 1]);
}

/** Replaces a conversation. The commit fails unless the stored one is still `before`. */
export function changeConversation(draft: Draft, before: Snapshot, after: Change): void {
  const key = conversationKey(before.number);
  draft.expect.push([key, before.revision]);
  draft.put.push([key, conversationRow(after)]);
  draft.of.push(before);
  if (after.updatedAt === before.updatedAt) return;
  deleteEntries(draft, before);
  putEntries(draft, after);
}

/** Removes a conversation from the indexes. The caller deletes its own rows. */
export async function removeConversation(store: Store, draft: Draft, conversation: Stored): Promise<void> {
  const { memory, number, userId, resourceId, revision } = conversation;
  draft.expect.push([conversationKey(number), revision]);
  draft.of.push(conversation);
  deleteEntries(draft, conversation);
  const totals = [userTotal(memory, userId), resourceTotal(memory, resourceId)];
  // Counters of nothing take room in a store that ends with the process. Without a row they count from 0 as well.
  const rows = isVolatile(store) ? await store.getMany(totals) : [];
  for (const [index, key] of totals.entries()) {
    const row = rows[index];
    if (row?.value !== "1") draft.add.push([key, -1]);
    else {
      draft.expect.push([key, row.revision]);
      draft.delete.push(key);
    }
  }
}

function putEntries(draft: Draft, { memory, number, userId, resourceId, updatedAt }: Change): void {
  const entry = indexEntry(updatedAt, number);
  draft.put.push(
    [userIndex(memory, userId) + entry, JSON.stringify(resourceId)],
    [resourceIndex(memory, resourceId) + entry, JSON.stringify(userId)],
  );
}

function deleteEntries(draft: Draft, { memory, number, userId, resourceId, updatedAt }: Stored): void {
  const entry = indexEntry(updatedAt, number);
  draft.delete.push(userIndex(memory, userId) + entry, resourceIndex(memory, resourceId) + entry);
}
