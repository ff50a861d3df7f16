/** Saving messages. Calls that wait for the same conversation share one commit. */

import type { Domain } from "../domain.ts";
import { changedSnapshot, type Snapshot } from "../records/conversation.ts";
import { retryOnConflict } from "../records/directory.ts";
import { changeConversation } from "../records/index-rows.ts";
import type { PreparedMessage } from "../records/message.ts";
import { createDraft } from "../semantic/semantic.ts";
import { findMessages, writeMessages } from "./write.ts";

/** Messages for one conversation. */
export interface SaveBatch {
  readonly conversation: Snapshot;
  readonly messages: readonly PreparedMessage[];
}

export interface Saver {
  /**
   * Saves all or nothing.
   *
   * @throws ConversationGone when a conversation has been deleted
   */
  save(batches: readonly SaveBatch[]): Promise<void>;
}

interface Waiting {
  readonly messages: readonly PreparedMessage[];
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

const MAX_MESSAGES_PER_SHARED_COMMIT = 1000;

export function createSaver(domain: Domain): Saver {
  const waiting = new Map<number, Waiting[]>();

  function enqueue({ conversation, messages }: SaveBatch): Promise<void> {
    return new Promise((resolve, reject) => {
      const call = { messages, resolve, reject };
      const queue = waiting.get(conversation.number);
      if (queue !== undefined) {
        queue.push(call);
        return;
      }
      waiting.set(conversation.number, [call]);
      drain(conversation);
    });
  }

  /** Saves all waiting messages when earlier work on the conversation has ended. */
  function drain(conversation: Snapshot): void {
    void domain.mutex.run([conversation.number], async () => {
      const calls = take(conversation.number);
      try {
        await write(domain, [{ conversation, messages: calls.flatMap((call) => call.messages) }]);
        for (const call of calls) call.resolve();
      } catch (error) {
        for (const call of calls) call.reject(error);
      }
      if (waiting.has(conversation.number)) drain(conversation);
    });
  }

  /** Takes the first calls off the queue, as many as share one commit. */
  function take(number: number): Waiting[] {
    const queue = waiting.get(number)!;
    let count = 0;
    let messages = 0;
    while (count < queue.length && (count === 0 || messages < MAX_MESSAGES_PER_SHARED_COMMIT))
      messages += queue[count++]!.messages.length;
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

/** One commit, retried while other processes change one of the conversations. The caller holds the mutex of all of them. */
function write(domain: Domain, batches: readonly SaveBatch[]): Promise<void> {
  return retryOnConflict(async (reload) => {
    const draft = createDraft();
    const changes: Snapshot[] = [];
    const now = domain.now();
    for (const { conversation, messages } of batches) {
      const cached = reload ? undefined : domain.conversations.known(conversation);
      const before = cached ?? (await domain.conversations.current(conversation, reload));
      const ids = messages.flatMap(({ id }) => (id === undefined ? [] : [id]));
      const known = ids.length === 0 ? new Map() : await findMessages(domain, before.number, ids);
      const updatedAt = Math.max(now, before.updatedAt);
      const written = writeMessages(domain, draft, before, messages, now, known);
      const after = changedSnapshot(before, { updatedAt, ...written, head: before.head }, before.revision);
      changeConversation(draft, before, after);
      changes.push(after);
    }
    const revision = await domain.store.commit(draft);
    const memories = new Set<string>();
    for (const after of changes) {
      domain.conversations.remember(changedSnapshot(after, after, revision));
      memories.add(after.memory);
    }
    for (const memory of memories) domain.semantic.get(memory)?.committed();
  });
}
