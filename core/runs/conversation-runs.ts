/**
 * Finds the runs that answer in a conversation. Each that may be read again has a row while it runs, written and removed in one commit with its open
 * row: so every process finds it, and no crash leaves a row that leads nowhere. A run that is not on disk yet, or whose store is this
 * process alone, is found by being here.
 */
import { conversationRuns, executionEntry, indexedEntry } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import type { ExecutionStart } from "../workflows/journal/entries.ts";
import { runIdOf } from "../workflows/journal/run-record.ts";

interface Found {
  /** Sorts later than those of older runs. */
  readonly entry: string;
  readonly runId: string;
  /** Whether a chat may read it again. */
  readonly isResumable: boolean;
}

export class ConversationRuns {
  readonly #store: Store;
  readonly #lasts: boolean;
  /** Those that run here, in the order of their begin, by the prefix of their rows. */
  readonly #here = new Map<string, Found[]>();

  /** @param lasts whether the store has rows of what runs */
  constructor(store: Store, lasts: boolean) {
    this.#store = store;
    this.#lasts = lasts;
  }

  /** A run begins here. @returns what is to be called when it is over */
  begin(start: ExecutionStart): () => void {
    const { workflowName, userId = "", conversationId = "", at, number, isResumable = false } = start;
    const key = conversationRuns(workflowName, userId, conversationId);
    const found = { entry: executionEntry(at, number), runId: runIdOf(start), isResumable };
    this.#here.set(key, [...(this.#here.get(key) ?? []), found]);
    return () => {
      const left = this.#here.get(key)!.filter((other) => other !== found);
      if (left.length === 0) this.#here.delete(key);
      else this.#here.set(key, left);
    };
  }

  /** The ids of all that run in a conversation here, and of the newest in another process. */
  async all(agentId: string, userId: string, conversationId: string): Promise<readonly string[]> {
    const key = conversationRuns(agentId, userId, conversationId);
    const stored = this.#lasts ? await this.#stored(key) : undefined;
    const here = (this.#here.get(key) ?? []).map(({ runId }) => runId);
    return stored === undefined || here.includes(stored.runId) ? here : [...here, stored.runId];
  }

  /** The id of the newest run that a chat may read again; null when none runs. */
  async newest(agentId: string, userId: string, conversationId: string): Promise<string | null> {
    const key = conversationRuns(agentId, userId, conversationId);
    const here = this.#here.get(key)?.findLast(({ isResumable }) => isResumable);
    const stored = this.#lasts ? await this.#stored(key) : undefined;
    if (here === undefined || stored === undefined) return (here ?? stored)?.runId ?? null;
    return (here.entry > stored.entry ? here : stored).runId;
  }

  async #stored(prefix: string): Promise<Found | undefined> {
    const [row] = await this.#store.scan({ prefix, reverse: true, limit: 1 });
    if (row === undefined) return undefined;
    return { entry: indexedEntry(row.key), runId: JSON.parse(row.value) as string, isResumable: true };
  }
}
