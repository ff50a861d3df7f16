/** Creating conversations. */
import type { Conversation } from "../../../generated/types.ts";
import { CommitConflict, invalid, quoted, ServiceError } from "../../lib/errors.ts";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { commitJoined, type JoinedChanges } from "../../storage/joined.ts";
import {
  conversationIdKeys,
  conversationKey,
  conversationRows,
  conversationSummaryKey,
  conversationWorkingMemoryKey,
  decodeNumber,
  indexedConversation,
  messageKey,
  messageRows,
  positionFromKey,
  UNFINISHED_COPIES,
  unfinishedCopyKey,
} from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import { withFreeNumber } from "../../storage/sequence.ts";
import { findIdPlaces, isShared } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import type { CloneOptions, NewConversation } from "../memory.ts";
import { dropSummaryOf, findMessages, removeMessages, writeMessages } from "../messages/save.ts";
import {
  addConversation,
  changeConversation,
  changedSnapshot,
  conversationFromSnapshot,
  conversationHead,
  createId,
  createMessageId,
  idRowKey,
  indexName,
  messagePlace,
  type PreparedMessage,
  parseMessage,
  removeConversation,
  type Snapshot,
  type Stored,
  searchableText,
} from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { createDraft, type Draft } from "../semantic/semantic.ts";

/** A conversation that is not stored yet. */
type PendingConversation = Omit<Snapshot, "revision"> & { readonly conversation: Conversation };

/** The rows of which one exists when a number is taken: by a conversation, or by an unfinished copy. */
const conversationNumberRows = (number: number) => [conversationKey(number), unfinishedCopyKey(number)] as const;

/** Adds to a commit the expectation that the number is free. */
function expectFree(draft: Draft, number: number): void {
  for (const key of conversationNumberRows(number)) draft.expect.push([key, null]);
}

/** @param now milliseconds since 1970 */
function preparePending(
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
function insertPending(draft: Draft, pending: PendingConversation): void {
  const key = idRowKey(pending);
  draft.expect.push([key, null]);
  draft.put.push([key, String(pending.number)]);
  addConversation(draft, pending);
}

/**
 * Whether the id is taken for a new conversation of this owner: with isolation, when the owner has a conversation with that id, in
 * its own space of ids or in the shared one (storage/store.ts); without isolation, when anybody has. The space of the new id
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
const isIdConflict = (error: unknown, pending: PendingConversation): boolean =>
  error instanceof CommitConflict && error.keys.includes(idRowKey(pending));

export const conversationIdTaken = (id: string): ServiceError =>
  new ServiceError("conflict", `conversation ${quoted(id)} exists already`);

// Deleting conversations and messages, with everything that belongs to them, in one commit.

/** @throws ConversationGone when it has been deleted already */
export function deleteConversation(domain: Domain, found: Stored): Promise<void> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const { conversations, semantic, store } = domain;
      const conversation = reload ? await conversations.current(found, true) : found;
      const { memory, number, userId } = conversation;
      const draft = createDraft();
      await removeConversation(store, draft, conversation);
      draft.delete.push(idRowKey(conversation));
      draft.clear.push(conversationRows(number));
      const index = semantic.get(memory);
      index?.conversationDeleted(draft, userId, indexName(number));
      await store.commit(draft);
      conversations.forget(conversation);
      index?.committed();
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

// Cleans up copies of conversations whose process ended between the first and the last of their commits.

type Copy = Pick<PendingConversation, "memory" | "number" | "userId">;

/** Age at which an unfinished copy of another process counts as abandoned. */
const ABANDONED_AFTER_MS = 3_600_000;

/** The row that marks a copy as unfinished. The commit that makes the copy visible deletes it. */
const unfinishedCopy = ({ memory, number, userId }: Copy, began: number): [string, string] => [
  unfinishedCopyKey(number),
  JSON.stringify([began, memory, userId]),
];

/**
 * Deletes the rows of an unfinished copy; does nothing if the copy was finished after all.
 *
 * @param revision of the row that marks it
 */
async function discardCopy({ store, semantic }: Domain, copy: Copy, revision: number): Promise<void> {
  const { memory, number, userId } = copy;
  const draft = createDraft();
  draft.of.push(copy);
  draft.expect.push([conversationKey(number), null], [unfinishedCopyKey(number), revision]);
  draft.clear.push(conversationRows(number));
  draft.delete.push(unfinishedCopyKey(number));
  semantic.get(memory)?.conversationDeleted(draft, userId, indexName(number));
  // If the store fails now, the rows take up space until the next start.
  await store.commit(draft).catch(() => {});
}

export async function discardUnfinishedCopies(domain: Domain): Promise<void> {
  const before = isShared(domain.store) ? Date.now() - ABANDONED_AFTER_MS : Number.POSITIVE_INFINITY;
  for await (const rows of allRows(domain.store, { prefix: UNFINISHED_COPIES })) {
    for (const { key, value, revision } of rows) {
      const [began, memory, userId] = JSON.parse(value) as [number, string, string];
      if (began < before) await discardCopy(domain, { number: indexedConversation(key), memory, userId }, revision);
    }
  }
}

// Copying a conversation. The copy becomes visible with its last commit.

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
