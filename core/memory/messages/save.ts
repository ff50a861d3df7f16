/** Saves messages, and makes their rows. Calls that wait for the same conversation share one commit. */
import type { Message } from "../../../generated/types.ts";
import { ServiceError } from "../../lib/errors.ts";
import { commitJoined, type JoinedChanges } from "../../storage/joined.ts";
import {
  conversationKey,
  conversationSummaryKey,
  decodeNumber,
  messageIdKey,
  messageKey,
  messagePosition,
  messageRows,
  NUMBER_LIMIT,
  positionFromKey,
} from "../../storage/keys.ts";
import { allRows, rowsOf } from "../../storage/ranges.ts";
import type { Store } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import type { TurnPlace, Unsummarized } from "../memory.ts";
import {
  changeConversation,
  changedSnapshot,
  createMessageId,
  idOf,
  isRowOf,
  messagePlace,
  messageText,
  type PreparedMessage,
  parseMessage,
  parseMessageId,
  roleHead,
  type Snapshot,
  type Target,
} from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { createDraft, type Draft } from "../semantic/semantic.ts";

// Adds the rows of messages to a commit.

/**
 * The positions by id of those messages that are stored already. Every write of messages changes the conversation's revision, so
 * the result is valid as long as the revision that was read before.
 */
export async function findMessages(
  { store }: Pick<Domain, "store">,
  number: number,
  ids: Iterable<string>,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const wanted = [...new Set(ids)];
  if (wanted.length === 0) return found;
  const idPositions = wanted.map((id) => {
    const place = parseMessageId(id);
    return place === undefined ? undefined : messagePosition(place.time, place.sequence);
  });
  const keys = wanted.map((id) => messageIdKey(number, id));
  const direct = idPositions.flatMap((position) => (position === undefined ? [] : [messageKey(number, position)]));
  const stored = new Map<string, string>();
  const readDirect = async () => {
    for await (const messages of rowsOf(store, direct))
      for (const { key, value } of messages) stored.set(key, idOf(value));
  };
  const [rows] = await Promise.all([store.getMany(keys), direct.length === 0 ? undefined : readDirect()]);
  for (const [index, id] of wanted.entries()) {
    const named = rows[index];
    const position = idPositions[index];
    if (named !== undefined) found.set(id, JSON.parse(named.value) as string);
    else if (position !== undefined && stored.get(messageKey(number, position)) === id) found.set(id, position);
  }
  return found;
}

/**
 * Adds the messages to a commit: new ones after all others or at the date that the client gave, those in `known` at their old
 * position. Of two messages with the same id the last one counts.
 *
 * @param now milliseconds since 1970; a new message is dated after the newest stored one
 * @returns how many messages have ever been added to the conversation, and the date of the newest one
 */
export function writeMessages(
  domain: Domain,
  draft: Draft,
  target: Target & Pick<Snapshot, "messages" | "latest">,
  messages: readonly PreparedMessage[],
  now: number,
  known: Map<string, string>,
): Pick<Snapshot, "messages" | "latest"> {
  let { messages: sequence, latest } = target;
  const texts = new Map<string, string>();
  const searched = new Map<string, string>();
  for (const message of messages) {
    let position = message.id === undefined ? undefined : known.get(message.id);
    let id = message.id;
    if (position === undefined) {
      // Two messages share a millisecond only where the client dates them: a page is cut at a time.
      const at = message.createdAt ?? Math.min(Math.max(message.saidAt ?? now, latest + 1), NUMBER_LIMIT - 1);
      latest = Math.max(latest, at);
      sequence++;
      position = messagePosition(at, sequence);
      if (id === undefined) id = createMessageId(at, sequence);
      else {
        known.set(id, position);
        draft.put.push([messageIdKey(target.number, id), JSON.stringify(position)]);
      }
    }
    message.named?.(id!);
    texts.set(
      messageKey(target.number, position),
      messageText(message, id!, decodeNumber(position.slice(0, position.indexOf("/")))),
    );
    searched.set(position, message.search);
  }
  for (const row of texts) draft.put.push(row);
  const semantic = domain.semantic.get(target.memory);
  if (semantic !== undefined) {
    for (const [position, text] of searched) semantic.saved(draft, messagePlace(target, position), text);
  }
  return { messages: sequence, latest };
}

/** Adds the removal of messages to a commit. @param positions by id */
export function removeMessages(
  domain: Domain,
  draft: Draft,
  target: Target,
  positions: ReadonlyMap<string, string>,
): void {
  for (const [id, position] of positions)
    draft.delete.push(messageKey(target.number, position), messageIdKey(target.number, id));
  const places = [...positions.values()].map((position) => messagePlace(target, position));
  domain.semantic.get(target.memory)?.deleted(draft, places);
}

// The running summary of a conversation: its text, and the last message that it covers.

