/** Messages by meaning. */
import type { Message, SearchResults } from "../../../generated/types.ts";
import { isSomebody } from "../../identity/ownership.ts";
import { invalid } from "../../lib/errors.ts";
import { conversationKey, messageKey, userTotal } from "../../storage/keys.ts";
import type { Domain } from "../domain.ts";
import type { SimilarQuery } from "../memory.ts";
import { parseConversation, type Snapshot } from "../records/conversation.ts";
import { parseMessage } from "../records/message.ts";
import { conversationNumber, indexName } from "../records/target.ts";
import type { Semantic } from "./semantic.ts";

interface FindQuery {
  readonly text: string;
  /** Undefined: of everybody. */
  readonly owner: string | undefined;
  readonly conversation: Snapshot | undefined;
  readonly limit: number;
  readonly threshold: number;
}

/** Whose messages a run may be told: of an owner alone, and of nobody else. */
interface RunConversation {
  readonly memory: string;
  readonly owner: string;
  /** Undefined when the run begins it. */
  readonly conversation: Snapshot | undefined;
}

interface Found {
  readonly message: Message;
  readonly conversationId: string;
  readonly score: number;
  /** Its place in the conversation, as text that is in the order of time. */
  readonly position: string;
}

/** Hits of one search of the index. */
const MOST = 1000;

/** @throws ServiceError `invalid_input` for a memory that cannot be searched */
export function requireSemantic(memory: string, semantic: Semantic | undefined): Semantic {
  if (semantic !== undefined) return semantic;
  throw invalid(`memory ${JSON.stringify(memory)} has no embedding and vectors (memory.${memory}.semantic)`);
}

export async function findByMeaning(domain: Domain, semantic: Semantic, query: FindQuery): Promise<SearchResults> {
  const found = await find(domain, semantic, query);
  const results = found.map(({ message, score, conversationId }) => ({
    id: message.id,
    score,
    message,
    conversationId,
  }));
  return { results, count: results.length, query: query.text };
}

/** Whether a run looks beyond its conversation. Those without a user have a name in common, and nothing else. */
export const searchesAllConversations = (scope: "conversation" | "user", owner: string): boolean =>
  scope === "user" && isSomebody(owner);

/** What a run is told of what was said before, in the order in which it was. */
export async function findSimilar(
  domain: Domain,
  semantic: Semantic,
  { memory, owner, conversation }: RunConversation,
  { text, limit, threshold, scope, told, whole }: SimilarQuery,
): Promise<Message[]> {
  const beyond = searchesAllConversations(scope, owner);
  if (!beyond && (conversation === undefined || whole)) return [];
  if (whole && !(await hasOthers(domain, memory, owner, conversation))) return [];
  const found = await find(domain, semantic, {
    text,
    owner,
    conversation: beyond ? undefined : conversation,
    // What the run is told anyway is often the nearest, and must not take the place of what it would not know.
    limit: Math.min(limit + told.size, MOST),
    threshold,
  });
  return found
    .filter(({ message }) => !told.has(message.id))
    .slice(0, limit)
    .sort((a, b) => (a.position < b.position ? -1 : 1))
    .map(({ message }) => message);
}

/** That spares the embedding of everything that is said in a user's first conversation. */
async function hasOthers({ store }: Domain, memory: string, owner: string, conversation: Snapshot | undefined) {
  const total = Number((await store.get(userTotal(memory, owner)))?.value ?? 0);
  return total > (conversation === undefined ? 0 : 1);
}

async function find(domain: Domain, semantic: Semantic, query: FindQuery): Promise<Found[]> {
  const { text, owner, conversation, limit, threshold } = query;
  const hits = await semantic.search({
    text,
    owner,
    conversation: conversation === undefined ? undefined : indexName(conversation.number),
    limit,
    threshold,
  });
  const places = hits.map((hit) => ({ ...hit, number: conversationNumber(hit.conversation) }));
  const rows = await domain.store.getMany([
    ...places.map(({ number, message }) => messageKey(number, message)),
    ...places.map(({ number }) => conversationKey(number)),
  ]);
  return places.flatMap(({ score, message: position }, index): Found[] => {
    const row = rows[index];
    const parent = rows[places.length + index];
    // Deleted while the index was asked.
    if (row === undefined || parent === undefined) return [];
    const { id: conversationId, userId } = parseConversation(parent.value);
    if (owner !== undefined && userId !== owner) return [];
    return [{ message: parseMessage(row.value), conversationId, score, position }];
  });
}
