import type { Text } from "../../lib/serialized.ts";
import { encodeNumber, NUMBER_LIMIT } from "../../storage/encoding.ts";
import { conversationKey, messageRows } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { MessageQuery } from "../memory.ts";
import { roleHead } from "../records/message.ts";

/** Rows read at once: a page of large messages must not come as one text that nothing can hold. */
const PIECE = 200;
/** Characters of a page. */
const LARGEST = 64 * 1024 * 1024;

interface MessagePage {
  /** The row of the conversation; undefined when it is gone. */
  readonly conversation: Row | undefined;
  /** JSON texts with commas between them, in pieces that follow each other. Null: they are too large together. */
  readonly messages: readonly Text[] | null;
}

type Bounds = { before?: string; after?: string };

/** The newest `limit` messages that match, in order. */
export async function messagePage(store: Store, conversation: number, query: MessageQuery): Promise<MessagePage> {
  const bounds = boundsOf(conversation, query);
  if (bounds !== null && query.roles === undefined && query.limit > 0) {
    return wholePage(store, conversation, bounds, query.limit);
  }
  const [conversationRow, messages] = await Promise.all([
    store.get(conversationKey(conversation)),
    bounds === null ? [] : filtered(store, conversation, bounds, query),
  ]);
  return { conversation: conversationRow, messages: messages && (messages.length === 0 ? [] : [messages.join(",")]) };
}

/** Not taken apart on the way from the store to the client. */
async function wholePage(store: Store, conversation: number, bounds: Bounds, limit: number): Promise<MessagePage> {
  const range = { ...bounds, prefix: messageRows(conversation), beside: conversationKey(conversation) };
  const messages: Text[] = [];
  let row: Row | undefined;
  let size = 0;
  for (let left = limit; left > 0; left -= PIECE) {
    const found = await store.tail({ ...range, limit: Math.min(PIECE, left) });
    row = found === null ? await store.get(range.beside) : found.beside;
    if (found !== null) size += found.text.length;
    if (found === null || size > LARGEST) return { conversation: row, messages: null };
    if (found.text.length > 0) messages.unshift(...(messages.length > 0 ? [found.text, ","] : [found.text]));
    if (row === undefined || found.first === null) break;
    range.before = found.first;
  }
  return { conversation: row, messages };
}

async function filtered(
  store: Store,
  conversation: number,
  bounds: Bounds,
  query: MessageQuery,
): Promise<string[] | null> {
  const texts: string[] = [];
  const heads = query.roles?.map(roleHead) ?? [];
  const range = { ...bounds, prefix: messageRows(conversation), reverse: true, limit: PIECE };
  let size = 0;
  while (texts.length < query.limit) {
    // Where many may not match, a small limit is no reason to read little.
    const rows: Row[] = await store.scan(range);
    for (const { value } of rows) {
      if (texts.length === query.limit) break;
      if (!heads.some((head) => value.startsWith(head))) continue;
      texts.push(value);
      size += value.length;
    }
    if (size > LARGEST) return null;
    if (rows.length < PIECE) break;
    range.before = rows.at(-1)!.key;
  }
  return texts.reverse();
}

/** Both ends are exclusive. Null: nothing can lie between them. */
function boundsOf(conversation: number, { before, after }: MessageQuery): Bounds | null {
  const prefix = messageRows(conversation);
  const bounds: Bounds = {};
  if (before !== undefined) {
    if (before <= 0) return null;
    if (before < NUMBER_LIMIT) bounds.before = prefix + encodeNumber(Math.ceil(before));
  }
  if (after !== undefined) {
    if (after >= NUMBER_LIMIT) return null;
    // `~` comes after every digit of the sequence, so that the whole millisecond is passed over.
    if (after >= 0) bounds.after = `${prefix}${encodeNumber(Math.floor(after))}/~`;
  }
  return bounds;
}