/** A small number, because messages may contain files, of which a summary needs only the type. */
const ROWS_PER_READ = 16;
const MAX_READ_CHARACTERS = 8 * 1024 * 1024;

interface Summary {
  readonly text: string;
  /** Position of the last message that it covers. */
  readonly through: string;
}

async function readSummary(store: Store, number: number): Promise<(Summary & { revision: number }) | undefined> {
  const row = await store.get(conversationSummaryKey(number));
  return row === undefined ? undefined : { ...(JSON.parse(row.value) as Summary), revision: row.revision };
}

/** The summary, unless it goes beyond `before`: then it covers messages that the client has abandoned. */
export async function summaryBefore(store: Store, number: number, before: string | undefined) {
  const summary = await readSummary(store, number);
  return summary === undefined || (before !== undefined && summary.through >= before) ? undefined : summary.text;
}

/** The oldest messages that are not summarized, at most `limit`, before the message `before`. Null when that no longer exists. */
export async function unsummarized(
  domain: Domain,
  conversation: Snapshot,
  before: string,
  limit: number,
): Promise<Unsummarized | null> {
  const { store } = domain;
  const { number } = conversation;
  const [summary, known, row] = await Promise.all([
    readSummary(store, number),
    findMessages(domain, number, [before]),
    store.get(conversationKey(number)),
  ]);
  const end = known.get(before);
  if (end === undefined || row === undefined || !isRowOf(conversation, row)) return null;
  const messages: Message[] = [];
  const positions: string[] = [];
  const range = {
    prefix: messageRows(number),
    ...(summary !== undefined && { after: messageKey(number, summary.through) }),
    before: messageKey(number, end),
  };
  let size = 0;
  for await (const rows of allRows(store, range, Math.min(ROWS_PER_READ, limit))) {
    for (const { key, value } of rows.slice(0, limit - messages.length)) {
      messages.push(parseMessage(value));
      positions.push(positionFromKey(key));
      size += value.length;
    }
    if (messages.length === limit || size > MAX_READ_CHARACTERS) break;
  }
  const full = messages.length === limit || size > MAX_READ_CHARACTERS;
  return { summary: summary?.text, messages, positions, full };
}

/**
 * Stores a summary, unless its last message no longer exists: its content may have been taken back meanwhile.
 *
 * @throws ConversationGone when the conversation has been deleted
 */
export function writeSummary(domain: Domain, found: Snapshot, { text, through }: Summary): Promise<void> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async () => {
      const conversation = await domain.conversations.current(found, true);
      const { number, revision } = conversation;
      if ((await domain.store.get(messageKey(number, through))) === undefined) return;
      await domain.store.commit({
        put: [[conversationSummaryKey(number), JSON.stringify({ text, through })]],
        expect: [[conversationKey(number), revision]],
        of: [conversation],
        begun: true,
      });
    }),
  );
}

/** For a commit that removes messages: also removes a summary that covers them. */
export async function dropSummaryOf(
  store: Store,
  draft: Draft,
  number: number,
  positions: Iterable<string>,
): Promise<void> {
  const summary = await readSummary(store, number);
  draft.expect.push([conversationSummaryKey(number), summary?.revision ?? null]);
  if (summary === undefined) return;
  for (const position of positions) {
    if (position > summary.through) continue;
    draft.delete.push(conversationSummaryKey(number));
    return;
  }
}

// Finds the stored messages that the commit of a turn removes.

/** A small number, because messages may contain files. */
const ROWS_PER_LOOK = 32;
const USER = roleHead("user");

/**
 * Positions by id of the branch that the client has abandoned, and of other answers to the same message, which a repeated request has
 * stored meanwhile. Null when the turn yields to such an answer, and is not stored.
 *
 * @param known positions by id of the messages that the turn writes, and of the one that it answers
 */
async function displacedMessages(
  domain: Domain,
  number: number,
  { answers, answer, discarded, yields }: TurnPlace,
  known: ReadonlyMap<string, string>,
): Promise<ReadonlyMap<string, string> | null> {
  const displaced = new Map<string, string>();
  const written = new Set(known.values());
  const until = discarded?.until ?? "";
  if (discarded !== null) {
    for await (const [position, text] of messagesAfter(domain, number, discarded.after)) {
      if (position > until) break;
      if (!written.has(position)) displaced.set(idOf(text), position);
    }
  }
  const question = answers === undefined ? undefined : known.get(answers);
  if (question === undefined) return displaced;
  for await (const [position, text] of messagesAfter(domain, number, question)) {
    const id = idOf(text);
    if (text.startsWith(USER) || id === answer) break;
    if (yields && position > until) return null;
    displaced.set(id, position);
  }
  return displaced;
}

async function* messagesAfter({ store }: Domain, number: number, position: string) {
  const range = { prefix: messageRows(number), after: messageKey(number, position) };
  for await (const rows of allRows(store, range, ROWS_PER_LOOK))
    for (const { key, value } of rows) yield [positionFromKey(key), value] as const;
}

