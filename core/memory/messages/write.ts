/** Adds the rows of messages to a commit. */

import type { Message } from "../../../generated/types.ts";
import {
  conversationKey,
  conversationSummaryKey,
  decodeNumber,
  messageIdKey,
  messageKey,
  messagePosition,
  messageRows,
  NUMBER_LIMIT,
  positionFromKey,
} from "../../storage/keys.ts";
import { allRows, rowsOf } from "../../storage/ranges.ts";
import type { Store } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import type { Unsummarized } from "../memory.ts";
import {
  createMessageId,
  idOf,
  isRowOf,
  messagePlace,
  messageText,
  type PreparedMessage,
  parseMessage,
  parseMessageId,
  type Snapshot,
  type Target,
} from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import type { Draft } from "../semantic/semantic.ts";

/**
 * The positions by id of those messages that are stored already. Every write of messages changes the conversation's revision, so
 * the result is valid as long as the revision that was read before.
 */
export async function findMessages(
  { store }: Pick<Domain, "store">,
  number: number,
  ids: Iterable<string>,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const wanted = [...new Set(ids)];
  if (wanted.length === 0) return found;
  const idPositions = wanted.map((id) => {
    const place = parseMessageId(id);
    return place === undefined ? undefined : messagePosition(place.time, place.sequence);
  });
  const keys = wanted.map((id) => messageIdKey(number, id));
  const direct = idPositions.flatMap((position) => (position === undefined ? [] : [messageKey(number, position)]));
  const stored = new Map<string, string>();
  const readDirect = async () => {
    for await (const messages of rowsOf(store, direct))
      for (const { key, value } of messages) stored.set(key, idOf(value));
  };
  const [rows] = await Promise.all([store.getMany(keys), direct.length === 0 ? undefined : readDirect()]);
  for (const [index, id] of wanted.entries()) {
    const named = rows[index];
    const position = idPositions[index];
    if (named !== undefined) found.set(id, JSON.parse(named.value) as string);
    else if (position !== undefined && stored.get(messageKey(number, position)) === id) found.set(id, position);
  }
  return found;
}

/**
 * Adds the messages to a commit: new ones after all others or at the date that the client gave, those in `known` at their old
 * position. Of two messages with the same id the last one counts.
 *
 * @param now milliseconds since 1970; a new message is dated after the newest stored one
 * @returns how many messages have ever been added to the conversation, and the date of the newest one
 */
export function writeMessages(
  domain: Domain,
  draft: Draft,
  target: Target & Pick<Snapshot, "messages" | "latest">,
  messages: readonly PreparedMessage[],
  now: number,
  known: Map<string, string>,
): Pick<Snapshot, "messages" | "latest"> {
  let { messages: sequence, latest } = target;
  const texts = new Map<string, string>();
  const searched = new Map<string, string>();
  for (const message of messages) {
    let position = message.id === undefined ? undefined : known.get(message.id);
    let id = message.id;
    if (position === undefined) {
      // Two messages share a millisecond only where the client dates them: a page is cut at a time.
      const at = message.createdAt ?? Math.min(Math.max(message.saidAt ?? now, latest + 1), NUMBER_LIMIT - 1);
      latest = Math.max(latest, at);
      sequence++;
      position = messagePosition(at, sequence);
      if (id === undefined) id = createMessageId(at, sequence);
      else {
        known.set(id, position);
        draft.put.push([messageIdKey(target.number, id), JSON.stringify(position)]);
      }
    }
    message.named?.(id!);
    texts.set(
      messageKey(target.number, position),
      messageText(message, id!, decodeNumber(position.slice(0, position.indexOf("/")))),
    );
    searched.set(position, message.search);
  }
  for (const row of texts) draft.put.push(row);
  const semantic = domain.semantic.get(target.memory);
  if (semantic !== undefined) {
    for (const [position, text] of searched) semantic.saved(draft, messagePlace(target, position), text);
  }
  return { messages: sequence, latest };
}

