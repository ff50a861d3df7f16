/** The index rows by which conversations are listed. They change in the commit that changes the conversation. */
import { removeUnchanged } from "../../storage/conflict.ts";
import { conversationKey, indexEntry, resourceIndex, resourceTotal, userIndex, userTotal } from "../../storage/keys.ts";
import type { Store } from "../../storage/store.ts";
import type { Draft } from "../semantic/semantic.ts";
import { conversationRow, type Snapshot } from "./conversation.ts";

type Change = Omit<Snapshot, "revision">;

/** Adds a new conversation. */
export function addConversation(draft: Draft, conversation: Change): void {
  const { memory, number, userId, resourceId } = conversation;
  draft.put.push([conversationKey(number), conversationRow(conversation)]);
  draft.of.push(conversation);
  putEntries(draft, conversation);
  draft.add.push([userTotal(memory, userId), 1], [resourceTotal(memory, resourceId), 1]);
}

/** Replaces a conversation. The commit fails unless the stored one is still `before`. */
export function changeConversation(draft: Draft, before: Snapshot, after: Change): void {
  const key = conversationKey(before.number);
  draft.expect.push([key, before.revision]);
  draft.put.push([key, conversationRow(after)]);
  draft.of.push(before);
  if (after.updatedAt === before.updatedAt) return;
  deleteEntries(draft, before);
  putEntries(draft, after);
}

/** Removes a conversation from the indexes. The caller deletes its own rows. */
export function removeConversation(draft: Draft, conversation: Snapshot): void {
  const { memory, number, userId, resourceId, revision } = conversation;
  draft.expect.push([conversationKey(number), revision]);
  draft.of.push(conversation);
  deleteEntries(draft, conversation);
  draft.add.push([userTotal(memory, userId), -1], [resourceTotal(memory, resourceId), -1]);
}

/** Counters of nothing, which take room in a store that ends with the process. Without a row they count from 0 as well. */
export async function removeEmptyTotals(store: Store, { memory, userId, resourceId }: Snapshot): Promise<void> {
  for (const key of [userTotal(memory, userId), resourceTotal(memory, resourceId)]) {
    const row = await store.get(key);
    if (row?.value === "0") await removeUnchanged(store, row);
  }
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
