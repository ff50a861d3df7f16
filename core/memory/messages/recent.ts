/**
 * A cache of the last messages of conversations, bounded in bytes: pages as clients get them, and the parsed messages of prompts. An
 * entry is the state at one revision of the conversation's row. A commit that expects this revision and appends messages moves the entry
 * to the next one; any other commit drops it.
 */
import type { Message } from "../../../generated/types.ts";
import { RecentMap } from "../../lib/recent-map.ts";
import type { Text } from "../../lib/serialized.ts";
import { conversationOfKey, conversationRows, messageKey, messagePosition, messageRows } from "../../storage/keys.ts";
import { type Commit, isShared, isVolatile, type Row, type Store } from "../../storage/store.ts";
import { endOfMessages, parseMessage, parseMessages } from "../records/conversation.ts";

// Detects whether a write under the same key overlapped with a read, so that the result of the read may be out of date.

interface Active {
  /** Number of reads and writes in progress. */
  users: number;
  writers: number;
  /** Number of starts and ends of writes so far. */
  writes: number;
}

export class Overlaps<K> {
  /** Entries only for keys that are being read or written. */
  readonly #active = new Map<K, Active>();

  isWritten(key: K): boolean {
    return (this.#active.get(key)?.writers ?? 0) > 0;
  }

  beginWrite(key: K): void {
    const active = this.#enter(key);
    active.writers++;
    active.writes++;
  }

  endWrite(key: K): void {
    const active = this.#active.get(key)!;
    active.writers--;
    active.writes++;
    this.#leave(key, active);
  }

  /** `alone` tells that no write was in progress at any time during the read. */
  async read<T>(key: K, read: () => Promise<T>): Promise<{ result: T; alone: boolean }> {
    const active = this.#enter(key);
    const { writers, writes } = active;
    try {
      const result = await read();
      return { result, alone: writers === 0 && active.writes === writes };
    } finally {
      this.#leave(key, active);
    }
  }

  #enter(key: K): Active {
    let active = this.#active.get(key);
    if (active === undefined) {
      active = { users: 0, writers: 0, writes: 0 };
      this.#active.set(key, active);
    }
    active.users++;
    return active;
  }

  #leave(key: K, active: Active): void {
    active.users--;
    if (active.users === 0) this.#active.delete(key);
  }
}

// The last messages of a conversation, parsed once for many readers.

interface KeptMessages {
  /** Most messages that are kept: fewer are all messages of the conversation. */
  readonly limit: number;
  readonly messages: readonly KeptMessage[];
}

interface KeptMessage {
  /** A message of texts only is shared. One with objects is JSON, parsed for each reader, because models and tools may change objects. */
  readonly message: Message | string;
  readonly bytes: number;
}

/** Bytes of a message in addition to its texts. */
const MESSAGE_BYTES = 512;

function keptBytes(kept: KeptMessages): number {
  let sum = 0;
  for (const { bytes } of kept.messages) sum += bytes;
  return sum;
}

/** The newest messages; null when some of them are not kept. */
function newestOf({ limit, messages }: KeptMessages, wanted: number): Message[] | null {
  if (wanted > limit && messages.length === limit) return null;
  return messages.slice(-wanted).map(({ message }) => (typeof message === "string" ? parseMessage(message) : message));
}

/** The kept messages of a conversation, and its row. */
interface KeptState {
  readonly row: Row;
  readonly kept: KeptMessages;
}

/** The state after a commit that expected this row; null when the commit does more than append messages. */
function stateAfter(
  { row, kept }: KeptState,
  number: number,
  { put = [], delete: removed = [], clear = [] }: Commit,
  revision: number,
): KeptState | null {
  const rows = conversationRows(number);
  const end = endOfMessages(row);
  if (end === null || clear.length > 0 || removed.some((key) => key.startsWith(rows))) return null;
  const prefix = messageRows(number);
  let last = messageKey(number, messagePosition(end.time, end.sequence));
  let after: Row | undefined;
  const messages = [...kept.messages];
  for (const [key, value] of put) {
    if (key === row.key) after = { key, value, revision };
    else if (key.startsWith(prefix)) {
      // The message replaces another one, or comes before others.
      if (key <= last) return null;
      last = key;
      messages.push(keep(parseMessage(value)));
    }
  }
  return after === undefined ? null : { row: after, kept: { ...kept, messages: messages.slice(-kept.limit) } };
}

function keep(message: Message): KeptMessage {
  const characters = charactersOfTexts(message);
  if (characters !== null) return { message, bytes: MESSAGE_BYTES + 2 * characters };
  const text = JSON.stringify(message);
  return { message: text, bytes: MESSAGE_BYTES + 2 * text.length };
}

/** Number of characters; null when the message contains anything but texts and plain values. */
function charactersOfTexts({ parts = [], content = "", metadata = {} }: Message): number | null {
  if (typeof content !== "string" || Object.keys(metadata).length > 0) return null;
  let characters = content.length;
  for (const part of parts) {
    for (const value of Object.values(part)) {
      if (typeof value === "object" && value !== null) return null;
      if (typeof value === "string") characters += value.length;
    }
  }
  return characters;
}

/** Of each of the two generations of the cache. Less where the rows are in the heap as well, and quick to read. */
const MAX_BYTES = 8 * 1024 * 1024;
const MAX_BYTES_IN_MEMORY = 2 * 1024 * 1024;
/** What takes more is not kept, since it would displace many others. */
const MAX_ENTRY_BYTES = 256 * 1024;
/** Bytes of an entry in addition to its messages. */
const ENTRY_BYTES = 512;

