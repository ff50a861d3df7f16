/** Pages of the messages of a conversation, as JSON text that is not parsed on the way to the client. */
import type { Message } from "../../../generated/types.ts";
import { joined, type Text } from "../../lib/serialized.ts";
import {
  conversationKey,
  encodeNumber,
  messageKey,
  messageRows,
  NUMBER_LIMIT,
  positionFromKey,
} from "../../storage/keys.ts";
import { sizeOf, wholeRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import type { Discarded, Earlier, EarlierQuery, MessageQuery } from "../memory.ts";
import { parseMessages, roleHead } from "../records/conversation.ts";
import { findMessages, summaryBefore } from "./save.ts";

const ROWS_PER_READ = 200;
/** Longer messages are only measured at first, and read when they are sent. */
const LARGE_MESSAGE_BYTES = 16 * 1024;
/** Bytes of the largest page that is held in memory. */
const MAX_WHOLE_BYTES = 8 * 1024 * 1024;
const MAX_PAGE_CHARACTERS = 64 * 1024 * 1024;

interface MessagePage {
  /** The row of the conversation; undefined when it has been deleted. */
  readonly conversation: Row | undefined;
  /** JSON texts with commas between them, in consecutive pieces; a large page is read on demand. Null when they are too large together. */
  readonly messages: readonly Text[] | AsyncIterable<string> | null;
  /** What is wrong with the query: a bound that names no message. */
  readonly problem?: string;
}

/** A page that is held in memory as a whole. */
interface WholePage extends MessagePage {
  readonly messages: readonly Text[] | null;
}

type Bounds = { before?: string; after?: string };

/** The newest `limit` messages that match, in order. */
export async function messagePage(
  { store, recent }: Pick<Domain, "store" | "recent">,
  conversation: number,
  query: MessageQuery,
): Promise<MessagePage> {
  const { limit, beforeId, afterId } = query;
  const bounds = keyBoundsFor(conversation, query);
  if (bounds !== null && (beforeId !== undefined || afterId !== undefined)) {
    const problem = await narrow(store, conversation, bounds, { beforeId, afterId });
    if (problem !== undefined)
      return { conversation: await store.get(conversationKey(conversation)), messages: [], problem };
  }
  if (bounds !== null && query.roles === undefined && limit > 0) {
    const load = () => joinedPage(store, conversation, bounds, limit);
    const isNewest = limit <= ROWS_PER_READ && bounds.before === undefined && bounds.after === undefined;
    const page = await (isNewest ? recent.page(conversation, limit, load) : load());
    if (page !== null) return page;
  }
  const [conversationRow, found] = await Promise.all([
    store.get(conversationKey(conversation)),
    bounds === null ? [] : measuredPage(store, conversation, bounds, query),
  ]);
  return { conversation: conversationRow, messages: found && (allTexts(found) ?? joined(texts(store, found))) };
}

/**
 * The newest messages, for the prompt of a run: parsed, and shared, so they must not be changed. Null when they are too large.
 *
 * @param most characters of all together: limits the result to the newest that fit, but at least one
 */
async function newestMessages(
  { store, recent }: Pick<Domain, "store" | "recent">,
  conversation: number,
  bounds: Bounds,
  limit: number,
  most?: number,
): Promise<{ conversation: Row | undefined; messages: readonly Message[] | null }> {
  if (most !== undefined) {
    const page = await wholePage(store, conversation, bounds, { limit, most });
    return { conversation: page.conversation, messages: page.messages && parseMessages(page.messages) };
  }
  const load = () => joinedPage(store, conversation, bounds, limit);
  if (limit <= ROWS_PER_READ && bounds.before === undefined) {
    const found = await recent.messages(conversation, limit, load);
    if (found !== null) return found;
  }
  const page = (await load()) ?? (await wholePage(store, conversation, bounds, { limit }));
  return { conversation: page.conversation, messages: page.messages && parseMessages(page.messages) };
}

async function wholePage(
  store: Store,
  conversation: number,
  bounds: Bounds,
  size: { limit: number; most?: number },
): Promise<WholePage> {
  const [row, found] = await Promise.all([
    store.get(conversationKey(conversation)),
    measuredPage(store, conversation, bounds, size),
  ]);
  if (found === null) return { conversation: row, messages: null };
  const messages: string[] = [];
  for await (const piece of joined(texts(store, found))) messages.push(piece);
  return { conversation: row, messages };
}

/** A page whose texts come from the store joined already. Null when some messages are long, or the page is large. */
async function joinedPage(
  store: Store,
  conversation: number,
  bounds: Bounds,
  limit: number,
): Promise<WholePage | null> {
  const range = { ...bounds, prefix: messageRows(conversation), otherKey: conversationKey(conversation) };
  const messages: Text[] = [];
  let row: Row | undefined;
  let most = MAX_WHOLE_BYTES;
  for (let left = limit; left > 0; left -= ROWS_PER_READ) {
    const found = await store.tail({ ...range, limit: Math.min(ROWS_PER_READ, left), most });
    if (found === null) return null;
    row = found.other;
    most -= found.text.length;
    if (found.text.length > 0) messages.unshift(...(messages.length > 0 ? [found.text, ","] : [found.text]));
    if (row === undefined || found.first === null) break;
    if (most < ROWS_PER_READ) return null;
    range.before = found.first;
  }
  return { conversation: row, messages };
}

/**
 * The messages that match, in order, the long ones as excerpts. Null when they are too large together.
 *
 * @param query `most`: characters, beyond which no older message is added
 */
async function measuredPage(
  store: Store,
  conversation: number,
  bounds: Bounds,
  { limit, roles, most }: Pick<MessageQuery, "limit" | "roles"> & { most?: number },
): Promise<Row[] | null> {
  const page: Row[] = [];
  const heads = roles?.map(roleHead);
  const range = { ...bounds, prefix: messageRows(conversation), reverse: true, longest: LARGE_MESSAGE_BYTES };
  let total = 0;
  while (page.length < limit) {
    // With a filter by role, reads a full piece even for a small limit, because many rows may not match.
    const wanted = heads === undefined ? Math.min(ROWS_PER_READ, limit - page.length) : ROWS_PER_READ;
    const rows: Row[] = await store.scan({ ...range, limit: wanted });
    for (const row of rows) {
      if (page.length === limit) break;
      // An excerpt begins like the message.
      if (heads !== undefined && !heads.some((head) => row.value.startsWith(head))) continue;
      total += sizeOf(row);
      if (most !== undefined && total > most && page.length > 0) return page.reverse();
      page.push(row);
    }
    if (most === undefined && total > MAX_PAGE_CHARACTERS) return null;
    if (rows.length < wanted) break;
    range.before = rows.at(-1)!.key;
  }
  return page.reverse();
}

/** A page without long messages. */
function allTexts(page: readonly Row[]): readonly Text[] | null {
  if (page.some(({ size }) => size !== undefined)) return null;
  return page.length === 0 ? [] : [page.map(({ value }) => value).join(",")];
}

/** The texts of a page. Messages that have been deleted since are skipped. */
async function* texts(store: Store, page: readonly Row[]): AsyncGenerator<string[], void> {
  for await (const rows of wholeRows(store, page)) yield rows.map(({ value }) => value);
}

/** The exclusive bounds of the keys on the page. Null when nothing can be between them. */
function keyBoundsFor(conversation: number, { before, after }: MessageQuery): Bounds | null {
  const prefix = messageRows(conversation);
  const bounds: Bounds = {};
  if (before !== undefined) {
    if (before <= 0) return null;
    if (before < NUMBER_LIMIT) bounds.before = prefix + encodeNumber(Math.ceil(before));
  }
  if (after !== undefined) {
    if (after >= NUMBER_LIMIT) return null;
    // `~` sorts after every digit of the sequence number, so that messages of that millisecond are excluded.
    if (after >= 0) bounds.after = `${prefix}${encodeNumber(Math.floor(after))}/~`;
  }
  return bounds;
}

/** Narrows the bounds to the messages between two others. @returns what is wrong when one is not of this conversation */
async function narrow(
  store: Store,
  conversation: number,
  bounds: Bounds,
  { beforeId, afterId }: Pick<MessageQuery, "beforeId" | "afterId">,
): Promise<string | undefined> {
  const ids = [beforeId, afterId].filter((id) => id !== undefined);
  const found = await findMessages({ store }, conversation, ids);
  for (const [name, id] of Object.entries({ beforeId, afterId })) {
    if (id !== undefined && !found.has(id)) return `${name}: this conversation has no message ${JSON.stringify(id)}`;
  }
  const { before, after } = bounds;
  const [upper, lower] = [beforeId, afterId].map((id) => id && messageKey(conversation, found.get(id)!));
  if (upper !== undefined && (before === undefined || upper < before)) bounds.before = upper;
  if (lower !== undefined && (after === undefined || lower > after)) bounds.after = lower;
  return undefined;
}

// The stored messages of a conversation, in addition to those that a client posts.

interface EarlierPage extends Pick<Earlier, "before" | "discarded" | "last" | "summary"> {
  /** Undefined when it has been deleted. */
  readonly conversation: Row | undefined;
  /** Null when they are too large together. */
  readonly messages: readonly Message[] | null;
}

/**
 * The newest messages before the first one that the client posts again: from there on the client's list replaces them. Stored
 * messages after the last one that it posts again are a branch that it has abandoned.
 */
export async function earlierMessages(
  domain: Domain,
  number: number,
  query: EarlierQuery,
  summarized: boolean,
): Promise<EarlierPage> {
  const { limit, most, posted = [], complete = false } = query;
  const known = [...(await findMessages(domain, number, posted))].sort(([, left], [, right]) =>
    left < right ? -1 : 1,
  );
  const before = known[0]?.[1] ?? (complete ? NOWHERE : undefined);
  const [last, end] = known.at(-1) ?? [];
  const [page, discarded, summary] = await Promise.all([
    newestBefore(domain, number, { limit, most }, before),
    end === undefined ? null : messagesAfter(domain, number, end),
    summarized ? summaryBefore(domain.store, number, before) : undefined,
  ]);
  return { ...page, before, discarded, last, summary };
}

/** A position before all others. */
const NOWHERE = "";

async function newestBefore(
  domain: Domain,
  number: number,
  { limit, most }: { limit: number; most: number | undefined },
  before: string | undefined,
) {
  if (limit === 0 || before === NOWHERE)
    return { conversation: await domain.store.get(conversationKey(number)), messages: [] };
  return newestMessages(
    domain,
    number,
    before === undefined ? {} : { before: messageKey(number, before) },
    limit,
    most,
  );
}

async function messagesAfter({ store }: Domain, number: number, position: string): Promise<Discarded | null> {
  const range = { prefix: messageRows(number), after: messageKey(number, position), reverse: true, limit: 1 };
  const [newest] = await store.scan(range);
  return newest === undefined ? null : { after: position, until: positionFromKey(newest.key) };
}
