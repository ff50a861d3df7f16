/** Changing title and metadata of a conversation. */
import type { Conversation } from "../../../generated/types.ts";
import type { Domain } from "../domain.ts";
import { conversationFromSnapshot, conversationHead, type Snapshot } from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { changeConversation } from "../records/index-rows.ts";
import { createDraft } from "../semantic/semantic.ts";

/** @throws ConversationGone when it has been deleted */
export function updateConversation(
  domain: Domain,
  found: Snapshot,
  change: { title?: string; metadata?: Record<string, unknown> },
): Promise<Conversation> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const before = await domain.conversations.current(found, reload);
      const old = conversationFromSnapshot(before);
      const title = change.title ?? old.title;
      const metadata = mergeMetadata(old.metadata, change.metadata ?? {});
      const updatedAt = Math.max(domain.now(), before.updatedAt);
      const after = { ...before, updatedAt, head: conversationHead({ ...old, title, metadata }) };
      const draft = createDraft();
      changeConversation(draft, before, after);
      const revision = await domain.store.commit(draft);
      domain.conversations.remember({ ...after, revision });
      return conversationFromSnapshot(after);
    }),
  );
}

/** Merges key by key; null deletes a key. */
function mergeMetadata(old: Record<string, unknown>, change: Record<string, unknown>): Record<string, unknown> {
  const members = new Map(Object.entries(old));
  for (const [key, value] of Object.entries(change)) {
    if (value === null) members.delete(key);
    else members.set(key, value);
  }
  return Object.fromEntries(members);
}