/** Adds the removal of messages to a commit. @param positions by id */
export function removeMessages(
  domain: Domain,
  draft: Draft,
  target: Target,
  positions: ReadonlyMap<string, string>,
): void {
  for (const [id, position] of positions)
    draft.delete.push(messageKey(target.number, position), messageIdKey(target.number, id));
  const places = [...positions.values()].map((position) => messagePlace(target, position));
  domain.semantic.get(target.memory)?.deleted(draft, places);
}

// The running summary of a conversation: its text, and the last message that it covers.

/** A small number, because messages may contain files, of which a summary needs only the type. */
const ROWS_PER_READ = 16;
const MAX_READ_CHARACTERS = 8 * 1024 * 1024;

interface Summary {
  readonly text: string;
  /** Position of the last message that it covers. */
  readonly through: string;
}

async function readSummary(store: Store, number: number): Promise<(Summary & { revision: number }) | undefined> {
  const row = await store.get(conversationSummaryKey(number));
  return row === undefined ? undefined : { ...(JSON.parse(row.value) as Summary), revision: row.revision };
}

/** The summary, unless it goes beyond `before`: then it covers messages that the client has abandoned. */
export async function summaryBefore(store: Store, number: number, before: string | undefined) {
  const summary = await readSummary(store, number);
  return summary === undefined || (before !== undefined && summary.through >= before) ? undefined : summary.text;
}

/** The oldest messages that are not summarized, at most `limit`, before the message `before`. Null when that no longer exists. */
export async function unsummarized(
  domain: Domain,
  conversation: Snapshot,
  before: string,
  limit: number,
): Promise<Unsummarized | null> {
  const { store } = domain;
  const { number } = conversation;
  const [summary, known, row] = await Promise.all([
    readSummary(store, number),
    findMessages(domain, number, [before]),
    store.get(conversationKey(number)),
  ]);
  const end = known.get(before);
  if (end === undefined || row === undefined || !isRowOf(conversation, row)) return null;
  const messages: Message[] = [];
  const positions: string[] = [];
  const range = {
    prefix: messageRows(number),
    ...(summary !== undefined && { after: messageKey(number, summary.through) }),
    before: messageKey(number, end),
  };
  let size = 0;
  for await (const rows of allRows(store, range, Math.min(ROWS_PER_READ, limit))) {
    for (const { key, value } of rows.slice(0, limit - messages.length)) {
      messages.push(parseMessage(value));
      positions.push(positionFromKey(key));
      size += value.length;
    }
    if (messages.length === limit || size > MAX_READ_CHARACTERS) break;
  }
  const full = messages.length === limit || size > MAX_READ_CHARACTERS;
  return { summary: summary?.text, messages, positions, full };
}

/**
 * Stores a summary, unless its last message no longer exists: its content may have been taken back meanwhile.
 *
 * @throws ConversationGone when the conversation has been deleted
 */
export function writeSummary(domain: Domain, found: Snapshot, { text, through }: Summary): Promise<void> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async () => {
      const conversation = await domain.conversations.current(found, true);
      const { number, revision } = conversation;
      if ((await domain.store.get(messageKey(number, through))) === undefined) return;
      await domain.store.commit({
        put: [[conversationSummaryKey(number), JSON.stringify({ text, through })]],
        expect: [[conversationKey(number), revision]],
        of: [conversation],
        begun: true,
      });
    }),
  );
}

/** For a commit that removes messages: also removes a summary that covers them. */
export async function dropSummaryOf(
  store: Store,
  draft: Draft,
  number: number,
  positions: Iterable<string>,
): Promise<void> {
  const summary = await readSummary(store, number);
  draft.expect.push([conversationSummaryKey(number), summary?.revision ?? null]);
  if (summary === undefined) return;
  for (const position of positions) {
    if (position > summary.through) continue;
    draft.delete.push(conversationSummaryKey(number));
    return;
  }
}
