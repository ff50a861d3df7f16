/**
 * Stored responses:
 *
 *   rs/RESPONSE              -> a response: owner, input, output
 *   rt/#createdAt/RESPONSE   the same by time
 */
import { Collection, type Found, found } from "../storage/collection.ts";
import { rowsOf } from "../storage/ranges.ts";
import { nullOnConflict, type Store } from "../storage/store.ts";
import type { ConversationItem, ResponseResource } from "./items.ts";
import type { ReadRun } from "./run-parts.ts";

export interface ResponseRecord {
  readonly resource: ResponseResource;
  /** Empty for nobody in particular. */
  readonly owner: string;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  readonly input: readonly ConversationItem[];
  /** Ids of the responses that it continues, the oldest first. */
  readonly chain: readonly string[];
  /** For a response in the background, and one that waits: how the parts of its run are read. */
  readonly run?: ReadRun | undefined;
  /** Whether its run waits for a person, and adds to the output when it goes on. */
  readonly waits?: true | undefined;
}

export type FoundResponse = Found<ResponseRecord>;

/** Most characters of one response with its input: a longer one is not stored. */
export const MAX_STORED_CHARACTERS = 8 * 1024 * 1024;

export class ResponseRows extends Collection<ResponseRecord> {
  constructor(store: Store) {
    super(store, { prefix: "rs/", times: "rt/", timeOf: ({ createdAt }) => createdAt });
  }

  /** The responses with these ids that exist, in their order and a few at a time. */
  async *readAll(ids: readonly string[]): AsyncGenerator<FoundResponse[], void> {
    for await (const rows of rowsOf(
      this.store,
      ids.map((id) => this.key(id)),
    ))
      yield rows.map((row) => found(row));
  }

  /**
   * The response as it is stored: that of an earlier request, where one with the same key has stored it before.
   *
   * @param text the record as JSON
   */
  async createOnce(record: ResponseRecord, text: string): Promise<FoundResponse> {
    const { id } = record.resource;
    for (;;) {
      const revision = await nullOnConflict(this.write(id, undefined, record, {}, text));
      if (revision !== null) return { id, record, revision, size: text.length };
      const earlier = await this.read(id);
      if (earlier !== undefined) return earlier;
    }
  }
}
