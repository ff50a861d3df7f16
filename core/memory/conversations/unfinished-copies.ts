/** Cleans up copies of conversations whose process ended between the first and the last of their commits. */
import {
  conversationKey,
  conversationRows,
  indexedConversation,
  UNFINISHED_COPIES,
  unfinishedCopyKey,
} from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Domain } from "../domain.ts";
import { indexName } from "../records/target.ts";
import { createDraft } from "../semantic/semantic.ts";
import type { PendingConversation } from "./create.ts";

type Copy = Pick<PendingConversation, "memory" | "number" | "userId">;

/** Age at which an unfinished copy of another process counts as abandoned. */
const ABANDONED_AFTER_MS = 3_600_000;

/** The row that marks a copy as unfinished. The commit that makes the copy visible deletes it. */
export const unfinishedCopy = ({ memory, number, userId }: Copy, began: number): [string, string] => [
  unfinishedCopyKey(number),
  JSON.stringify([began, memory, userId]),
];

/**
 * Deletes the rows of an unfinished copy; does nothing if the copy was finished after all.
 *
 * @param revision of the row that marks it
 */
export async function discardCopy({ store, semantic }: Domain, copy: Copy, revision: number): Promise<void> {
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
