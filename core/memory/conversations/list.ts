/** Pages of conversations, sorted by last change, creation or title, of a user, of a resource or of all. */
import type { Serialized } from "../../lib/serialized.ts";
import {
  conversationKey,
  countedIndex,
  indexedConversation,
  resourceIndex,
  resourceTotal,
  resourceTotals,
  userIndex,
  userTotal,
} from "../../storage/keys.ts";
import { allRows, measuredRows, rowsAt, rowsInReply, rowsOf } from "../../storage/ranges.ts";
import type { Store } from "../../storage/store.ts";
import type { ConversationListQuery } from "../memory.ts";
import { conversationIdentity, conversationJson, parseConversation } from "../records/conversation.ts";

// A page of several sorted ranges, merged into one order.

const MIN_ROWS_PER_READ = 16;
const MAX_ROWS_PER_READ = 256;

interface Cursor {
  readonly prefix: string;
  keys: string[];
  next: number;
  /** The store has no more rows. */
  ended: boolean;
}

interface MergeOptions {
  readonly reverse: boolean;
  readonly limit: number;
  readonly offset: number;
}

/**
 * The keys of one page of all ranges together, sorted by what follows their prefixes. It reads a little of each range, and
 * everything that comes before the page.
 */
async function mergedPage(store: Store, prefixes: readonly string[], options: MergeOptions): Promise<string[]> {
  const { reverse, limit, offset } = options;
  const end = offset + limit;
  const piece = Math.min(
    MAX_ROWS_PER_READ,
    end,
    Math.max(MIN_ROWS_PER_READ, Math.ceil((2 * end) / Math.max(1, prefixes.length))),
  );
  const cursors = await Promise.all(
    prefixes.map(async (prefix): Promise<Cursor> => {
      const cursor = { prefix, keys: [], next: 0, ended: false };
      await refill(store, cursor, reverse, piece);
      return cursor;
    }),
  );
  const left = cursors.filter((cursor) => cursor.keys.length > 0);
  const page: string[] = [];
  for (let index = 0; index < end && left.length > 0; index++) {
    const at = nextCursor(left, reverse);
    const cursor = left[at]!;
    const key = cursor.keys[cursor.next++]!;
    if (index >= offset) page.push(key);
    if (cursor.next === cursor.keys.length && index + 1 < end) await refill(store, cursor, reverse, MAX_ROWS_PER_READ);
    if (cursor.next === cursor.keys.length) left.splice(at, 1);
  }
  return page;
}

async function refill(store: Store, cursor: Cursor, reverse: boolean, limit: number): Promise<void> {
  if (cursor.ended) return;
  const last = cursor.keys.at(-1);
  const bound = last === undefined ? {} : reverse ? { before: last } : { after: last };
  const rows = await store.scan({ prefix: cursor.prefix, reverse, limit, ...bound });
  cursor.keys = rows.map((row) => row.key);
  cursor.next = 0;
  cursor.ended = rows.length < limit;
}

/** There are usually few ranges, so that looking at each is as good as a heap. */
function nextCursor(cursors: readonly Cursor[], reverse: boolean): number {
  let best = 0;
  let entry = currentEntry(cursors[0]!);
  for (let index = 1; index < cursors.length; index++) {
    const other = currentEntry(cursors[index]!);
    if (reverse ? other > entry : other < entry) {
      best = index;
      entry = other;
    }
  }
  return best;
}

const currentEntry = ({ prefix, keys, next }: Cursor): string => keys[next]!.slice(prefix.length);

/** The internal numbers of the conversations on a page, and the number of all that match. */
interface Page {
  readonly numbers: readonly number[];
  readonly total: number;
}

export async function listConversations(
  store: Store,
  memory: string,
  query: ConversationListQuery,
): Promise<Serialized> {
  const { limit, offset } = query;
  const { numbers, total } = await findPage(store, memory, query);
  const rows = await measuredRows(store, numbers.map(conversationKey));
  const end = `],"total":${total},"limit":${limit},"offset":${offset}}`;
  const textOf = (row: string) => (belongs(row, query) ? conversationJson(row) : null);
  return rowsInReply(store, rows, '{"conversations":[', end, textOf);
}

