/** The running summary of a conversation: its text, and the last message that it covers. */
import type { Message } from "../../../generated/types.ts";
import {
  conversationKey,
  conversationSummaryKey,
  messageKey,
  messageRows,
  positionFromKey,
} from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Store } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import type { Unsummarized } from "../memory.ts";
import { isRowOf, type Snapshot } from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { parseMessage } from "../records/message.ts";
import type { Draft } from "../semantic/semantic.ts";
import { findMessages } from "./write.ts";

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