/** Messages as JSON texts with commas between them, and the row of their conversation, read at the same time. */
interface PageTexts {
  /** Undefined when it has been deleted. */
  readonly conversation: Row | undefined;
  /** In consecutive pieces. Null when they are too large together. */
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
  /** The store through which all changes of conversations go, so that their commits are noticed here. */
  readonly store: Store;
  readonly #store: Store;
  readonly #shared: boolean;
  /** By the number of the conversation. */
  readonly #entries: RecentMap<Entry, number>;
  readonly #overlaps = new Overlaps<number>();

  constructor(store: Store) {
    this.#store = store;
    this.#shared = isShared(store);
    this.#entries = new RecentMap(isVolatile(store) ? MAX_BYTES_IN_MEMORY : MAX_BYTES, ({ bytes }) => bytes);
    this.store = { ...store, commit: (commit) => this.#commit(commit) };
  }

  /** The newest messages as texts. @param load reads `limit` of them in one query, with the row; null when that is impossible */
  async page<P extends PageTexts>(
    conversation: number,
    limit: number,
    load: () => Promise<P | null>,
  ): Promise<P | PageTexts | null> {
    const entry = await this.#current(conversation);
    if (entry?.page?.limit === limit) return { conversation: entry.row, messages: entry.page.messages };
    const { result, alone } = await this.#overlaps.read(conversation, load);
    const row = result?.conversation;
    if (alone && row !== undefined && result?.messages)
      this.#keep(conversation, row, { limit, messages: result.messages }, null);
    return result;
  }

  /** The newest messages, parsed. They are shared, and must not be changed. */
  async messages(conversation: number, limit: number, load: () => Promise<PageTexts | null>) {
    const entry = await this.#current(conversation);
    const known = entry?.kept ? newestOf(entry.kept, limit) : null;
    if (entry !== undefined && known !== null) return { conversation: entry.row, messages: known };
    const { result, alone } = await this.#overlaps.read(conversation, load);
    if (result === null) return null;
    const { conversation: row, messages: texts } = result;
    const messages: readonly Message[] | null = texts && parseMessages(texts);
    if (alone && row !== undefined && messages !== null)
      this.#keep(conversation, row, null, {
        limit,
        messages: messages.map(keep),
      });
    return { conversation: row, messages };
  }

  /** The entry of a conversation, if it is up to date. */
  #current(conversation: number): Entry | undefined | Promise<Entry | undefined> {
    const entry = this.#entries.get(conversation);
    if (entry === undefined) return undefined;
    if (this.#shared) return this.#unchanged(conversation, entry);
    // Every change goes through here. While one is in progress, only the store knows whether it has happened.
    if (this.#overlaps.isWritten(conversation)) return undefined;
    this.#entries.set(conversation, entry);
    return entry;
  }

  /** Compares with the store, because other processes write too. Compares texts as well, because revisions may repeat after a failover. */
  async #unchanged(conversation: number, entry: Entry): Promise<Entry | undefined> {
    const row = await this.#store.get(entry.row.key);
    if (row?.revision !== entry.row.revision || row.value !== entry.row.value) return undefined;
    this.#entries.set(conversation, entry);
    return entry;
  }

  #keep(conversation: number, row: Row, page: Page | null, kept: KeptMessages | null): void {
    const known = this.#entries.get(conversation);
    const same = known?.row.revision === row.revision && known.row.value === row.value;
    this.#set(conversation, row, page ?? (same ? known.page : null), kept ?? (same ? known.kept : null));
  }

  #set(conversation: number, row: Row, page: Page | null, kept: KeptMessages | null): void {
    const bytes = ENTRY_BYTES + row.value.length + pageBytes(page) + (kept === null ? 0 : keptBytes(kept));
    if (bytes > MAX_ENTRY_BYTES) this.#entries.delete(conversation);
    else this.#entries.set(conversation, { row, page, kept, bytes });
  }

  #commit(commit: Commit): Promise<number> {
    const changed = changedConversations(commit);
    return changed.length === 0 ? this.#store.commit(commit) : this.#change(commit, changed);
  }

  async #change(commit: Commit, changed: ReturnType<typeof changedConversations>): Promise<number> {
    for (const [conversation] of changed) this.#overlaps.beginWrite(conversation);
    let revision: number | null = null;
    try {
      revision = await this.#store.commit(commit);
      return revision;
    } finally {
      for (const [conversation, expected] of changed) {
        this.#overlaps.endWrite(conversation);
        this.#follow(conversation, expected, commit, revision);
      }
    }
  }

  /** Updates the entry of a conversation after a commit. @param revision null when it is unknown whether the commit has happened */
  #follow(conversation: number, expected: number, commit: Commit, revision: number | null): void {
    const entry = this.#entries.get(conversation);
    if (entry === undefined) return;
    const { row, kept } = entry;
    const follows = revision !== null && kept !== null && row.revision === expected;
    const after = follows ? stateAfter({ row, kept }, conversation, commit, revision) : null;
    if (after === null) this.#entries.delete(conversation);
    else this.#set(conversation, after.row, null, after.kept);
  }
}

/** The existing conversations that a commit changes, each with the revision that it expects. */
function changedConversations({ expect }: Commit): readonly (readonly [conversation: number, revision: number])[] {
  const changed: [number, number][] = [];
  for (const [key, revision] of expect ?? []) {
    if (revision === null) continue;
    const conversation = conversationOfKey(key);
    if (conversation !== null) changed.push([conversation, revision]);
  }
  return changed;
}

function pageBytes(page: Page | null): number {
  let bytes = 0;
  for (const text of page?.messages ?? []) bytes += text.length;
  return bytes;
}
