/** The rows by which conversations are listed; they change in the commit that changes the conversation. */
import { conversationKey, indexEntry, resourceIndex, resourceTotal, userIndex, userTotal } from "../../storage/keys.ts";
import type { Draft } from "../semantic/semantic.ts";
import { conversationRow, type Snapshot } from "./conversation.ts";

type Change = Omit<Snapshot, "revision">;

/** Adds a conversation that has been made. */
export function addConversation(draft: Draft, conversation: Change): void {
  const { memory, number, userId, resourceId } = conversation;
  draft.put.push([conversationKey(number), conversationRow(conversation)]);
  putEntries(draft, conversation);
  draft.add.push([userTotal(memory, userId), 1], [resourceTotal(memory, resourceId), 1]);
}

/** Replaces a conversation by what it becomes, which must still be what it was. */
export function changeConversation(draft: Draft, before: Snapshot, after: Change): void {
  const key = conversationKey(before.number);
  draft.expect.push([key, before.revision]);
  draft.put.push([key, conversationRow(after)]);
  if (after.updatedAt === before.updatedAt) return;
  deleteEntries(draft, before);
  putEntries(draft, after);
}

/** Takes a conversation out of the lists; its rows are the caller's. */
export function removeConversation(draft: Draft, conversation: Snapshot): void {
  const { memory, number, userId, resourceId, revision } = conversation;
  draft.expect.push([conversationKey(number), revision]);
  deleteEntries(draft, conversation);
  draft.add.push([userTotal(memory, userId), -1], [resourceTotal(memory, resourceId), -1]);
}

function putEntries(draft: Draft, { memory, number, userId, resourceId, updatedAt }: Change): void {
  const entry = indexEntry(updatedAt, number);
  draft.put.push(
    [userIndex(memory, userId) + entry, JSON.stringify(resourceId)],
    [resourceIndex(memory, resourceId) + entry, JSON.stringify(userId)],
  );
}

function deleteEntries(draft: Draft, { memory, number, userId, resourceId, updatedAt }: Change): void {
  const entry = indexEntry(updatedAt, number);
  draft.delete.push(userIndex(memory, userId) + entry, resourceIndex(memory, resourceId) + entry);
}
