/** Stored responses: who owns them, what they were asked, what they have said, and who works on them. */
import { CommitConflict } from "../lib/errors.ts";
import { responseKey, responseTime } from "../storage/keys.ts";
import { rowsOf } from "../storage/large-rows.ts";
import type { Row, Store } from "../storage/store.ts";
import type { ConversationItem } from "./items.ts";
import type { ResponseResource } from "./resource.ts";

export interface ResponseRecord {
  readonly resource: ResponseResource;
  /** Empty: nobody in particular. */
  readonly owner: string;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  readonly input: readonly ConversationItem[];
  /** Ids of the responses that it continues, the oldest first. */
  readonly chain: readonly string[];
  /** The process that works on it; left out once it has ended. */
  readonly process?: string;
}

export interface FoundResponse {
  readonly record: ResponseRecord;
  readonly revision: number;
}

/** Of one response with its input: one that is longer is not stored. */
export const MAX_STORED_CHARACTERS = 8 * 1024 * 1024;

export class ResponseRows {
  readonly store: Store;

  constructor(store: Store) {
    this.store = store;
  }

  async read(id: string): Promise<FoundResponse | undefined> {
    const row = await this.store.get(responseKey(id));
    return row && found(row);
  }

  /** Those of these ids that exist, in their order and a few at a time. */
  async *readAll(ids: readonly string[]): AsyncGenerator<readonly { record: ResponseRecord; size: number }[], void> {
    for await (const rows of rowsOf(this.store, ids.map(responseKey)))
      yield rows.map((row) => ({ record: found(row).record, size: row.value.length }));
  }

  /** Resolves to the revision of its row. @param text the record as JSON */
  create({ resource: { id }, createdAt }: ResponseRecord, text: string): Promise<number> {
    const key = responseKey(id);
    return this.store.commit({
      put: [
        [key, text],
        [responseTime(createdAt, id), ""],
      ],
      expect: [[key, null]],
    });
  }

  /** Resolves to false when somebody else has changed or deleted it since. */
  async change(record: ResponseRecord, revision: number): Promise<boolean> {
    const key = responseKey(record.resource.id);
    return this.#unlessChanged(key, { put: [[key, JSON.stringify(record)]] }, revision);
  }

  async delete({ resource: { id }, createdAt }: ResponseRecord, revision: number): Promise<boolean> {
    const key = responseKey(id);
    return this.#unlessChanged(key, { delete: [key, responseTime(createdAt, id)] }, revision);
  }

  async #unlessChanged(key: string, commit: Parameters<Store["commit"]>[0], revision: number): Promise<boolean> {
    try {
      await this.store.commit({ ...commit, expect: [[key, revision]] });
    } catch (error) {
      if (error instanceof CommitConflict) return false;
      throw error;
    }
    this.store.wake?.(key);
    return true;
  }
}

const found = ({ value, revision }: Row): FoundResponse => ({ record: JSON.parse(value), revision });
