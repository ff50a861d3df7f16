/** The row of a conversation, and the snapshot of it in this process. */
import type { Conversation } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { IdPlace } from "../../storage/id-spaces.ts";
import { conversationIdKey } from "../../storage/keys.ts";
import type { Row } from "../../storage/store.ts";

/** A conversation at `revision`. Memory, number, id, `ownId`, user and resource never change. */
export interface Snapshot {
  readonly memory: string;
  readonly number: number;
  readonly id: string;
  /** Whether the id belongs to the user, so that other users may have the same one (storage/id-spaces.ts). */
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

const UPDATED_AT = '"updatedAt":"';
/** Length of the end of the text: `2026-11-20T08:12:36.000Z"}`. */
const TAIL_CHARACTERS = 26;

type Changing = Pick<Snapshot, "head" | "updatedAt" | "messages" | "latest">;

const apiText = ({ head, updatedAt }: Pick<Changing, "head" | "updatedAt">): string => `${head}${isoTime(updatedAt)}"}`;

/** The value of the row: a list of the conversation, the number of its messages, and the date of the newest. */
export const conversationRow = (conversation: Changing): string =>
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
