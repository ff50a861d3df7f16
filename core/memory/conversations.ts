/** Where conversations are, with a bounded cache of what each was like when it was last written or found here. */
import { CommitConflict, ServiceError, unavailable } from "../errors.ts";
import { conversationIdKey, conversationKey } from "../storage/keys.ts";
import type { Row, Store } from "../storage/store.ts";
import { type Snapshot, snapshotOf } from "./conversation.ts";
import { Recent } from "./recent.ts";

/** Each of the two generations. */
const CACHED = 10_000;
/** Numbers are small: the row of a conversation that is not cached is then one read away, not two. */
const PLACES = 100_000;
/** Characters of a conversation with large metadata are not kept. */
const LARGEST_CACHED = 4096;
/** Somebody wins every race, so this many are lost only by a process that others leave no chance. */
const ATTEMPTS = 60;

/** The conversation is not there under its number any more: deleted, maybe created anew with another one. */
export class Gone extends Error {
  override readonly name = "Gone";
}

export class Conversations {
  readonly #store: Store;
  readonly #cache = new Recent<Snapshot>(CACHED);
  /** Numbers of conversations that were there once. None is given twice, so that a wrong one finds nothing. */
  readonly #places = new Recent<number>(PLACES);

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * The conversation of that id: from the cache, and then maybe out of date or gone, else from the store. Undefined when
   * there is none.
   */
  async find(memory: string, id: string): Promise<Snapshot | undefined> {
    return this.#cache.get(cacheKey(memory, id)) ?? this.#resolve(memory, id);
  }

  /** Its number, from the cache if it is there, and then maybe one that is gone. Undefined when there is no such conversation. */
  async place(memory: string, id: string): Promise<number | undefined> {
    const key = cacheKey(memory, id);
    const known = this.#cache.get(key)?.number ?? this.#places.get(key);
    if (known !== undefined) return known;
    const place = await this.#store.get(conversationIdKey(memory, id));
    return place === undefined ? undefined : Number(place.value);
  }

  /** The conversation whose row was just read: what never changes of it holds, the rest may be newer. */
  found(memory: string, id: string, number: number, row: Row): Snapshot {
    const known = this.#cache.get(cacheKey(memory, id));
    return known?.number === number ? known : this.#found(memory, number, row);
  }

  /** The same as it is in the store now. */
  async fresh(memory: string, id: string): Promise<Snapshot | undefined> {
    const known = this.#cache.get(cacheKey(memory, id));
    if (known !== undefined) {
      const row = await this.#store.get(conversationKey(known.number));
      if (row !== undefined) return snapshotOf(memory, known.number, row);
      this.forget(known);
    }
    return this.#resolve(memory, id);
  }

  /** The same while nobody has to wait for it: what a commit here made of it last, if that is known. */
  known({ memory, number, id }: Snapshot): Snapshot | undefined {
    const known = this.#cache.get(cacheKey(memory, id));
    return known?.number === number ? known : undefined;
  }

  /**
   * Its last state that this process knows, for a commit that expects its revision; `reload` reads it first.
   *
   * @throws Gone when it is not there any more
   */
  async current({ memory, number, id }: Snapshot, reload: boolean): Promise<Snapshot> {
    const known = this.#cache.get(cacheKey(memory, id));
    if (!reload && known?.number === number) return known;
    const row = await this.#store.get(conversationKey(number));
    if (row === undefined) {
      if (known?.number === number) this.forget(known);
      throw new Gone();
    }
    const snapshot = snapshotOf(memory, number, row);
    this.remember(snapshot);
    return snapshot;
  }

  /** What a commit made of it, or a read while nobody in this process was writing. */
  remember(snapshot: Snapshot): void {
    const key = cacheKey(snapshot.memory, snapshot.id);
    if (this.#places.get(key) !== snapshot.number) this.#places.set(key, snapshot.number);
    if (snapshot.head.length > LARGEST_CACHED) this.#cache.delete(key);
    else this.#cache.set(key, snapshot);
  }

  forget(snapshot: Pick<Snapshot, "memory" | "id" | "number">): void {
    const key = cacheKey(snapshot.memory, snapshot.id);
    if (this.#cache.get(key)?.number === snapshot.number) this.#cache.delete(key);
    if (this.#places.get(key) === snapshot.number) this.#places.delete(key);
  }

  async #resolve(memory: string, id: string): Promise<Snapshot | undefined> {
    const known = this.#places.get(cacheKey(memory, id));
    if (known !== undefined) {
      const row = await this.#store.get(conversationKey(known));
      if (row !== undefined) return this.#found(memory, known, row);
    }
    const place = await this.#store.get(conversationIdKey(memory, id));
    if (place === undefined) return undefined;
    const number = Number(place.value);
    const row = await this.#store.get(conversationKey(number));
    // Deleted between the two reads.
    return row === undefined ? undefined : this.#found(memory, number, row);
  }

  #found(memory: string, number: number, row: Row): Snapshot {
    const snapshot = snapshotOf(memory, number, row);
    // What is in the cache by now comes from a commit, which is newer than what was read here.
    const cached = this.#cache.get(cacheKey(memory, snapshot.id));
    if (cached?.number !== number) this.remember(snapshot);
    return snapshot;
  }
}

const cacheKey = (memory: string, id: string) => `${memory}\0${id}`;

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
