/** Pages of conversations, sorted by last change, creation or title, of a user, of a resource or of all. */
import type { Serialized } from "../../lib/serialized.ts";
import {
  conversationKey,
  countedIndex,
  indexedConversation,
  indexedTime,
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

/**
 * The keys of one page of all ranges together, sorted by what follows their prefixes. It reads a little of each range, and
 * everything that comes before the page.
 */
async function mergedPage(store: Store, prefixes: readonly string[], reverse: boolean, offset: number, limit: number) {
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
const nextCursor = (cursors: readonly Cursor[], reverse: boolean): number =>
  cursors.reduce(
    (best, cursor, index) => (currentEntry(cursor) > currentEntry(cursors[best]!) === reverse ? index : best),
    0,
  );

const currentEntry = ({ prefix, keys, next }: Cursor): string => keys[next]!.slice(prefix.length);

/** Where conversations are looked for: in a memory, those of one resource or all. */
interface ListedPlace {
  readonly memory: string;
  readonly resourceId?: string | undefined;
}

type ListedQuery = Omit<ConversationListQuery, "resourceId">;

/**
 * @param places several of them have a resource each
 * @param shown changes the text of a conversation
 */
export async function listConversations(
  store: Store,
  places: readonly ListedPlace[],
  query: ListedQuery,
  shown?: (conversation: string, resourceId: string) => string,
): Promise<Serialized> {
  const { limit, offset, userId } = query;
  const { numbers, total } = await findPage(store, places, query);
  const rows = await measuredRows(store, numbers.map(conversationKey));
  const end = `],"total":${total},"limit":${limit},"offset":${offset}}`;
  return rowsInReply(store, rows, '{"conversations":[', end, (row) => {
    // The number in an index row may have been reused for another conversation.
    const found = conversationIdentity(row);
    const belongs =
      (userId ?? found.userId) === found.userId &&
      places.some(({ resourceId = found.resourceId }) => resourceId === found.resourceId);
    if (!belongs) return null;
    const text = conversationJson(row);
    return shown?.(text, found.resourceId) ?? text;
  });
}

/** The internal numbers of the conversations on a page, and the number of all that match. */
async function findPage(store: Store, places: readonly ListedPlace[], query: ListedQuery) {
  const { userId, orderBy, orderDirection, limit, offset } = query;
  const reverse = orderDirection === "DESC";
  if (orderBy !== "updated_at" || (userId !== undefined && places.some(({ resourceId }) => resourceId !== undefined))) {
    const numbers = await sortedNumbers(store, places, query);
    if (reverse) numbers.reverse();
    return { numbers: numbers.slice(offset, offset + limit), total: numbers.length };
  }
  const { indexes, total } = await countedIndexes(store, places, userId);
  const keys =
    indexes.length === 1
      ? (await rowsAt(store, { prefix: indexes[0]!, reverse, limit }, offset)).map((row) => row.key)
      : await mergedPage(store, indexes, reverse, offset, limit);
  return { numbers: keys.map(indexedConversation), total };
}

/** The indexes of all conversations of the places or of a user in them, and how many these are. */
async function countedIndexes(store: Store, places: readonly ListedPlace[], userId: string | undefined) {
  const [whole] = places.filter(({ resourceId }) => resourceId === undefined);
  if (userId === undefined && whole !== undefined) return resources(store, whole.memory);
  const ranges = places.map(({ memory, resourceId = "" }) =>
    userId === undefined
      ? [resourceIndex(memory, resourceId), resourceTotal(memory, resourceId)]
      : [userIndex(memory, userId), userTotal(memory, userId)],
  );
  const totals = await store.getMany(ranges.map(([, total]) => total!));
  return {
    indexes: ranges.map(([index]) => index!),
    total: totals.reduce((sum, row) => sum + Number(row?.value ?? 0), 0),
  };
}

/** The numbers of all matching conversations in their order. */
async function sortedNumbers(store: Store, places: readonly ListedPlace[], query: ListedQuery) {
  const entries = new Map<number, number | string>();
  // A conversation that changes during the scan occurs again at its new place.
  for (const place of places)
    for await (const rows of indexRows(store, place, query.userId))
      for (const { key } of rows) entries.set(indexedConversation(key), indexedTime(key));
  const numbers = [...entries.keys()];
  if (query.orderBy !== "updated_at") {
    const field = query.orderBy === "title" ? "title" : "createdAt";
    entries.clear();
    for (let start = 0; start < numbers.length; start += 1000) {
      const numberOf = new Map(numbers.slice(start, start + 1000).map((number) => [conversationKey(number), number]));
      for await (const rows of rowsOf(store, [...numberOf.keys()]))
        for (const { key, value } of rows) entries.set(numberOf.get(key)!, parseConversation(value)[field]);
    }
  }
  // Conversations are numbered in the order of their creation, which decides between equal values.
  return [...entries]
    .sort(([a, one], [b, other]) => (one < other ? -1 : one > other ? 1 : a - b))
    .map(([number]) => number);
}

/** The rows of the index of a place, of one user or of all; the last changed first if `reverse`. */
async function* indexRows(
  store: Store,
  { memory, resourceId }: ListedPlace,
  userId: string | undefined,
  reverse = false,
) {
  const prefixes =
    userId !== undefined
      ? [userIndex(memory, userId)]
      : resourceId !== undefined
        ? [resourceIndex(memory, resourceId)]
        : (await resources(store, memory)).indexes;
  const wanted = userId !== undefined && resourceId !== undefined ? JSON.stringify(resourceId) : undefined;
  for (const prefix of prefixes)
    for await (const rows of allRows(store, { prefix, reverse }))
      yield wanted === undefined ? rows : rows.filter(({ value }) => value === wanted);
}

/** How many conversations of a place are looked at for its users. */
const MAX_COUNTED = 10_000;

/** The users with conversations of a resource: how many of the newest ones are theirs, and when the last of these changed. */
export async function usersOf(store: Store, place: ListedPlace, owner: string | undefined) {
  const users = new Map<string, { count: number; last: number }>();
  let left = MAX_COUNTED;
  for await (const rows of indexRows(store, place, owner, true))
    for (const { key, value } of rows) {
      if (left-- === 0) return users;
      const userId = owner ?? (JSON.parse(value) as string);
      const known = users.get(userId);
      if (known === undefined) users.set(userId, { count: 1, last: indexedTime(key) });
      else known.count++;
    }
  return users;
}

/** The indexes of all resources that have conversations, and the number of these conversations. */
async function resources(store: Store, memory: string) {
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
