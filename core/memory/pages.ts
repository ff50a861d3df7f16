/** Pages of messages, as text. */
import { invalid } from "../errors.ts";
import { NUMBER_LIMIT, number } from "../storage/encoding.ts";
import { messageRows } from "../storage/keys.ts";
import type { Row, Store } from "../storage/store.ts";
import type { MessageQuery } from "./memory.ts";
import { roleHead } from "./message.ts";

/** Rows read at once: a page of large messages must not come as one text that nothing can hold. */
const PIECE = 200;
/** Characters of a page. */
const LARGEST = 64 * 1024 * 1024;

/**
 * The newest `limit` messages that match, in order: JSON texts.
 *
 * @throws ServiceError `invalid_input` when they are too large together
 */
export async function messageTexts(store: Store, conversation: number, query: MessageQuery): Promise<string[]> {
  const bounds = boundsOf(conversation, query);
  if (bounds === null) return [];
  const texts: string[] = [];
  const heads = query.roles?.map(roleHead);
  // Where many may not match, a small limit is no reason to read little.
  const piece = heads === undefined ? Math.min(PIECE, query.limit) : PIECE;
  let size = 0;
  let { before } = bounds;
  while (texts.length < query.limit) {
    const rows: Row[] = await store.scan({
      prefix: messageRows(conversation),
      reverse: true,
      limit: piece,
      ...(bounds.after !== undefined && { after: bounds.after }),
      ...(before !== undefined && { before }),
    });
    for (const { value } of rows) {
      if (texts.length === query.limit) break;
      if (heads !== undefined && !heads.some((head) => value.startsWith(head))) continue;
      texts.push(value);
      size += value.length;
    }
    if (size > LARGEST) throw invalid("these messages are larger than 64 MiB together: ask for fewer with limit");
    if (rows.length < piece) break;
    before = rows.at(-1)!.key;
  }
  return texts.reverse();
}

/** Both ends are exclusive. Null: nothing can lie between them. */
function boundsOf(conversation: number, { before, after }: MessageQuery): { before?: string; after?: string } | null {
  const prefix = messageRows(conversation);
  const bounds: { before?: string; after?: string } = {};
  if (before !== undefined) {
    if (before <= 0) return null;
    if (before < NUMBER_LIMIT) bounds.before = prefix + number(Math.ceil(before));
  }
  if (after !== undefined) {
    if (after >= NUMBER_LIMIT) return null;
    // `~` comes after every digit of the sequence, so that the whole millisecond is passed over.
    if (after >= 0) bounds.after = `${prefix}${number(Math.floor(after))}/~`;
  }
  return bounds;
}
