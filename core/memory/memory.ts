/** What a memory is asked for, and what it answers. */
import type { Message } from "../../generated/types.ts";
import type { Charge } from "../http/exchange.ts";

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

export interface CloneOptions {
  newConversationId?: string;
  title?: string;
  metadata?: Record<string, unknown>;
  resourceId?: string;
  includeMessages: boolean;
  /** Counts the bytes that are copied at once. */
  charge?: Charge | undefined;
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
