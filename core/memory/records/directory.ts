/** Finds conversations by id, with bounded caches of their numbers and of their last known snapshots. */
import { CommitConflict, invalid, quoted, ServiceError, unavailable } from "../../lib/errors.ts";
import { RecentMap } from "../../lib/recent-map.ts";
import { conversationIdKeys, conversationKey } from "../../storage/keys.ts";
import { findIdPlace, findIdPlaces, type IdPlace, type IdSpaces, type Row, type Store } from "../../storage/store.ts";
import {
  type ConversationRef,
  conversationIdentity,
  isRowOf,
  parseSnapshot,
  type Snapshot,
  type Stored,
} from "./conversation.ts";

/** Of the snapshots in each of the two generations of the cache: some ten thousand. */
const MAX_SNAPSHOT_BYTES = 5 * 1024 * 1024;
const SNAPSHOT_BYTES = 512;
/** Numbers are small, so many are kept: with its number a conversation that is not cached takes one read, not two. */
const MAX_NUMBER_BYTES = 12 * 1024 * 1024;
/** Beside its key. */
const NUMBER_BYTES = 80;
/** Conversations with larger metadata are not cached. */
const MAX_CACHED_CHARACTERS = 4096;
/** Every race has a winner, so only a process that is always slower than the others loses this often. */
const MAX_RETRIES = 60;

/** No conversation has this number any more: it was deleted, and perhaps created again with another number. */
export class ConversationGone extends Error {
  override readonly name = "ConversationGone";
}

/** What is needed to find the rows of a conversation. */
type Known = ConversationRef & { readonly number: number };

/** Is notified of conversations that are used or removed. */
interface Usage {
  use(conversation: Stored): void;
  forget(number: number): void;
}

/**
 * In all methods `owner` is the user whose conversation with an id is meant. It is looked up among the user's own ids and among the
 * ids that all users share (storage/store.ts), where it may turn out to be another user's. When no ids belong to users, and
 * for an undefined owner, only the shared ids are searched.
 */
