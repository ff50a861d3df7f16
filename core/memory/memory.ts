/** The interface of a memory, as the API and the agents use it. */
import type { Conversation, Message, SearchResults, WorkingMemory } from "../../generated/types.ts";
import type { Principal } from "../identity/principal.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { MemoryManifest } from "../manifest/manifest.ts";
import type { JoinedChanges } from "../storage/joined.ts";

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

/** One message to be stored, in the form in which it arrived: `parts` (UI) or `content` (model). */
export interface NewMessage {
  id?: string;
  role: "system" | "user" | "assistant" | "tool";
  parts?: unknown[];
  content?: unknown;
  metadata?: Record<string, unknown>;
  /** ISO 8601: the date that the client gives it, which decides its place. Default: after all stored messages. */
  createdAt?: string;
  /** Without `createdAt`: when it was said, by the memory's clock, but not before the newest stored message. Default: now. */
  saidAt?: number;
}

export interface NewConversation {
  id?: string;
  userId: string;
  resourceId: string;
  title?: string;
  metadata?: Record<string, unknown>;
}

/** Which earlier messages a run wants beside the newest ones of its conversation. */
export interface SimilarQuery {
  readonly text: string;
  readonly limit: number;
  readonly threshold: number;
  /** Where to look: in the conversation, or in all conversations of its user. */
  readonly scope: "conversation" | "user";
  /** Ids of the messages that the run gets anyway. */
  readonly knownMessageIds: ReadonlySet<string>;
  /** Whether those are all messages of the conversation. */
  readonly knowsWholeConversation: boolean;
  /** Of its own conversation, the run wants only messages before this position. */
  readonly before?: string | undefined;
}

/** Which stored messages of its conversation a run wants beside those that the client posts. */
export interface EarlierQuery {
  readonly limit: number;
  /** Most characters of all messages together; the newest one comes however long it is. Default: those of the largest page. */
  readonly most?: number;
  /** Ids of the posted messages. Default: none. */
  readonly posted?: Iterable<string>;
  /** Whether the posted messages are a conversation of their own, so that those stored under other ids add nothing. */
  readonly complete?: boolean;
}

export interface Earlier {
  /** In order. They may be shared with other readers: nobody may change them. */
  readonly messages: readonly Message[];
  /** The position from which on the posted messages are the conversation; undefined: they come after all that is stored. */
  readonly before: string | undefined;
  readonly discarded: Discarded | null;
  /** Id of the last stored message that is posted again. */
  readonly last: string | undefined;
  /** Of messages before these. Undefined when nothing has been summed up. */
  readonly summary: string | undefined;
}

/** Messages that are not in the summary yet. */
export interface Unsummarized {
  readonly summary: string | undefined;
  /** The oldest first. */
  readonly messages: readonly Message[];
  /** Where they stand. */
  readonly positions: readonly string[];
  /** Whether these are as many as are read at once, by number or by size: there may be others. */
  readonly full: boolean;
}

/** Stored messages between two positions, the first exclusive: a branch of the conversation that the client has left. */
export interface Discarded {
  readonly after: string;
  readonly until: string;
}

/** Where a turn belongs among the messages that are stored already. */
export interface TurnPlace {
  /** Id of the posted message that the turn answers. Other answers to it are removed. */
  readonly answers: string | undefined;
  /** Id of the turn's own answer. */
  readonly answer: string;
  /** Removed in the same commit. */
  readonly discarded: Discarded | null;
  /** Whether nothing is stored when another answer to that message has been stored meanwhile. */
  readonly yields: boolean;
}

export type WorkingMemoryScope = "conversation" | "user";

/** One named memory. */
export interface Memory {
  /** The name in the manifest. */
  readonly name: string;
  readonly settings: MemoryManifest;
  /** Milliseconds since 1970; never goes backwards. */
  readonly now: () => number;
  for(principal: Principal): MemoryAccess;
}

/**
 * A memory for one principal. Methods reject with ServiceError: `not_found` for a conversation that does not exist or belongs to
 * somebody else, `conflict` for a duplicate id, `invalid_input` for wrong input, and for an id that several users have unless
 * `userId` says whose is meant.
 */
export interface MemoryAccess {
  /** A `ConversationList` as JSON text, made from the rows without parsing them. */
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
  /** `{conversation, messages}` as JSON text: the newest `limit` messages that match, in order. Rows are not parsed. */
  messages(id: string, query: MessageQuery): Promise<Serialized>;
  /**
   * One commit for the whole batch, which may span conversations. Returns how many were saved. A message whose id exists replaces that
   * message in place.
   */
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

  /** For generation: the last `limit` messages before the posted ones. Empty when the conversation does not exist yet. */
  earlier(id: string, query: EarlierQuery, userId?: string): Promise<Earlier>;
  /** For generation: messages before the one of that id that are not summed up. Null when that one is gone. */
  unsummarized(
    conversation: { id: string; userId: string },
    before: string,
    limit: number,
  ): Promise<Unsummarized | null>;
  /** For generation: replaces the summary of the conversation by one that goes up to a position. */
  summarize(conversation: { id: string; userId: string }, text: string, through: string): Promise<void>;
  /** For generation: earlier messages of similar meaning, in the order in which they were said. */
  similar(conversation: { id: string; userId: string }, query: SimilarQuery): Promise<Message[]>;
  /**
   * For generation: the same as `workingMemory`, also while the conversation does not exist yet. Null when the memory has no working
   * memory.
   */
  workingMemoryIfAny(conversation: { id: string; userId: string }): Promise<WorkingMemory | null>;
  /**
   * For generation: creates the conversation if it does not exist (title at most 80 characters) and saves the messages, in one
   * commit. Without messages it only makes sure that the conversation exists and belongs to the user.
   *
   * @param joined what happens in the same commit, if there is one
   * @throws what `lost` of those gives
   */
  append(
    conversation: NewConversation & { id: string },
    messages: readonly NewMessage[],
    place?: TurnPlace,
    joined?: readonly JoinedChanges[],
  ): Promise<void>;
}
