/** New conversations. */
import type { Conversation } from "../../../generated/types.ts";
import { CommitConflict, ServiceError } from "../../lib/errors.ts";
import { findIdPlaces } from "../../storage/id-spaces.ts";
import { conversationIdKeys } from "../../storage/keys.ts";
import type { Domain } from "../domain.ts";
import type { NewConversation } from "../memory.ts";
import { writeMessages } from "../messages/write.ts";
import { conversationHead, idRowKey, type Snapshot } from "../records/conversation.ts";
import { createId } from "../records/ids.ts";
import { addConversation } from "../records/index-rows.ts";
import type { PreparedMessage } from "../records/message.ts";
import { createDraft, type Draft } from "../semantic/semantic.ts";

/** A conversation that is not stored yet. */
export type PendingConversation = Omit<Snapshot, "revision"> & { readonly conversation: Conversation };

/** @param now milliseconds since 1970 */
export async function preparePending(
  domain: Domain,
  memory: string,
  wanted: NewConversation,
  now: number,
): Promise<PendingConversation> {
  const { id = createId(now), userId, resourceId, title = "", metadata = {} } = wanted;
  const createdAt = new Date(now).toISOString();
  const conversation = { id, resourceId, userId, title, metadata, createdAt, updatedAt: createdAt };
  const number = await domain.numbers.next();
  const head = conversationHead(conversation);
  const ownId = domain.spaces.isolated;
  return { memory, number, id, ownId, userId, resourceId, updatedAt: now, messages: 0, latest: 0, head, conversation };
}

/** Adds what makes it visible to a commit, which then fails when the id is taken. */
export function insertPending(draft: Draft, unborn: PendingConversation): void {
  const key = idRowKey(unborn);
  draft.expect.push([key, null]);
  draft.put.push([key, String(unborn.number)]);
  addConversation(draft, unborn);
}

/**
 * Whether the owner of a new conversation cannot give it this id: it has one of that id, in either space. Without isolation nobody
 * may have one. What stands in the space that the new id goes to, its commit finds too.
 */
export async function isTaken(domain: Domain, memory: string, id: string, owner: string): Promise<boolean> {
  const { store, spaces, conversations } = domain;
  if (spaces.isolated) return (await conversations.fresh(memory, id, owner)) !== undefined;
  return (await findIdPlaces(store, spaces, conversationIdKeys(memory, id))).length > 0;
}

/** @throws ServiceError `conflict` when the id is taken in the space that it goes to */
export async function createConversation(
  domain: Domain,
  memory: string,
  wanted: NewConversation,
  messages: readonly PreparedMessage[] = [],
): Promise<Conversation> {
  const now = domain.now();
  const unborn = await preparePending(domain, memory, wanted, now);
  const draft = createDraft();
  const written = { ...unborn, ...writeMessages(domain, draft, unborn, messages, now, new Map()) };
  insertPending(draft, written);
  const revision = await domain.store.commit(draft).catch((error: unknown) => {
    throw error instanceof CommitConflict ? conversationIdTaken(unborn.id) : error;
  });
  const { conversation, ...snapshot } = written;
  domain.conversations.remember({ ...snapshot, revision });
  if (messages.length > 0) domain.semantic.get(memory)?.committed();
  return conversation;
}

export const conversationIdTaken = (id: string): ServiceError =>
  new ServiceError("conflict", `conversation ${JSON.stringify(id.slice(0, 128))} exists already`);
