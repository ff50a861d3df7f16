/** Deleting conversations and messages, with everything that belongs to them, in one commit. */
import { conversationRows } from "../../storage/keys.ts";
import { isVolatile } from "../../storage/sharing.ts";
import type { Domain } from "../domain.ts";
import { dropSummaryOf } from "../messages/summary.ts";
import { findMessages, removeMessages } from "../messages/write.ts";
import { idRowKey, type Snapshot } from "../records/conversation.ts";
import { type Known, retryOnConflict } from "../records/directory.ts";
import { changeConversation, removeConversation, removeEmptyTotals } from "../records/index-rows.ts";
import { indexName } from "../records/target.ts";
import { createDraft } from "../semantic/semantic.ts";

/** @throws ConversationGone when it has been deleted already */
export function deleteConversation(domain: Domain, found: Known): Promise<void> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const { conversations, semantic, store } = domain;
      const conversation = await conversations.current(found, reload);
      const { memory, number, userId } = conversation;
      const draft = createDraft();
      removeConversation(draft, conversation);
      draft.delete.push(idRowKey(conversation));
      draft.clear.push(conversationRows(number));
      const index = semantic.get(memory);
      index?.conversationDeleted(draft, userId, indexName(number));
      await store.commit(draft);
      conversations.forget(conversation);
      index?.committed();
      if (isVolatile(store)) await removeEmptyTotals(store, conversation);
      await domain.onDelete?.(conversation);
    }),
  );
}

/**
 * Deletes messages; returns how many of them existed.
 *
 * @throws ConversationGone when the conversation has been deleted
 */
export function deleteMessages(domain: Domain, found: Snapshot, ids: readonly string[]): Promise<number> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const { conversations, semantic, store } = domain;
      const before = await conversations.current(found, reload);
      const positions = await findMessages(domain, before.number, ids);
      if (positions.size === 0) {
        // Checked here, because there is no commit that would show whether the conversation still exists.
        await conversations.current(found, true);
        return 0;
      }
      const draft = createDraft();
      removeMessages(domain, draft, before, positions);
      await dropSummaryOf(store, draft, before.number, positions.values());
      const after = { ...before, updatedAt: Math.max(domain.now(), before.updatedAt) };
      changeConversation(draft, before, after);
      const revision = await store.commit({ ...draft, makesRoom: true });
      conversations.remember({ ...after, revision });
      semantic.get(before.memory)?.committed();
      return positions.size;
    }),
  );
}
