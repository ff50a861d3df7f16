/** The interface of a memory, as the API and the agents use it. */
import type { Conversation, Message, SearchResults, WorkingMemory } from "../../generated/types.ts";
import type { Charge } from "../http/exchange.ts";
import type { Principal } from "../identity/principal.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { MemoryManifest } from "../manifest/manifest.ts";
import type { JoinedChanges } from "../storage/joined.ts";
import type { Semantic } from "./semantic/semantic.ts";

export interface ConversationListQuery {
  resourceId?: string | undefined;
  userId?: string | undefined;
  limit: number;
  offset: number;
  orderBy: "created_at" | "updated_at" | "title";
  orderDirection: "ASC" | "DESC";
}

export interface MessageQuery {
  limit: number;
  /** Milliseconds since 1970, exclusive, as `after`. */
  before?: number | undefined;
  after?: number | undefined;
  /** Ids of messages of the conversation, exclusive. */
  beforeId?: string | undefined;
  afterId?: string | undefined;
  roles?: readonly string[] | undefined;
  userId?: string | undefined;
}

/** One message to be stored, in the format in which it arrived: `parts` (UI) or `content` (model). */
export interface NewMessage {
  id?: string;
  role: "system" | "user" | "assistant" | "tool";
  parts?: unknown[];
  content?: unknown;
  metadata?: Record<string, unknown>;
  /** ISO 8601 date from the client, which determines the position. Default: after all stored messages. */
  createdAt?: string;
  /** Called with the id under which it is going to be stored, before the commit; again when that is tried again. */
  named?(id: string): void;
  /** Without `createdAt`: the time of the message on the memory's clock, but after the newest stored message. Default: now. */
  saidAt?: number;
}

export interface NewConversation {
  id?: string;
  userId: string;
  resourceId: string;
  title?: string;
  metadata?: Record<string, unknown>;
}

/** The earlier messages that a run recalls in addition to the newest ones of its conversation. */
export interface SimilarQuery {
  readonly text: string;
  readonly limit: number;
  readonly threshold: number;
  /** Which messages to search: those of the conversation, or of all conversations of its user. */
  readonly scope: "conversation" | "user";
  /** Ids of the messages that the run has anyway. */
  readonly knownMessageIds: ReadonlySet<string>;
  /** Whether those are all messages of the conversation. */
  readonly knowsWholeConversation: boolean;
  /** In its own conversation, the run recalls only messages before this position. */
  readonly before?: string | undefined;
}

/** The stored messages of its conversation that a run needs in addition to those that the client posts. */
export interface EarlierQuery {
  readonly limit: number;
  /** Most characters of all messages together; the newest one is always included. Default: the limit of the largest page. */
  readonly most?: number;
  /** Ids of the posted messages. Default: none. */
  readonly posted?: Iterable<string>;
  /** Whether the posted messages are a whole conversation, so that stored messages with other ids are not added. */
  readonly complete?: boolean;
}

export interface Earlier {
  /** In order. They may be shared with other readers and must not be changed. */
  readonly messages: readonly Message[];
  /** The position from which the posted messages replace the stored ones; undefined when they come after all stored ones. */
  readonly before: string | undefined;
  readonly discarded: Discarded | null;
  /** Id of the last stored message that is posted again. */
  readonly last: string | undefined;
  /** Summary of the messages before these. Undefined when nothing has been summarized. */
  readonly summary: string | undefined;
  /** Whether the conversation does not exist yet. */
  readonly isNew?: true;
}

/** Messages that are not in the summary yet. */
export interface Unsummarized {
  readonly summary: string | undefined;
  /** The messages, oldest first. */
  readonly messages: readonly Message[];
  /** Their positions. */
  readonly positions: readonly string[];
  /** Whether a limit of number or size was reached, so that there may be more. */
  readonly full: boolean;
}

/** Stored messages between two positions, the first exclusive: a branch of the conversation that the client has abandoned. */
export interface Discarded {
  readonly after: string;
  readonly until: string;
}