/** Messages for one conversation. */
export interface SaveBatch {
  readonly conversation: Snapshot;
  readonly messages: readonly PreparedMessage[];
  /** The place of the messages of a turn. */
  readonly place?: TurnPlace | undefined;
  /** What the messages of a turn are committed with. */
  readonly joined?: readonly JoinedChanges[] | undefined;
  /** They are those of a turn. */
  readonly begun?: boolean | undefined;
}

export interface Saver {
  /**
   * Saves all messages or none.
   *
   * @throws ConversationGone when a conversation has been deleted
   */
  save(batches: readonly SaveBatch[]): Promise<void>;
}

interface Waiting extends SaveBatch {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

const MAX_MESSAGES_PER_SHARED_COMMIT = 1000;

export function createSaver(domain: Domain): Saver {
  const waiting = new Map<number, Waiting[]>();

  function enqueue(batch: SaveBatch): Promise<void> {
    const { conversation } = batch;
    return new Promise((resolve, reject) => {
      const call = { ...batch, resolve, reject };
      const queue = waiting.get(conversation.number);
      if (queue !== undefined) {
        queue.push(call);
        return;
      }
      waiting.set(conversation.number, [call]);
      drain(conversation.number);
    });
  }

  /** Saves all waiting messages when earlier work on the conversation has ended. */
  function drain(number: number): void {
    void domain.mutex.run([number], async () => {
      const calls = take(number);
      const [first] = calls;
      try {
        const all = calls.length === 1 ? first! : { ...first!, messages: calls.flatMap((call) => call.messages) };
        await write(domain, [all]);
        for (const call of calls) call.resolve();
      } catch (error) {
        // There may be room for some of them.
        const alone = calls.length > 1 && error instanceof ServiceError && error.kind === "too_large";
        for (const call of calls)
          if (alone) await write(domain, [call]).then(call.resolve, call.reject);
          else call.reject(error);
      }
      if (waiting.has(number)) drain(number);
    });
  }

  /** Takes the first calls off the queue, as many as can share one commit. A turn gets a separate one. */
  function take(number: number): Waiting[] {
    const queue = waiting.get(number)!;
    let count = 0;
    let messages = 0;
    for (const call of queue) {
      const isAlone = call.begun === true;
      const shares = !isAlone && messages < MAX_MESSAGES_PER_SHARED_COMMIT;
      if (count > 0 && !shares) break;
      messages += call.messages.length;
      count++;
      if (isAlone) break;
    }
    if (count === queue.length) waiting.delete(number);
    return queue.splice(0, count);
  }

  return {
    save(batches) {
      const [only] = batches;
      if (batches.length === 1) return enqueue(only!);
      return domain.mutex.run(
        batches.map((batch) => batch.conversation.number),
        () => write(domain, batches),
      );
    },
  };
}

/** The ids to look up among the stored messages. Most messages have none yet: they get one when they are stored. */
function namedIds(messages: readonly PreparedMessage[], place: TurnPlace | undefined): string[] {
  const ids: string[] = [];
  if (place?.answers !== undefined) ids.push(place.answers);
  for (const { id } of messages) if (id !== undefined) ids.push(id);
  return ids;
}

/** One commit, retried while other processes change one of the conversations. The caller holds the mutex of all of them. */
function write(domain: Domain, batches: readonly SaveBatch[]): Promise<void> {
  return retryOnConflict(async (reload) => {
    const draft = createDraft();
    draft.begun = batches[0]?.begun;
    const changes: Snapshot[] = [];
    const now = domain.now();
    for (const { conversation, messages, place } of batches) {
      const cached = reload ? undefined : domain.conversations.known(conversation);
      const before = cached ?? (await domain.conversations.current(conversation, reload));
      const ids = namedIds(messages, place);
      const known = ids.length === 0 ? new Map<string, string>() : await findMessages(domain, before.number, ids);
      if (place !== undefined) {
        const displaced = await displacedMessages(domain, before.number, place, known);
        if (displaced === null) return;
        if (displaced.size > 0) {
          removeMessages(domain, draft, before, displaced);
          await dropSummaryOf(domain.store, draft, before.number, displaced.values());
        }
      }
      const updatedAt = Math.max(now, before.updatedAt);
      const written = writeMessages(domain, draft, before, messages, now, known);
      const after = changedSnapshot(before, { updatedAt, ...written, head: before.head }, before.revision);
      changeConversation(draft, before, after);
      changes.push(after);
    }
    const revision = await commitJoined(domain.store, draft, batches[0]?.joined);
    const memories = new Set<string>();
    for (const after of changes) {
      domain.conversations.remember(changedSnapshot(after, after, revision));
      memories.add(after.memory);
    }
    for (const memory of memories) domain.semantic.get(memory)?.committed();
  });
}
