/** Copying a conversation: nobody sees the copy before its last commit. */
import type { Conversation } from "../../../generated/types.ts";
import { CommitConflict } from "../../lib/errors.ts";
import { decodeNumber } from "../../storage/encoding.ts";
import {
  conversationKey,
  conversationWorkingMemoryKey,
  messageKey,
  messageRows,
  positionFromKey,
  unfinishedCopyKey,
} from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Domain } from "../domain.ts";
import type { MemoryAccess } from "../memory.ts";
import { conversationFromSnapshot, idRowKey, type Snapshot } from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { createMessageId } from "../records/ids.ts";
import { parseMessage } from "../records/message.ts";
import { searchableText } from "../records/searchable-text.ts";
import { messagePlace } from "../records/target.ts";
import { createDraft, type Draft } from "../semantic/semantic.ts";
import { conversationIdTaken, insertPending, isTaken, type PendingConversation, preparePending } from "./create.ts";
import { discardCopy, unfinishedCopy } from "./unfinished-copies.ts";

type CloneOptions = Parameters<MemoryAccess["clone"]>[1];

/** Rows of one commit; a copy of more messages takes several, and only the last one shows it. */
const PIECE = 500;

/**
 * @throws ServiceError `conflict` when the new id is taken
 * @throws Gone when the source is not there any more
 */
export function cloneConversation(
  domain: Domain,
  found: Snapshot,
  options: CloneOptions,
): Promise<{ conversation: Conversation; messageCount: number }> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const source = await domain.conversations.current(found, reload);
      const unborn = await preparePending(domain, source.memory, wantedCopy(source, options), domain.now());
      if (await isTaken(domain, unborn.memory, unborn.id, unborn.userId)) {
        // No commit will tell whether the source is still there.
        await domain.conversations.current(found, true);
        throw conversationIdTaken(unborn.id);
      }
      try {
        return await copy(domain, source, unborn, options.includeMessages);
      } catch (error) {
        await discardCopy(domain, unborn);
        if (error instanceof CommitConflict && error.keys.includes(idRowKey(unborn))) {
          throw conversationIdTaken(unborn.id);
        }
        throw error;
      }
    }),
  );
}

function wantedCopy(source: Snapshot, { newConversationId, title, metadata, resourceId }: CloneOptions) {
  const old = conversationFromSnapshot(source);
  return {
    ...(newConversationId !== undefined && { id: newConversationId }),
    userId: old.userId,
    resourceId: resourceId ?? old.resourceId,
    title: title ?? old.title,
    metadata: metadata ?? old.metadata,
  };
}

async function copy(domain: Domain, source: Snapshot, unborn: PendingConversation, includeMessages: boolean) {
  const { store } = domain;
  let draft = createDraft();
  let messageCount = 0;
  if (includeMessages) {
    for await (const rows of allRows(store, messageRows(source.number), PIECE)) {
      // What was gathered before is not the last piece.
      if (messageCount > 0) {
        if (messageCount === PIECE) draft.put.push(unfinishedCopy(unborn, domain.now()));
        await store.commit(draft);
        draft = createDraft();
      }
      for (const { key, value } of rows) copyMessage(domain, draft, unborn, positionFromKey(key), value);
      messageCount += rows.length;
    }
  }
  const note = await store.get(conversationWorkingMemoryKey(source.number));
  if (note !== undefined) draft.put.push([conversationWorkingMemoryKey(unborn.number), note.value]);
  // Nothing was saved to the source meanwhile: what was read is what it was at one moment.
  draft.expect.push([conversationKey(source.number), source.revision]);
  // The copies keep their numbers, and what is saved next comes after them.
  const whole = { ...unborn, messages: source.messages, latest: source.latest };
  insertPending(draft, whole);
  if (messageCount > PIECE) draft.delete.push(unfinishedCopyKey(unborn.number));
  const revision = await store.commit(draft);
  const { conversation, ...snapshot } = whole;
  domain.conversations.remember({ ...snapshot, revision });
  domain.semantic.get(unborn.memory)?.committed();
  return { conversation, messageCount };
}

/** The same position in the new conversation, with an id that says so. */
function copyMessage(domain: Domain, draft: Draft, unborn: PendingConversation, position: string, text: string): void {
  const message = parseMessage(text);
  const [time, sequence] = position.split("/").map(decodeNumber) as [number, number];
  const { role, id: _, ...rest } = message;
  draft.put.push([
    messageKey(unborn.number, position),
    JSON.stringify({ role, id: createMessageId(time, sequence), ...rest }),
  ]);
  domain.semantic.get(unborn.memory)?.saved(draft, messagePlace(unborn, position), searchableText(message));
}
