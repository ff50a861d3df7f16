/** The last messages of a conversation, parsed once for many readers. */
import type { Message } from "../../../generated/types.ts";
import { conversationRows, messageKey, messagePosition, messageRows } from "../../storage/keys.ts";
import type { Commit, Row } from "../../storage/store.ts";
import { endOfMessages } from "../records/conversation.ts";
import { parseMessage } from "../records/message.ts";

export interface KeptMessages {
  /** Most messages that are kept: fewer are all messages of the conversation. */
  readonly limit: number;
  readonly messages: readonly KeptMessage[];
}

interface KeptMessage {
  /** A message of texts only is shared. One with objects is JSON, parsed for each reader, because models and tools may change objects. */
  readonly message: Message | string;
  readonly bytes: number;
}

/** Bytes of a message in addition to its texts. */
const MESSAGE_BYTES = 512;

export const keepMessages = (messages: readonly Message[], limit: number): KeptMessages => ({
  limit,
  messages: messages.map(keep),
});

export function keptBytes(kept: KeptMessages): number {
  let sum = 0;
  for (const { bytes } of kept.messages) sum += bytes;
  return sum;
}

/** The newest messages; null when some of them are not kept. */
export function newestOf({ limit, messages }: KeptMessages, wanted: number): Message[] | null {
  if (wanted > limit && messages.length === limit) return null;
  return messages.slice(-wanted).map(({ message }) => (typeof message === "string" ? parseMessage(message) : message));
}

/** The kept messages of a conversation, and its row. */
interface KeptState {
  readonly row: Row;
  readonly kept: KeptMessages;
}

/** The state after a commit that expected this row; null when the commit does more than append messages. */
export function stateAfter(
  { row, kept }: KeptState,
  number: number,
  { put = [], delete: removed = [], clear = [] }: Commit,
  revision: number,
): KeptState | null {
  const rows = conversationRows(number);
  const end = endOfMessages(row);
  if (end === null || clear.length > 0 || removed.some((key) => key.startsWith(rows))) return null;
  const prefix = messageRows(number);
  let last = messageKey(number, messagePosition(end.time, end.sequence));
  let after: Row | undefined;
  const messages = [...kept.messages];
  for (const [key, value] of put) {
    if (key === row.key) after = { key, value, revision };
    else if (key.startsWith(prefix)) {
      // The message replaces another one, or comes before others.
      if (key <= last) return null;
      last = key;
      messages.push(keep(parseMessage(value)));
    }
  }
  return after === undefined ? null : { row: after, kept: { ...kept, messages: messages.slice(-kept.limit) } };
}

function keep(message: Message): KeptMessage {
  const characters = charactersOfTexts(message);
  if (characters !== null) return { message, bytes: MESSAGE_BYTES + 2 * characters };
  const text = JSON.stringify(message);
  return { message: text, bytes: MESSAGE_BYTES + 2 * text.length };
}

/** Number of characters; null when the message contains anything but texts and plain values. */
function charactersOfTexts({ parts = [], content = "", metadata = {} }: Message): number | null {
  if (typeof content !== "string" || Object.keys(metadata).length > 0) return null;
  let characters = content.length;
  for (const part of parts) {
    for (const value of Object.values(part)) {
      if (typeof value === "object" && value !== null) return null;
      if (typeof value === "string") characters += value.length;
    }
  }
  return characters;
}
