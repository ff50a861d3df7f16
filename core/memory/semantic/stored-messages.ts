/** All messages of a memory, to rebuild its index. */
import {
  conversationIdKey,
  conversationIds,
  conversationKey,
  messageRows,
  positionFromKey,
} from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Store } from "../../storage/store.ts";
import { messagePlace, parseConversation, parseMessage, searchableText } from "../records/conversation.ts";
import type { SearchedMessage } from "./semantic.ts";

/** Messages may be large. */
const MESSAGES_PER_READ = 100;

/** Conversation by conversation. Messages that are deleted during the walk may be included. */
export async function* storedMessages(store: Store, memory: string): AsyncGenerator<SearchedMessage> {
  for (const prefix of conversationIds(memory)) yield* messagesBelow(store, memory, prefix);
}

async function* messagesBelow(store: Store, memory: string, prefix: string): AsyncGenerator<SearchedMessage> {
  for await (const rows of allRows(store, { prefix })) {
    for (const row of rows) {
      const number = JSON.parse(row.value) as number;
      const conversation = await store.get(conversationKey(number));
      if (conversation === undefined) continue;
      const { id, userId } = parseConversation(conversation.value);
      if (![undefined, userId].some((owner) => conversationIdKey(memory, id, owner) === row.key)) continue;
      for await (const messages of allRows(store, { prefix: messageRows(number) }, MESSAGES_PER_READ)) {
        for (const { key, value } of messages) {
          const place = messagePlace({ memory, number, userId }, positionFromKey(key));
          yield { ...place, text: searchableText(parseMessage(value)) };
        }
      }
    }
  }
}
