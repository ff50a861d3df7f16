/** Creating conversations. */
import type { Conversation } from "../../../generated/types.ts";
import { CommitConflict, invalid, quoted, ServiceError } from "../../lib/errors.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { findIdPlaces } from "../../storage/id-spaces.ts";
import { commitJoined, type JoinedChanges } from "../../storage/joined.ts";
import { conversationIdKeys, conversationKey, unfinishedCopyKey } from "../../storage/keys.ts";
import { withFreeNumber } from "../../storage/sequence.ts";
import type { Domain } from "../domain.ts";
import type { NewConversation } from "../memory.ts";
import { writeMessages } from "../messages/write.ts";
import { changedSnapshot, conversationHead, idRowKey, type Snapshot } from "../records/conversation.ts";
import { createId } from "../records/ids.ts";
import { addConversation } from "../records/index-rows.ts";
import type { PreparedMessage } from "../records/message.ts";
import { createDraft, type Draft } from "../semantic/semantic.ts";

/** A conversation that is not stored yet. */
export type PendingConversation = Omit<Snapshot, "revision"> & { readonly conversation: Conversation };

/** The rows of which one exists when a number is taken: by a conversation, or by an unfinished copy. */
export const conversationNumberRows = (number: number) => [conversationKey(number), unfinishedCopyKey(number)] as const;

/** Adds to a commit the expectation that the number is free. */
export function expectFree(draft: Draft, number: number): void {
  for (const key of conversationNumberRows(number)) draft.expect.push([key, null]);
}

/** @param now milliseconds since 1970 */
export function preparePending(
  domain: Domain,
  memory: string,
  number: number,
  wanted: NewConversation,
  now: number,
): PendingConversation {
  if (wanted.id === "." || wanted.id === "..")
    throw invalid('conversationId must not be "." or "..", which cannot stand in a path');
  const { id = createId(now), userId, resourceId, title = "", metadata = {} } = wanted;
  const createdAt = isoTime(now);
  const conversation = { id, resourceId, userId, title, metadata, createdAt, updatedAt: createdAt };
  const head = conversationHead(conversation);
  const ownId = domain.spaces.isolated;
  return { memory, number, id, ownId, userId, resourceId, updatedAt: now, messages: 0, latest: 0, head, conversation };
}

/** Adds to a commit the rows that make the conversation visible. The commit fails when the id is taken. */
export function insertPending(draft: Draft, pending: PendingConversation): void {
  const key = idRowKey(pending);
  draft.expect.push([key, null]);
  draft.put.push([key, String(pending.number)]);
  addConversation(draft, pending);
}

/**
 * Whether the id is taken for a new conversation of this owner: with isolation, when the owner has a conversation with that id, in
 * its own space of ids or in the shared one (storage/id-spaces.ts); without isolation, when anybody has. The space of the new id
 * is checked by the commit as well.
 */
export async function isTaken(domain: Domain, memory: string, id: string, owner: string): Promise<boolean> {
  const { store, spaces, conversations } = domain;
  if (spaces.isolated) return (await conversations.fresh(memory, id, owner)) !== undefined;
  return (await findIdPlaces(store, spaces, conversationIdKeys(memory, id))).length > 0;
}

/** The turn with which a conversation begins: its messages, and what is committed with them. */
interface FirstTurn {
  readonly messages: readonly PreparedMessage[];
  readonly joined?: readonly JoinedChanges[] | undefined;
}

/** @throws ServiceError `conflict` when the id is taken in its space of ids */
export function createConversation(
  domain: Domain,
  memory: string,
  wanted: NewConversation,
  turn?: FirstTurn,
): Promise<Conversation> {
  return withFreeNumber(domain.numbers, conversationNumberRows, (number) =>
    insert(domain, memory, number, wanted, turn),
  );
}

async function insert(
  domain: Domain,
  memory: string,
  number: number,
  wanted: NewConversation,
  turn: FirstTurn | undefined,
): Promise<Conversation> {
  const { messages = [], joined } = turn ?? {};
  const now = domain.now();
  const pending = preparePending(domain, memory, number, wanted, now);
  const draft = createDraft();
  draft.begun = turn !== undefined;
  const written =
    messages.length === 0
      ? pending
      : { ...pending, ...writeMessages(domain, draft, pending, messages, now, new Map()) };
  expectFree(draft, number);
  insertPending(draft, written);
  const revision = await commitJoined(domain.store, draft, joined).catch((error: unknown) => {
    throw isIdConflict(error, pending) ? conversationIdTaken(pending.id) : error;
  });
  domain.conversations.remember(changedSnapshot(written, written, revision));
  if (messages.length > 0) domain.semantic.get(memory)?.committed();
  return pending.conversation;
}

/** Whether a commit failed because the id of the new conversation is taken. */
export const isIdConflict = (error: unknown, pending: PendingConversation): boolean =>
  error instanceof CommitConflict && error.keys.includes(idRowKey(pending));

export const conversationIdTaken = (id: string): ServiceError =>
  new ServiceError("conflict", `conversation ${quoted(id)} exists already`);