export class Conversations {
  readonly #store: Store;
  readonly #spaces: IdSpaces;
  readonly #usage: Usage | undefined;
  readonly #cache = new RecentMap<Snapshot>(
    MAX_SNAPSHOT_BYTES,
    ({ head }, key) => SNAPSHOT_BYTES + head.length + key.length,
  );
  /** Of a deleted conversation the number finds nothing, or the row of another one, which says so. */
  readonly #numbers = new RecentMap<number>(MAX_NUMBER_BYTES, (_, key) => NUMBER_BYTES + key.length);

  constructor(store: Store, spaces: IdSpaces, usage?: Usage) {
    this.#store = store;
    this.#spaces = spaces;
    this.#usage = usage;
  }

  /**
   * The conversation with that id: from the cache, where it may be out of date or deleted by now, else from the store. Undefined
   * when there is none.
   */
  async find(memory: string, id: string, owner: string | undefined): Promise<Snapshot | undefined> {
    return this.#cached(memory, id, owner) ?? this.#read(memory, id, owner);
  }

  /** The number of the conversation, from the cache (then it may be deleted by now), else from the store. Undefined when there is none. */
  async findPlace(memory: string, id: string, owner: string | undefined): Promise<IdPlace | undefined> {
    const known = this.#cached(memory, id, owner) ?? this.#knownPlace(memory, id, owner);
    return known ?? findIdPlace(this.#store, this.#spaces, conversationIdKeys(memory, id), owner);
  }

  /**
   * The conversation whose own row was just read (`isRowAt`), or a newer snapshot from the cache. Undefined when it is not the one that is
   * meant.
   */
  fromRow(memory: string, id: string, owner: string | undefined, place: IdPlace, row: Row): Snapshot | undefined {
    const known = this.#cache.get(cacheKey(memory, id, place.ownId ? owner : undefined));
    const found = known?.number === place.number && isRowOf(known, row) ? known : this.#rowSnapshot(memory, place, row);
    return this.#unlessAnothers(found, owner);
  }

  /** Like `find`, but always read from the store. */
  async fresh(memory: string, id: string, owner: string | undefined): Promise<Snapshot | undefined> {
    const known = this.#cached(memory, id, owner);
    if (known !== undefined) {
      const row = await this.#store.get(conversationKey(known.number));
      if (row !== undefined && isRowOf(known, row)) return parseSnapshot(memory, known, row);
      this.forget(known);
    }
    return this.#read(memory, id, owner);
  }

  /**
   * The owner of the only conversation with that id, whoever that is. Undefined when there is none.
   *
   * @throws ServiceError `invalid_input` when there are several
   */
  async onlyOwner(memory: string, id: string): Promise<string | undefined> {
    const [place, ...others] = await findIdPlaces(this.#store, this.#spaces, conversationIdKeys(memory, id));
    if (others.length > 0) throw invalid(`several users have a conversation ${quoted(id)}: say whose with userId`);
    const row = place && (await this.#store.get(conversationKey(place.number)));
    return row && isRowOf({ id, userId: undefined }, row) ? conversationIdentity(row.value).userId : undefined;
  }

  /** The last snapshot that this process has of it, without a read. */
  known(snapshot: Known): Snapshot | undefined {
    const known = this.#cache.get(cacheKeyFor(snapshot));
    return known?.number === snapshot.number && known.userId === snapshot.userId ? known : undefined;
  }

  /**
   * The last snapshot, for a commit that expects its revision: from the cache, or from the store with `reload`.
   *
   * @throws ConversationGone when it has been deleted
   */
  async current(before: Known, reload: boolean): Promise<Snapshot> {
    const known = this.known(before);
    if (!reload && known !== undefined) return known;
    const row = await this.#store.get(conversationKey(before.number));
    if (row === undefined || !isRowOf(before, row)) {
      this.forget(before);
      throw new ConversationGone();
    }
    const snapshot = parseSnapshot(before.memory, before, row);
    this.remember(snapshot);
    return snapshot;
  }

  /** Caches the snapshot of a commit, or of a read during which nothing in this process was writing. */
  remember(snapshot: Snapshot): void {
    const key = cacheKeyFor(snapshot);
    if (this.#numbers.get(key) !== snapshot.number) this.#numbers.set(key, snapshot.number);
    if (snapshot.head.length > MAX_CACHED_CHARACTERS) this.#cache.delete(key);
    else this.#cache.set(key, snapshot);
    this.#usage?.use(snapshot);
  }

  forget(snapshot: Known): void {
    this.#usage?.forget(snapshot.number);
    const key = cacheKeyFor(snapshot);
    if (this.#cache.get(key)?.number === snapshot.number) this.#cache.delete(key);
    if (this.#numbers.get(key) === snapshot.number) this.#numbers.delete(key);
  }

  #cached(memory: string, id: string, owner: string | undefined): Snapshot | undefined {
    if (owner === undefined || !this.#spaces.owned) return this.#cache.get(cacheKey(memory, id, undefined));
    const own = this.#cache.get(cacheKey(memory, id, owner));
    if (own !== undefined) return own;
    const common = this.#cache.get(cacheKey(memory, id, undefined));
    return common?.userId === owner ? common : undefined;
  }

  /** A number does not tell to whom the conversation belongs, so shared ids are left out if the owner matters. */
  #knownPlace(memory: string, id: string, owner: string | undefined): IdPlace | undefined {
    const ownId = owner !== undefined && this.#spaces.owned;
    const number = this.#numbers.get(cacheKey(memory, id, ownId ? owner : undefined));
    return number === undefined ? undefined : { number, ownId };
  }

  async #read(memory: string, id: string, owner: string | undefined): Promise<Snapshot | undefined> {
    const known = this.#knownPlace(memory, id, owner);
    if (known !== undefined) {
      const row = await this.#store.get(conversationKey(known.number));
      if (row !== undefined && isRowAt(id, owner, known, row)) return this.#rowSnapshot(memory, known, row);
    }
    const place = await findIdPlace(this.#store, this.#spaces, conversationIdKeys(memory, id), owner);
    if (place === undefined) return undefined;
    const row = await this.#store.get(conversationKey(place.number));
    // The conversation was deleted between the two reads, or the number belongs to another one.
    if (row === undefined || !isRowAt(id, owner, place, row)) return undefined;
    return this.#unlessAnothers(this.#rowSnapshot(memory, place, row), owner);
  }

  /** With isolation a conversation that was found by a shared id may belong to another user: then it is not the one that is meant. */
  #unlessAnothers(found: Snapshot, owner: string | undefined): Snapshot | undefined {
    return this.#spaces.isolated && owner !== undefined && found.userId !== owner ? undefined : found;
  }

  #rowSnapshot(memory: string, place: IdPlace, row: Row): Snapshot {
    const snapshot = parseSnapshot(memory, place, row);
    // A snapshot in the cache comes from a commit, and is at least as new as what was read here.
    if (this.known(snapshot) === undefined) this.remember(snapshot);
    return snapshot;
  }
}

/** Whether a row belongs to the conversation to which an id of this owner leads. */
export const isRowAt = (id: string, owner: string | undefined, { ownId }: IdPlace, row: Row): boolean =>
  isRowOf({ id, userId: ownId ? owner : undefined }, row);

/** A unique key: names of memories have no control characters, so no id and no user can make two keys equal. */
const cacheKey = (memory: string, id: string, owner: string | undefined): string =>
  owner === undefined ? `${memory}\0${id}` : `${memory}\x01${owner.length}\0${owner}${id}`;

const cacheKeyFor = ({ memory, id, ownId, userId }: ConversationRef): string =>
  cacheKey(memory, id, ownId ? userId : undefined);

/**
 * Runs `work`, again while its commit conflicts with others; from the second time on, `reload` tells it to read from the store.
 *
 * @throws ServiceError `unavailable` after too many conflicts
 */
export async function retryOnConflict<T>(work: (reload: boolean) => Promise<T>): Promise<T> {
  for (let count = 0; ; count++) {
    try {
      return await work(count > 0);
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      if (count >= MAX_RETRIES) throw tooBusy(error);
      // The first retry is immediate. Later ones wait for a random time, so that many processes do not collide again.
      if (count > 0) await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(2 ** count, 50)));
    }
  }
}

function tooBusy(cause: CommitConflict): ServiceError {
  const { message, kind, facts } = unavailable("too many requests change this conversation at once, try again");
  return new ServiceError(kind, message, { cause, ...(facts && { facts }) });
}
