/** Copies of conversations that take several commits: what a process that ended on the way left, the next one takes away. */
import {
  conversationKey,
  conversationRows,
  indexedConversation,
  UNFINISHED_COPIES,
  unfinishedCopyKey,
} from "../../storage/keys.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Domain } from "../domain.ts";
import { indexName } from "../records/target.ts";
import { createDraft } from "../semantic/semantic.ts";
import type { PendingConversation } from "./create.ts";

type Copy = Pick<PendingConversation, "memory" | "number" | "userId">;

/** Milliseconds after which a copy of another process is taken for abandoned. */
const ABANDONED = 3_600_000;
const BATCH = 100;

/** The row that says that a copy is being made. It goes with the commit that shows the copy. */
export const unfinishedCopy = ({ memory, number, userId }: Copy, began: number): [string, string] => [
  unfinishedCopyKey(number),
  JSON.stringify([began, memory, userId]),
];

/** Takes away what was written of a copy that nobody can see; does nothing if it came into being after all. */
export async function discardCopy({ store, semantic }: Domain, { memory, number, userId }: Copy): Promise<void> {
  const draft = createDraft();
  draft.expect.push([conversationKey(number), null]);
  draft.clear.push(conversationRows(number));
  draft.delete.push(unfinishedCopyKey(number));
  semantic.get(memory)?.conversationDeleted(draft, userId, indexName(number));
  // A store that fails now leaves rows which cost space, until the next start.
  await store.commit(draft).catch(() => {});
}

export async function discardUnfinishedCopies(domain: Domain): Promise<void> {
  const before = isShared(domain.store) ? Date.now() - ABANDONED : Number.POSITIVE_INFINITY;
  for (let after: string | undefined; ; ) {
    const range = { prefix: UNFINISHED_COPIES, limit: BATCH };
    const rows = await domain.store.scan(after === undefined ? range : { ...range, after });
    for (const { key, value } of rows) {
      const [began, memory, userId] = JSON.parse(value) as [number, string, string];
      if (began < before) await discardCopy(domain, { number: indexedConversation(key), memory, userId });
    }
    if (rows.length < BATCH) return;
    after = rows.at(-1)?.key;
  }
}
