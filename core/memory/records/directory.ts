/** Where conversations are, with a bounded cache of what each was like when it was last written or found here. */
import { CommitConflict, invalid, ServiceError, unavailable } from "../../lib/errors.ts";
import { RecentMap } from "../../lib/recent-map.ts";
import { type IdPlace, type IdSpaces, parseIdPlace, placesOf } from "../../storage/id-spaces.ts";
import { conversationIdKeys, conversationKey } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import { type Called, conversationOf, type Snapshot, snapshotOf } from "./conversation.ts";

/** Each of the two generations. */
const CACHED = 10_000;
/** Numbers are small: the row of a conversation that is not cached is then one read away, not two. */
const PLACES = 100_000;
/** Characters of a conversation with large metadata are not kept. */
const LARGEST_CACHED = 4096;
/** Somebody wins every race, so this many are lost only by a process that others leave no chance. */
const ATTEMPTS = 60;

/** The conversation is not there under its number any more: deleted, maybe created anew with another one. */
export class ConversationGone extends Error {
  override readonly name = "Gone";
}

/**
 * `owner` is the user whose conversation of an id is meant; it may be found in the space of everybody too, as another user's. Where
 * ids belong to nobody, and for an owner that is undefined, that space is the only one.
 */
export class Conversations {
  readonly #store: Store;
  readonly #spaces: IdSpaces;
  readonly #cache = new RecentMap<Snapshot>(CACHED);
  /** Numbers of conversations that were there once. None is given twice, so that a wrong one finds nothing. */
  readonly #places = new RecentMap<number>(PLACES);

  constructor(store: Store, spaces: IdSpaces) {
    this.#store = store;
    this.#spaces = spaces;
  }

  /**
   * The conversation of that id: from the cache, and then maybe out of date or gone, else from the store. Undefined when
   * there is none.
   */
  async find(memory: string, id: string, owner: string | undefined): Promise<Snapshot | undefined> {
    return this.#cached(memory, id, owner) ?? this.#resolve(memory, id, owner);
  }

