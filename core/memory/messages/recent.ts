/**
 * The last messages of conversations in memory, bounded in bytes: pages as clients get them, and the messages of prompts parsed. What is
 * kept is the state at one revision of the conversation's row. A commit that expects this revision and adds messages at the end takes
 * it along to the next one, any other commit drops it.
 */
import type { Message } from "../../../generated/types.ts";
import { Overlaps } from "../../lib/overlaps.ts";
import { RecentMap } from "../../lib/recent-map.ts";
import type { Text } from "../../lib/serialized.ts";
import { conversationKey, conversationOfKey } from "../../storage/keys.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Commit, Row, Store } from "../../storage/store.ts";
import { parseMessages } from "../records/message.ts";
import { type KeptMessages, keepMessages, keptBytes, newestOf, stateAfter } from "./kept.ts";

/** Of each of the two generations of the cache. */
const MAX_BYTES = 8 * 1024 * 1024;
/** What takes more is not kept, since it would displace many others. */
const MAX_ENTRY_BYTES = 256 * 1024;
/** Of an entry beside its messages. */
const ENTRY_BYTES = 512;

/** Messages as JSON texts with commas between them, and the row of their conversation, of one moment. */
interface PageTexts {
  /** Undefined when it is gone. */
  readonly conversation: Row | undefined;
  /** In consecutive pieces. Null: together they are too large. */
  readonly messages: readonly Text[] | null;
}

interface Page {
  readonly limit: number;
  readonly messages: readonly Text[];
}

interface Entry {
  readonly row: Row;
  readonly page: Page | null;
  readonly kept: KeptMessages | null;
  readonly bytes: number;
}

export class RecentMessages {
  /** The store for all that changes conversations: their commits are seen here. */
  readonly store: Store;
  readonly #store: Store;
  readonly #shared: boolean;
  /** By the key of the conversation's row. */
  readonly #entries = new RecentMap<Entry>(MAX_BYTES, ({ bytes }) => bytes);
  readonly #overlaps = new Overlaps();

  constructor(store: Store) {
    this.#store = store;
    this.#shared = isShared(store);
    this.store = {
      kind: store.kind,
      get: (key) => store.get(key),
      getMany: (keys, longest) => store.getMany(keys, longest),
      scan: (range) => store.scan(range),
      tail: (tail) => store.tail(tail),
      commit: (commit) => this.#commit(commit),
      problem: () => store.problem(),
      close: () => store.close(),
    };
  }

  /** The newest messages as texts. @param load reads `limit` of them in one query, with the row; null when that cannot be done */
  async page<P extends PageTexts>(
    conversation: number,
    limit: number,
    load: () => Promise<P | null>,
  ): Promise<P | PageTexts | null> {
    const key = conversationKey(conversation);
    const entry = await this.#current(key);
    if (entry?.page?.limit === limit) return { conversation: entry.row, messages: entry.page.messages };
    const { result, alone } = await this.#overlaps.read(key, load);
    const row = result?.conversation;
    if (alone && row !== undefined && result?.messages) this.#keep(row, { limit, messages: result.messages }, null);
    return result;
  }

  /** The same, parsed. They are shared: nobody may change them. */
  async messages(conversation: number, limit: number, load: () => Promise<PageTexts | null>) {
    const key = conversationKey(conversation);
    const entry = await this.#current(key);
    const known = entry?.kept ? newestOf(entry.kept, limit) : null;
    if (entry !== undefined && known !== null) return { conversation: entry.row, messages: known };
    const { result, alone } = await this.#overlaps.read(key, load);
    if (result === null) return null;
    const { conversation: row, messages: texts } = result;
    const messages: readonly Message[] | null = texts && parseMessages(texts);
    if (alone && row !== undefined && messages !== null) this.#keep(row, null, keepMessages(messages, limit));
    return { conversation: row, messages };
  }

  /** What is kept of a conversation, if that is how it is now. */
  #current(key: string): Entry | undefined | Promise<Entry | undefined> {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (this.#shared) return this.#unchanged(key, entry);
    // Every change comes from here. While one is on its way, only the store knows whether it has happened.
    if (this.#overlaps.isWritten(key)) return undefined;
    this.#entries.set(key, entry);
    return entry;
  }

  /** Other processes write as well. The text is compared too: after a failover a revision may come a second time. */
  async #unchanged(key: string, entry: Entry): Promise<Entry | undefined> {
    const row = await this.#store.get(key);
    if (row?.revision !== entry.row.revision || row.value !== entry.row.value) return undefined;
    this.#entries.set(key, entry);
    return entry;
  }

  #keep(row: Row, page: Page | null, kept: KeptMessages | null): void {
    const known = this.#entries.get(row.key);
    const same = known?.row.revision === row.revision && known.row.value === row.value;
    this.#set(row, page ?? (same ? known.page : null), kept ?? (same ? known.kept : null));
  }

  #set(row: Row, page: Page | null, kept: KeptMessages | null): void {
    const bytes = ENTRY_BYTES + row.value.length + pageBytes(page) + (kept === null ? 0 : keptBytes(kept));
    if (bytes > MAX_ENTRY_BYTES) this.#entries.delete(row.key);
    else this.#entries.set(row.key, { row, page, kept, bytes });
  }

  #commit(commit: Commit): Promise<number> {
    const changed: [key: string, number: number, revision: number][] = [];
    for (const [key, revision] of commit.expect ?? []) {
      const number = conversationOfKey(key);
      if (number !== null && revision !== null) changed.push([key, number, revision]);
    }
    if (changed.length === 0) return this.#store.commit(commit);
    for (const [key] of changed) this.#overlaps.beginWrite(key);
    return this.#store.commit(commit).then(
      (revision) => {
        for (const [key, number, expected] of changed) {
          this.#overlaps.endWrite(key);
          this.#follow(key, number, expected, commit, revision);
        }
        return revision;
      },
      (error: unknown) => {
        for (const [key] of changed) {
          this.#overlaps.endWrite(key);
          this.#entries.delete(key);
        }
        throw error;
      },
    );
  }

  /** Brings what is kept of a conversation to the state after a commit. */
  #follow(key: string, number: number, expected: number, commit: Commit, revision: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const { row, kept } = entry;
    const after =
      kept === null || row.revision !== expected ? null : stateAfter({ row, kept }, number, commit, revision);
    if (after === null) this.#entries.delete(key);
    else this.#set(after.row, null, after.kept);
  }
}

function pageBytes(page: Page | null): number {
  let bytes = 0;
  for (const text of page?.messages ?? []) bytes += text.length;
  return bytes;
}