function findPage(store: Store, memory: string, query: ConversationListQuery): Promise<Page> {
  const { userId, resourceId, orderBy } = query;
  if (orderBy !== "updated_at") return sortedPage(store, memory, query);
  if (userId !== undefined && resourceId !== undefined) return filteredPage(store, memory, query);
  if (userId !== undefined) return indexPage(store, query, userIndex(memory, userId), userTotal(memory, userId));
  if (resourceId === undefined) return wholePage(store, memory, query);
  return indexPage(store, query, resourceIndex(memory, resourceId), resourceTotal(memory, resourceId));
}

async function indexPage(store: Store, query: ConversationListQuery, prefix: string, counter: string): Promise<Page> {
  const range = { prefix, reverse: query.orderDirection === "DESC", limit: query.limit };
  const [rows, total] = await Promise.all([rowsAt(store, range, query.offset), store.get(counter)]);
  return { numbers: rows.map((row) => indexedConversation(row.key)), total: Number(total?.value ?? 0) };
}

async function wholePage(store: Store, memory: string, query: ConversationListQuery): Promise<Page> {
  const { limit, offset } = query;
  const reverse = query.orderDirection === "DESC";
  const { indexes, total } = await resources(store, memory);
  const [only] = indexes;
  const keys =
    indexes.length === 1
      ? (await rowsAt(store, { prefix: only!, reverse, limit }, offset)).map((row) => row.key)
      : await mergedPage(store, indexes, { reverse, limit, offset });
  return { numbers: keys.map(indexedConversation), total };
}

async function filteredPage(store: Store, memory: string, query: ConversationListQuery): Promise<Page> {
  const numbers = await matchingNumbers(store, memory, query);
  if (query.orderDirection === "DESC") numbers.reverse();
  return { numbers: numbers.slice(query.offset, query.offset + query.limit), total: numbers.length };
}

async function sortedPage(store: Store, memory: string, query: ConversationListQuery): Promise<Page> {
  const field = query.orderBy === "title" ? "title" : "createdAt";
  const entries: { number: number; value: string }[] = [];
  const numbers = await matchingNumbers(store, memory, query);
  for (let start = 0; start < numbers.length; start += 1000) {
    const numberOf = new Map(numbers.slice(start, start + 1000).map((number) => [conversationKey(number), number]));
    for await (const rows of rowsOf(store, [...numberOf.keys()]))
      for (const { key, value } of rows)
        entries.push({ number: numberOf.get(key)!, value: parseConversation(value)[field] });
  }
  // Conversations are numbered in the order of their creation, which decides between equal values.
  entries.sort((a, b) => (a.value < b.value ? -1 : a.value > b.value ? 1 : a.number - b.number));
  if (query.orderDirection === "DESC") entries.reverse();
  const page = entries.slice(query.offset, query.offset + query.limit);
  return { numbers: page.map((entry) => entry.number), total: entries.length };
}

/** The numbers of all matching conversations, sorted by last change. */
async function matchingNumbers(
  store: Store,
  memory: string,
  { userId, resourceId }: ConversationListQuery,
): Promise<number[]> {
  const numbers = new Set<number>();
  const prefixes =
    userId !== undefined
      ? [userIndex(memory, userId)]
      : resourceId !== undefined
        ? [resourceIndex(memory, resourceId)]
        : (await resources(store, memory)).indexes;
  const wanted = userId !== undefined && resourceId !== undefined ? JSON.stringify(resourceId) : undefined;
  for (const prefix of prefixes) {
    for await (const rows of allRows(store, { prefix })) {
      for (const row of rows) {
        if (wanted !== undefined && row.value !== wanted) continue;
        const number = indexedConversation(row.key);
        // A conversation that changes during the scan occurs again at its new place.
        numbers.delete(number);
        numbers.add(number);
      }
    }
  }
  return [...numbers];
}

/** The indexes of all resources that have conversations, and the number of these conversations. */
async function resources(store: Store, memory: string): Promise<{ indexes: string[]; total: number }> {
  const indexes: string[] = [];
  let total = 0;
  for await (const rows of allRows(store, { prefix: resourceTotals(memory) })) {
    for (const { key, value } of rows) {
      const count = Number(value);
      if (count === 0) continue;
      total += count;
      indexes.push(countedIndex(key));
    }
  }
  return { indexes, total };
}

/** Whether a row matches the query. The number in an index row may have been reused for another conversation. */
function belongs(row: string, { userId, resourceId }: ConversationListQuery): boolean {
  if (userId === undefined && resourceId === undefined) return true;
  const found = conversationIdentity(row);
  return (userId ?? found.userId) === found.userId && (resourceId ?? found.resourceId) === found.resourceId;
}
