/** Finds messages by meaning. */
import type { Message, SearchResults } from "../../../generated/types.ts";
import { isSomebody } from "../../identity/principal.ts";
import { invalid } from "../../lib/errors.ts";
import { conversationKey, messageKey, userTotal } from "../../storage/keys.ts";
import type { Domain } from "../domain.ts";
import type { SimilarQuery } from "../memory.ts";
import {
  conversationNumber,
  indexName,
  parseConversation,
  parseMessage,
  type Snapshot,
} from "../records/conversation.ts";
import type { Semantic } from "./semantic.ts";

interface FindQuery {
  readonly text: string;
  /** Undefined: the messages of everybody. */
  readonly owner: string | undefined;
  readonly conversation: Snapshot | undefined;
  readonly limit: number;
  readonly threshold: number;
}

/** The conversation that a run continues or begins. The run gets messages of this owner only. */
interface RunConversation {
  readonly memory: string;
  readonly owner: string;
  /** Undefined when the run begins a new one. */
  readonly conversation: Snapshot | undefined;
}

interface Found {
  readonly message: Message;
  /** The number of its conversation. */
  readonly number: number;
  readonly conversationId: string;
  readonly score: number;
  /** Its position in the conversation, as text that sorts by time. */
  readonly position: string;
}

const MAX_HITS = 1000;
/** For messages that the run must not get, since its client has left them. */
const EXTRA_HITS = 100;

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

/** Whether a run searches all conversations of its user. Requests without a user share one name, and must not find each other's. */
export const searchesAllConversations = (scope: "conversation" | "user", owner: string): boolean =>
  scope === "user" && isSomebody(owner);

/** Earlier messages of similar meaning for a run, in the order in which they were said. */
export async function findSimilar(
  domain: Domain,
  semantic: Semantic,
  { memory, owner, conversation }: RunConversation,
  { text, limit, threshold, scope, knownMessageIds, knowsWholeConversation, before }: SimilarQuery,
): Promise<Message[]> {
  const everywhere = searchesAllConversations(scope, owner);
  if (!everywhere && (conversation === undefined || knowsWholeConversation)) return [];
  if (knowsWholeConversation && !(await hasOthers(domain, memory, owner, conversation))) return [];
  const found = await find(domain, semantic, {
    text,
    owner,
    conversation: everywhere ? undefined : conversation,
    // The messages that the run gets anyway are often the nearest ones, and must not take the place of others.
    limit: Math.min(limit + knownMessageIds.size + (before === undefined ? 0 : EXTRA_HITS), MAX_HITS),
    threshold,
  });
  return found
    .filter(({ message, number, position }) => {
      if (knownMessageIds.has(message.id)) return false;
      return before === undefined || number !== conversation?.number || position < before;
    })
    .slice(0, limit)
    .sort((a, b) => (a.position < b.position ? -1 : 1))
    .map(({ message }) => message);
}

/** Whether the user has other conversations. Without them no text has to be embedded for a search. */
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
  return places.flatMap(({ score, number, message: position }, index): Found[] => {
    const row = rows[index];
    const parent = rows[places.length + index];
    // Deleted during the search.
    if (row === undefined || parent === undefined) return [];
    const { id: conversationId, userId } = parseConversation(parent.value);
    if (owner !== undefined && userId !== owner) return [];
    if (conversation !== undefined && conversationId !== conversation.id) return [];
    return [{ message: parseMessage(row.value), number, conversationId, score, position }];
  });
}
