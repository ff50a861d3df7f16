/** What the API and the agents see of a memory (contract, "Memory"; decisions 31-37). */
import type { Conversation, Message, SearchResults, WorkingMemory } from "../../generated/types.ts";
import type { Principal } from "../identity/principal.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { MemoryManifest } from "../manifest/manifest.ts";

export interface ConversationListQuery {
  resourceId?: string;
  userId?: string;
  limit: number;
  offset: number;
  orderBy: "created_at" | "updated_at" | "title";
  orderDirection: "ASC" | "DESC";
}

export interface MessageQuery {
  limit: number;
  /** Exclusive, milliseconds since 1970. */
  before?: number;
  after?: number;
  roles?: readonly string[];
  userId?: string;
}

/** One message to be stored, in the form it came in: `parts` (UI) or `content` (model). */
export interface NewMessage {
  id?: string;
  role: "system" | "user" | "assistant" | "tool";
  parts?: unknown[];
  content?: unknown;
  metadata?: Record<string, unknown>;
  /** ISO 8601: where its client puts it, whatever else there is. Default: after all that is there. */
  createdAt?: string;
  /** Without `createdAt`: when it was said, by the memory's clock; where something there is later, then. Default: now. */
  saidAt?: number;
}

export interface NewConversation {
  id?: string;
  userId: string;
  resourceId: string;
  title?: string;
  metadata?: Record<string, unknown>;
}

/** What a run wants to be told beside the newest messages of its conversation. */
export interface SimilarQuery {
  readonly text: string;
  readonly limit: number;
  readonly threshold: number;
  /** Where to look: in the conversation, or in all of its user's. */
  readonly scope: "conversation" | "user";
  /** Ids of messages that the run is told anyway. */
  readonly told: ReadonlySet<string>;
  /** Whether those are all that the conversation has. */
  readonly whole: boolean;
}

export type WorkingMemoryScope = "conversation" | "user";

/** One named memory. */
export interface Memory {
  /** The name in the manifest. */
  readonly name: string;
  readonly settings: MemoryManifest;
  /** Milliseconds since 1970; never goes back. */
  readonly now: () => number;
  for(principal: Principal): MemoryAccess;
}

/**
 * A memory for one principal. A conversation that does not exist, or belongs to somebody else, is ServiceError
 * `not_found`; a duplicate id is `conflict`; input that makes no sense is `invalid_input`, and so is an id that several users
 * have, unless `userId` says whose is meant.
 */
export interface MemoryAccess {
  /** A `ConversationList` ready for the envelope. Rows are not parsed. */
  list(query: ConversationListQuery): Promise<Serialized>;
  get(id: string, userId?: string): Promise<Conversation>;
  create(conversation: NewConversation): Promise<Conversation>;
  /** Merges metadata key by key; null deletes a key. */
  update(
    id: string,
    change: { title?: string; metadata?: Record<string, unknown> },
    userId?: string,
  ): Promise<Conversation>;
  delete(id: string, userId?: string): Promise<void>;
  clone(
    id: string,
    options: {
      newConversationId?: string;
      title?: string;
      metadata?: Record<string, unknown>;
      resourceId?: string;
      includeMessages: boolean;
    },
    userId?: string,
  ): Promise<{ conversation: Conversation; messageCount: number }>;
  /** `{conversation, messages}` ready for the envelope: the newest `limit` that match, in order. Rows are not parsed. */
  messages(id: string, query: MessageQuery): Promise<Serialized>;
  /** One commit for the whole batch, which may span conversations. Gives how many were saved. An id that exists is replaced in place. */
  save(entries: readonly { conversationId: string; userId?: string; message: NewMessage }[]): Promise<number>;
  deleteMessages(id: string, messageIds: readonly string[], userId?: string): Promise<number>;
  workingMemory(id: string, options: { scope?: WorkingMemoryScope; userId?: string }): Promise<WorkingMemory>;
  updateWorkingMemory(
    id: string,
    content: string | Record<string, unknown>,
    mode: "replace" | "append",
    options: { scope?: WorkingMemoryScope; userId?: string },
  ): Promise<void>;
  /** ServiceError `invalid_input` (400) when the memory has no embedding and vectors. */
  search(query: {
    text: string;
    conversationId?: string;
    userId?: string;
    limit: number;
    /** Default: the memory's. */
    threshold?: number | undefined;
  }): Promise<SearchResults>;

  /** For generation: the last `limit` messages in order, parsed. Empty when the conversation does not exist yet. */
  recent(id: string, limit: number, userId?: string): Promise<Message[]>;
  /** For generation: what was said before that means something similar, in the order in which it was. */
  similar(conversation: { id: string; userId: string }, query: SimilarQuery): Promise<Message[]>;
  /** For generation: working memory as `workingMemory` gives it, before the conversation exists too; null without one. */
  workingMemoryIfAny(conversation: { id: string; userId: string }): Promise<WorkingMemory | null>;
  /**
   * For generation: creates the conversation if need be (title at most 80 characters), and saves in one commit. Without
   * messages it only sees to it that the conversation is there, and is the user's.
   */
  append(conversation: NewConversation & { id: string }, messages: readonly NewMessage[]): Promise<void>;
}
