/**
 * Vectors that a plugin keeps outside of the store. No commit can change them, so that deletions wait in the store like texts that wait
 * to be embedded, and are retried until the plugin has done them.
 */

import type { VectorEntry, VectorHit, VectorQuery, Vectors } from "../../plugin/plugin.ts";
import { removeUnchanged } from "../../storage/conflict.ts";
import type { Store } from "../../storage/store.ts";
import type { IndexLayout } from "./layout.ts";
import { writeWaiting } from "./rows.ts";
import type { Draft, MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

export function createPluginVectors(
  store: Store,
  layout: IndexLayout,
  state: IndexState,
  vectors: Vectors,
): VectorIndex {
  function dropMessages(draft: Draft, places: readonly MessagePlace[]): void {
    for (const { owner, conversation, message } of places) {
      const place = { owner, conversation, message };
      draft.put.push([layout.wait(place), writeWaiting({ kind: "delete", ...place })]);
    }
  }

  function dropConversation(draft: Draft, owner: string, conversation: string): void {
    draft.clear.push(layout.waiting(owner, conversation));
    const row = writeWaiting({ kind: "deleteConversation", owner, conversation });
    draft.put.push([layout.waitingConversation(owner, conversation), row]);
  }

  /** Calls the plugin before the commit: after a crash in between it gets the same call again. */
  async function finish(finished: readonly FinishedRow[]): Promise<void> {
    // Another process may have rebuilt the index.
    await state.refresh();
    const entries = finished.flatMap(({ row }) => (row === undefined ? [] : [row]));
    if (entries.length > 0) await vectors.put(entries);
    await Promise.all(finished.map((one) => removeUnchanged(store, one)));
  }

  async function put(entries: readonly VectorEntry[]): Promise<void> {
    await vectors.put(entries);
  }

  async function clear(): Promise<void> {
    await vectors.clear();
  }

  async function remove(places: readonly { owner: string; conversation: string; message?: string }[]): Promise<void> {
    await vectors.delete(places);
  }

  async function idle(): Promise<void> {}

  async function search(query: VectorQuery): Promise<VectorHit[]> {
    const { owner, conversation, limit, threshold } = query;
    const hits = await vectors.search(query);
    // The plugin is not trusted to keep owners apart.
    return hits
      .filter((hit) => owner === undefined || hit.owner === owner)
      .filter((hit) => conversation === undefined || hit.conversation === conversation)
      .filter(({ score }) => score >= threshold)
      .sort((a, b) => b.score - a.score)
      .slice(0, limit);
  }

  return { dropMessages, dropConversation, finish, put, clear, delete: remove, idle, search };
}
