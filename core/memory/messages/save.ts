/** Saves messages. Calls that wait for the same conversation share one commit. */
import { ServiceError } from "../../lib/errors.ts";
import { commitJoined, type JoinedChanges } from "../../storage/joined.ts";
import { messageKey, messageRows, positionFromKey } from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Domain } from "../domain.ts";
import type { TurnPlace } from "../memory.ts";
import {
  changeConversation,
  changedSnapshot,
  idOf,
  type PreparedMessage,
  roleHead,
  type Snapshot,
} from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { createDraft } from "../semantic/semantic.ts";
import { dropSummaryOf, findMessages, removeMessages, writeMessages } from "./write.ts";

// Finds the stored messages that the commit of a turn removes.

/** A small number, because messages may contain files. */
const ROWS_PER_READ = 32;
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
  for await (const rows of allRows(store, range, ROWS_PER_READ))
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