  /** Its number, from the cache if it is there, and then maybe one that is gone. Undefined when there is no such conversation. */
  async place(memory: string, id: string, owner: string | undefined): Promise<IdPlace | undefined> {
    const known = this.#cached(memory, id, owner) ?? this.#placed(memory, id, owner);
    return known ?? parseIdPlace(this.#store, this.#spaces, conversationIdKeys(memory, id), owner);
  }

  /**
   * The conversation whose row was just read: what never changes of it holds, the rest may be newer. Undefined when it is not the
   * one that is meant.
   */
  found(memory: string, id: string, owner: string | undefined, place: IdPlace, row: Row): Snapshot | undefined {
    const known = this.#cache.get(nameIn(memory, id, place.ownId ? owner : undefined));
    return this.#meant(known?.number === place.number ? known : this.#found(memory, place, row), owner);
  }

  /** The same as it is in the store now. */
  async fresh(memory: string, id: string, owner: string | undefined): Promise<Snapshot | undefined> {
    const known = this.#cached(memory, id, owner);
    if (known !== undefined) {
      const row = await this.#store.get(conversationKey(known.number));
      if (row !== undefined) return snapshotOf(memory, known, row);
      this.forget(known);
    }
    return this.#resolve(memory, id, owner);
  }

  /**
   * The owner of the only conversation of that id, whoever it is. Undefined when there is none.
   *
   * @throws ServiceError `invalid_input` when there are several
   */
  async onlyOwner(memory: string, id: string): Promise<string | undefined> {
    const [place, ...others] = await placesOf(this.#store, this.#spaces, conversationIdKeys(memory, id));
    if (others.length > 0) throw severalUsers(id);
    const row = place && (await this.#store.get(conversationKey(place.number)));
    return row && conversationOf(row.value).userId;
  }

  /** The same while nobody has to wait for it: what a commit here made of it last, if that is known. */
  known(snapshot: Snapshot): Snapshot | undefined {
    const known = this.#cache.get(nameOf(snapshot));
    return known?.number === snapshot.number ? known : undefined;
  }

  /**
   * Its last state that this process knows, for a commit that expects its revision; `reload` reads it first.
   *
   * @throws Gone when it is not there any more
   */
  async current(before: Snapshot, reload: boolean): Promise<Snapshot> {
    const known = this.known(before);
    if (!reload && known !== undefined) return known;
    const row = await this.#store.get(conversationKey(before.number));
    if (row === undefined) {
      if (known !== undefined) this.forget(known);
      throw new ConversationGone();
    }
    const snapshot = snapshotOf(before.memory, before, row);
    this.remember(snapshot);
    return snapshot;
  }

  /** What a commit made of it, or a read while nobody in this process was writing. */
  remember(snapshot: Snapshot): void {
    const name = nameOf(snapshot);
    if (this.#places.get(name) !== snapshot.number) this.#places.set(name, snapshot.number);
    if (snapshot.head.length > LARGEST_CACHED) this.#cache.delete(name);
    else this.#cache.set(name, snapshot);
  }

  forget(snapshot: Called & { readonly number: number }): void {
    const name = nameOf(snapshot);
    if (this.#cache.get(name)?.number === snapshot.number) this.#cache.delete(name);
    if (this.#places.get(name) === snapshot.number) this.#places.delete(name);
  }

  #cached(memory: string, id: string, owner: string | undefined): Snapshot | undefined {
    if (owner === undefined || !this.#spaces.owned) return this.#cache.get(nameIn(memory, id, undefined));
    const own = this.#cache.get(nameIn(memory, id, owner));
    if (own !== undefined) return own;
    const common = this.#cache.get(nameIn(memory, id, undefined));
    return common?.userId === owner ? common : undefined;
  }

  /** Whose a conversation in the space of everybody is, its number does not tell: it is not looked for where that counts. */
  #placed(memory: string, id: string, owner: string | undefined): IdPlace | undefined {
    const ownId = owner !== undefined && this.#spaces.owned;
    const number = this.#places.get(nameIn(memory, id, ownId ? owner : undefined));
    return number === undefined ? undefined : { number, ownId };
  }

  async #resolve(memory: string, id: string, owner: string | undefined): Promise<Snapshot | undefined> {
    const known = this.#placed(memory, id, owner);
    if (known !== undefined) {
      const row = await this.#store.get(conversationKey(known.number));
      if (row !== undefined) return this.#found(memory, known, row);
    }
    const place = await parseIdPlace(this.#store, this.#spaces, conversationIdKeys(memory, id), owner);
    if (place === undefined) return undefined;
    const row = await this.#store.get(conversationKey(place.number));
    // Deleted between the two reads.
    return row === undefined ? undefined : this.#meant(this.#found(memory, place, row), owner);
  }

  /** With isolation the owner may have one of the same id beside another user's in the space of everybody, which is not asked for then. */
  #meant(found: Snapshot, owner: string | undefined): Snapshot | undefined {
    return this.#spaces.isolated && owner !== undefined && found.userId !== owner ? undefined : found;
  }

  #found(memory: string, place: IdPlace, row: Row): Snapshot {
    const snapshot = snapshotOf(memory, place, row);
    // What is in the cache by now comes from a commit, which is newer than what was read here.
    if (this.known(snapshot) === undefined) this.remember(snapshot);
    return snapshot;
  }
}

/** Names of memories have no control characters, so that an id and a user with such are no other name. */
const nameIn = (memory: string, id: string, owner: string | undefined): string =>
  owner === undefined ? `${memory}\0${id}` : `${memory}\x01${owner.length}\0${owner}${id}`;

const nameOf = ({ memory, id, ownId, userId }: Called): string => nameIn(memory, id, ownId ? userId : undefined);

const severalUsers = (id: string): ServiceError =>
  invalid(`several users have a conversation ${JSON.stringify(id.slice(0, 128))}: say whose with userId`);

/**
 * Tries again while somebody else was first, each time with what the store holds by then (`reload`).
 *
 * @throws ServiceError `unavailable` when that never ends
 */
export async function attempt<T>(work: (reload: boolean) => Promise<T>): Promise<T> {
  for (let count = 0; ; count++) {
    try {
      return await work(count > 0);
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      if (count >= ATTEMPTS) throw tooBusy(error);
      // The first loser may try at once; many at a time must get out of step.
      if (count > 0) await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(2 ** count, 50)));
    }
  }
}

function tooBusy(cause: CommitConflict): ServiceError {
  const { message, kind, headers } = unavailable("too many change this conversation at once, try again");
  return new ServiceError(kind, message, { cause, ...(headers && { headers }) });
}
