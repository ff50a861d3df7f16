/** Messages by meaning. */
import type { SearchResult, SearchResults } from "../../generated/types.ts";
import { conversationKey, messageKey } from "../storage/keys.ts";
import { conversationOf, type Snapshot } from "./conversation.ts";
import type { Domain } from "./domain.ts";
import { messageOf } from "./message.ts";
import type { Semantic } from "./semantic/semantic.ts";
import { indexName, numberOfName } from "./target.ts";

export interface FindQuery {
  readonly text: string;
  /** Undefined: of everybody. */
  readonly owner: string | undefined;
  readonly conversation: Snapshot | undefined;
  readonly limit: number;
  readonly threshold: number;
}

export async function findByMeaning(domain: Domain, semantic: Semantic, query: FindQuery): Promise<SearchResults> {
  const { text, owner, conversation, limit, threshold } = query;
  const hits = await semantic.search({
    text,
    owner,
    conversation: conversation === undefined ? undefined : indexName(conversation.number),
    limit,
    threshold,
  });
  const places = hits.map((hit) => ({ ...hit, number: numberOfName(hit.conversation) }));
  const rows = await domain.store.getMany([
    ...places.map(({ number, message }) => messageKey(number, message)),
    ...places.map(({ number }) => conversationKey(number)),
  ]);
  const results = places.flatMap(({ score }, index): SearchResult[] => {
    const row = rows[index];
    const parent = rows[places.length + index];
    // Deleted while the index was asked.
    if (row === undefined || parent === undefined) return [];
    const { id: conversationId, userId } = conversationOf(parent.value);
    if (owner !== undefined && userId !== owner) return [];
    const message = messageOf(row.value);
    return [{ id: message.id, score, message, conversationId }];
  });
  return { results, count: results.length, query: text };
}