/** The place of a turn among the stored messages. */
export interface TurnPlace {
  /** Id of the posted message that the turn answers. Other answers to it are removed. */
  readonly answers: string | undefined;
  /** Id of the turn's own answer. */
  readonly answer: string;
  /** The abandoned branch, which the same commit removes. */
  readonly discarded: Discarded | null;
  /** Whether nothing is stored if another answer to that message was stored meanwhile. */
  readonly yields: boolean;
}

export type WorkingMemoryScope = "conversation" | "user";

/** One named memory. */
export interface Memory {
  /** The name in the manifest. */
  readonly name: string;
  readonly settings: MemoryManifest;
  /** Its semantic search, if it has that. */
  readonly semantic: Semantic | undefined;
  /** Milliseconds since 1970; never goes backwards. */
  readonly now: () => number;
  for(principal: Principal): MemoryAccess;
}

/**
 * A memory for one principal. Methods reject with ServiceError: `not_found` for a conversation that does not exist or belongs to
 * somebody else, `conflict` for a duplicate id, `invalid_input` for invalid input, and for an id that several users have if
 * `userId` does not say whose is meant.
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
      /** Counts the bytes that are copied at once. */
      charge?: Charge | undefined;
    },
    userId?: string,
  ): Promise<{ conversation: Conversation; messageCount: number }>;
  /**
   * `{conversation, messages}` as JSON text: the newest `limit` messages that match, in order. Rows are not parsed.
   *
   * @param shown changes the text of the conversation
   */
  messages(id: string, query: MessageQuery, shown?: (conversation: string) => string): Promise<Serialized>;
  /**
   * Saves the whole batch, which may span conversations, in one commit. Returns how many were saved. A message whose id exists replaces
   * that message in place.
   */
  save(entries: readonly { conversationId: string; userId?: string; message: NewMessage }[]): Promise<number>;
  deleteMessages(id: string, messageIds: readonly string[], userId?: string): Promise<number>;
  workingMemory(
    id: string,
    options: { scope?: WorkingMemoryScope | undefined; userId?: string | undefined },
  ): Promise<WorkingMemory>;
  updateWorkingMemory(
    id: string,
    content: string | Record<string, unknown>,
    mode: "replace" | "append",
    options: Parameters<MemoryAccess["workingMemory"]>[1],
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
  /** For generation: messages before the one with that id that are not in the summary. Null when that message no longer exists. */
  unsummarized(
    conversation: { id: string; userId: string },
    before: string,
    limit: number,
  ): Promise<Unsummarized | null>;
  /** For generation: replaces the summary of the conversation with one up to a position. */
  summarize(conversation: { id: string; userId: string }, text: string, through: string): Promise<void>;
  /** For generation: earlier messages with a similar meaning, in chronological order. */
  similar(conversation: { id: string; userId: string }, query: SimilarQuery): Promise<Message[]>;
  /**
   * For generation: like `workingMemory`, but also while the conversation does not exist yet. Null when the memory has no working
   * memory.
   */
  workingMemoryIfAny(conversation: { id: string; userId: string }): Promise<WorkingMemory | null>;
  /** For generation, before the turn begins: as `Store.requireRoom`. */
  requireRoom(userId: string, bytes: () => number): Promise<void> | undefined;
  /**
   * For generation: creates the conversation if it does not exist (title at most 80 characters) and saves the messages, in one
   * commit. Without messages it only ensures that the conversation exists and belongs to the user.
   *
   * @param conversation its title may be made when it is needed
   * @param joined what happens in the same commit, if there is one
   * @throws what `lost` of those gives
   */
  append(
    conversation: Omit<NewConversation, "title"> & { id: string; title?: string | (() => string) },
    messages: readonly NewMessage[],
    place?: TurnPlace,
    joined?: readonly JoinedChanges[],
  ): Promise<void>;
}
