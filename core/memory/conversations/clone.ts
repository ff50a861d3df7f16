/** Copying a conversation. The copy becomes visible with its last commit. */
import type { Conversation } from "../../../generated/types.ts";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import { decodeNumber } from "../../storage/encoding.ts";
import {
  conversationKey,
  conversationSummaryKey,
  conversationWorkingMemoryKey,
  messageKey,
  messageRows,
  positionFromKey,
  unfinishedCopyKey,
} from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import { withFreeNumber } from "../../storage/sequence.ts";
import type { Domain } from "../domain.ts";
import type { MemoryAccess } from "../memory.ts";
import { conversationFromSnapshot, type Snapshot } from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { createMessageId } from "../records/ids.ts";
import { parseMessage } from "../records/message.ts";
import { searchableText } from "../records/searchable-text.ts";
import { messagePlace } from "../records/target.ts";
import { createDraft, type Draft } from "../semantic/semantic.ts";
import {
  conversationIdTaken,
  conversationNumberRows,
  expectFree,
  insertPending,
  isIdConflict,
  isTaken,
  type PendingConversation,
  preparePending,
} from "./create.ts";
import { discardCopy, unfinishedCopy } from "./unfinished-copies.ts";

type CloneOptions = Parameters<MemoryAccess["clone"]>[1];

/**
 * Messages and characters per commit. A longer copy takes several commits, of which only the last one makes it visible. Others have their
 * turn in between.
 */
const MESSAGES_PER_COMMIT = 500;
const CHARACTERS_PER_COMMIT = 256 * 1024;

/**
 * @throws ServiceError `conflict` when the new id is taken
 * @throws ConversationGone when the source has been deleted
 */
export async function cloneConversation(
  domain: Domain,
  found: Snapshot,
  options: CloneOptions,
): Promise<{ conversation: Conversation; messageCount: number }> {
  const leave = await domain.copies.enter(conversationFromSnapshot(found).userId);
  const copied = domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const source = await domain.conversations.current(found, reload);
      return withFreeNumber(domain.numbers, conversationNumberRows, async (number) => {
        const pending = preparePending(domain, source.memory, number, copyOptions(source, options), domain.now());
        if (await isTaken(domain, pending.memory, pending.id, pending.userId)) {
          // Checked here, because there is no commit that would show whether the source still exists.
          await domain.conversations.current(found, true);
          throw conversationIdTaken(pending.id);
        }
        return copy(domain, source, pending, options).catch((error: unknown) => {
          throw isIdConflict(error, pending) ? conversationIdTaken(pending.id) : error;
        });
      });
    }),
  );
  return copied.finally(leave);
}

function copyOptions(source: Snapshot, { newConversationId, title, metadata, resourceId }: CloneOptions) {
  const old = conversationFromSnapshot(source);
  return {
    ...(newConversationId !== undefined && { id: newConversationId }),
    userId: old.userId,
    resourceId: resourceId ?? old.resourceId,
    title: title ?? old.title,
    metadata: metadata ?? old.metadata,
  };
}

async function copy(domain: Domain, source: Snapshot, pending: PendingConversation, options: CloneOptions) {
  const mark: CopyMark = { revision: null };
  try {
    return await copyRows(domain, source, pending, options, mark);
  } catch (error) {
    // Without the mark nothing was written, and rows with this number belong to another conversation.
    if (mark.revision !== null) await discardCopy(domain, pending, mark.revision);
    throw error;
  }
}

/** Revision of the row that marks the copy as unfinished; null while that row does not exist. */
interface CopyMark {
  revision: number | null;
}

async function copyRows(
  domain: Domain,
  source: Snapshot,
  pending: PendingConversation,
  { includeMessages, charge }: CloneOptions,
  mark: CopyMark,
) {
  const { store } = domain;
  const { number } = pending;
  let draft = createDraft();
  let messageCount = 0;
  let inDraft = 0;
  let characters = 0;
  expectFree(draft, number);
  if (includeMessages) {
    for await (const rows of allRows(store, { prefix: messageRows(source.number) }, MESSAGES_PER_COMMIT)) {
      for (const { key, value } of rows) {
        if (inDraft === MESSAGES_PER_COMMIT || characters > CHARACTERS_PER_COMMIT) {
          if (mark.revision === null) draft.put.push(unfinishedCopy(pending, domain.now()));
          draft.of.push(pending);
          const revision = await store.commit(draft);
          mark.revision ??= revision;
          draft = createDraft();
          draft.expect.push([unfinishedCopyKey(number), mark.revision]);
          [inDraft, characters] = [0, 0];
          await nextTurn();
        }
        characters += value.length;
        charge?.copies(characters);
        copyMessage(domain, draft, pending, positionFromKey(key), value);
        messageCount++;
        inDraft++;
      }
    }
  }
  const workingMemory = await store.get(conversationWorkingMemoryKey(source.number));
  if (workingMemory !== undefined) draft.put.push([conversationWorkingMemoryKey(number), workingMemory.value]);
  const summary = includeMessages ? await store.get(conversationSummaryKey(source.number)) : undefined;
  if (summary !== undefined) draft.put.push([conversationSummaryKey(number), summary.value]);
  // Fails when something was saved to the source meanwhile, so that the copy is consistent.
  draft.expect.push([conversationKey(source.number), source.revision]);
  // The copied messages keep their sequence numbers, so that messages saved later come after them.
  const whole = { ...pending, messages: source.messages, latest: source.latest };
  insertPending(draft, whole);
  if (mark.revision !== null) draft.delete.push(unfinishedCopyKey(number));
  const revision = await store.commit(draft);
  const { conversation, ...snapshot } = whole;
  domain.conversations.remember({ ...snapshot, revision });
  domain.semantic.get(pending.memory)?.committed();
  return { conversation, messageCount };
}

/** The message keeps its position in the new conversation, and gets a new id that encodes this position. */
function copyMessage(domain: Domain, draft: Draft, pending: PendingConversation, position: string, text: string): void {
  const message = parseMessage(text);
  const [time, sequence] = position.split("/").map(decodeNumber) as [number, number];
  const { role, id: _, ...rest } = message;
  draft.put.push([
    messageKey(pending.number, position),
    JSON.stringify({ role, id: createMessageId(time, sequence), ...rest }),
  ]);
  domain.semantic.get(pending.memory)?.saved(draft, messagePlace(pending, position), searchableText(message));
}
