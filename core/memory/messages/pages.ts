/** Pages of the messages of a conversation, as JSON text that is not parsed on the way to the client. */
import type { Text } from "../../lib/serialized.ts";
import { encodeNumber, NUMBER_LIMIT } from "../../storage/encoding.ts";
import { conversationKey, messageRows } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { MessageQuery } from "../memory.ts";
import { roleHead } from "../records/message.ts";

/** A page of large messages must not become one text that is too long for a string. */
const ROWS_PER_READ = 200;
const MAX_PAGE_CHARACTERS = 64 * 1024 * 1024;

export interface MessagePage {
  /** The row of the conversation; undefined when it is gone. */
  readonly conversation: Row | undefined;
  /** JSON texts with commas between them, in consecutive pieces. Null: together they are too large. */
  readonly messages: readonly Text[] | null;
}

type Bounds = { before?: string; after?: string };

/** The newest `limit` messages that match, in order. */
export async function messagePage(store: Store, conversation: number, query: MessageQuery): Promise<MessagePage> {
  const bounds = keyBoundsFor(conversation, query);
  if (bounds !== null && query.roles === undefined && query.limit > 0) {
    return unfilteredPage(store, conversation, bounds, query.limit);
  }
  const [conversationRow, messages] = await Promise.all([
    store.get(conversationKey(conversation)),
    bounds === null ? [] : filteredPage(store, conversation, bounds, query),
  ]);
  return { conversation: conversationRow, messages: messages && (messages.length === 0 ? [] : [messages.join(",")]) };
}

/** The texts come from the store already joined, and stay so. */
export async function unfilteredPage(
  store: Store,
  conversation: number,
  bounds: Bounds,
  limit: number,
): Promise<MessagePage> {
  const range = { ...bounds, prefix: messageRows(conversation), otherKey: conversationKey(conversation) };
  const messages: Text[] = [];
  let row: Row | undefined;
  let size = 0;
  for (let left = limit; left > 0; left -= ROWS_PER_READ) {
    const found = await store.tail({ ...range, limit: Math.min(ROWS_PER_READ, left) });
    row = found === null ? await store.get(range.otherKey) : found.other;
    if (found !== null) size += found.text.length;
    if (found === null || size > MAX_PAGE_CHARACTERS) return { conversation: row, messages: null };
    if (found.text.length > 0) messages.unshift(...(messages.length > 0 ? [found.text, ","] : [found.text]));
    if (row === undefined || found.first === null) break;
    range.before = found.first;
  }
  return { conversation: row, messages };
}

async function filteredPage(
  store: Store,
  conversation: number,
  bounds: Bounds,
  query: MessageQuery,
): Promise<string[] | null> {
  const texts: string[] = [];
  const heads = query.roles?.map(roleHead) ?? [];
  const range = { ...bounds, prefix: messageRows(conversation), reverse: true, limit: ROWS_PER_READ };
  let size = 0;
  while (texts.length < query.limit) {
    // Reads a full piece even for a small limit: many rows may not match.
    const rows: Row[] = await store.scan(range);
    for (const { value } of rows) {
      if (texts.length === query.limit) break;
      if (!heads.some((head) => value.startsWith(head))) continue;
      texts.push(value);
      size += value.length;
    }
    if (size > MAX_PAGE_CHARACTERS) return null;
    if (rows.length < ROWS_PER_READ) break;
    range.before = rows.at(-1)!.key;
  }
  return texts.reverse();
}

/** The keys between which the page lies; both ends are exclusive. Null: nothing can lie between them. */
function keyBoundsFor(conversation: number, { before, after }: MessageQuery): Bounds | null {
  const prefix = messageRows(conversation);
  const bounds: Bounds = {};
  if (before !== undefined) {
    if (before <= 0) return null;
    if (before < NUMBER_LIMIT) bounds.before = prefix + encodeNumber(Math.ceil(before));
  }
  if (after !== undefined) {
    if (after >= NUMBER_LIMIT) return null;
    // `~` sorts after every digit of the sequence number, so that messages of that very millisecond are excluded.
    if (after >= 0) bounds.after = `${prefix}${encodeNumber(Math.floor(after))}/~`;
  }
  return bounds;
}
