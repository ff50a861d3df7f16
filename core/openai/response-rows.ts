/** Stored responses: their owners, requests and output. */
import { CommitConflict } from "../lib/errors.ts";
import { responseKey, responseTime } from "../storage/keys.ts";
import { rowsOf } from "../storage/large-rows.ts";
import type { Commit, Row, Store } from "../storage/store.ts";
import type { ConversationItem } from "./items.ts";
import type { ResponseResource } from "./resource.ts";

export interface ResponseRecord {
  readonly resource: ResponseResource;
  /** Empty for nobody in particular. */
  readonly owner: string;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  readonly input: readonly ConversationItem[];
  /** Ids of the responses that it continues, the oldest first. */
  readonly chain: readonly string[];
  /** For a response in the background: how the parts of its run are read. */
  readonly run?: ResponseRun;
}

interface ResponseRun {
  readonly isJson: boolean;
  /** The tools that the client runs. */
  readonly clientTools: readonly string[];
}

export interface FoundResponse {
  readonly record: ResponseRecord;
  readonly revision: number;
}

/** Most characters of one response with its input: a longer one is not stored. */
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

  /** The responses with these ids that exist, in their order and a few at a time. */
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

  /** The response as it is stored: that of an earlier request, where one with the same key has stored it before. */
  async createOnce(record: ResponseRecord, text: string): Promise<FoundResponse> {
    for (;;) {
      try {
        return { record, revision: await this.create(record, text) };
      } catch (error) {
        if (!(error instanceof CommitConflict)) throw error;
        const earlier = await this.read(record.resource.id);
        if (earlier !== undefined) return earlier;
      }
    }
  }

  /** Resolves to its new revision, or to null when somebody else has changed or deleted it since. */
  async change(record: ResponseRecord, revision: number): Promise<number | null> {
    const key = responseKey(record.resource.id);
    return this.#unlessChanged({ put: [[key, JSON.stringify(record)]], expect: [[key, revision]] });
  }

  /** Resolves to false when it was changed or deleted by somebody else since. */
  async delete({ resource: { id }, createdAt }: ResponseRecord, revision: number): Promise<boolean> {
    const key = responseKey(id);
    const removal = { delete: [key, responseTime(createdAt, id)], expect: [[key, revision]] } satisfies Commit;
    return (await this.#unlessChanged(removal)) !== null;
  }

  async #unlessChanged(commit: Commit): Promise<number | null> {
    try {
      return await this.store.commit(commit);
    } catch (error) {
      if (error instanceof CommitConflict) return null;
      throw error;
    }
  }
}

const found = ({ value, revision }: Row): FoundResponse => ({ record: JSON.parse(value), revision });
