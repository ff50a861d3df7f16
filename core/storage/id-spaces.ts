/**
 * Spaces of ids: the ids that clients choose are unique within a space. With isolation every user has a space of its own, so that two
 * users may have objects of the same id without noticing. Without isolation there is one shared space. A store may contain both
 * kinds, because isolation may be switched on and off: objects of both are found.
 */
import type { Row, Store } from "./store.ts";

/** The rows in which one id may be found. */
export interface IdKeys {
  /** The key in the shared space, or in that of a user. */
  of(owner?: string): string;
  /** Prefix of the keys in the spaces of all users. */
  ofUsers(): string;
}

export interface IdSpaces {
  /** Whether new objects get ids in the space of their owner. */
  readonly isolated: boolean;
  /** Whether any user has a space of its own; if not, only the shared space has to be searched. */
  readonly owned: boolean;
}

/** The object that an id leads to. */
export interface IdPlace {
  /** Internal number of the object. */
  readonly number: number;
  /** Whether the id is in the space of the object's owner, and not in the shared one. */
  readonly ownId: boolean;
}

/** How many objects of one id are looked at; a caller that needs another one has to name its user. */
export const MAX_ID_PLACES = 16;

/** @param ofUsers prefix of all ids in spaces of users, which may be left from a time when isolation was on */
export async function openIdSpaces(store: Store, isolated: boolean, ofUsers: string): Promise<IdSpaces> {
  return { isolated, owned: isolated || (await store.scan({ prefix: ofUsers, limit: 1 })).length > 0 };
}

/**
 * The object of an id for a user: in the user's space, else in the shared one, where the object may be another user's. One read.
 *
 * @param owner undefined: only the shared space is searched
 */
export async function findIdPlace(
  store: Store,
  spaces: IdSpaces,
  keys: IdKeys,
  owner: string | undefined,
): Promise<IdPlace | undefined> {
  if (owner === undefined || !spaces.owned) return sharedPlace(await store.get(keys.of()));
  const [own, shared] = await store.getMany([keys.of(owner), keys.of()]);
  return own === undefined ? sharedPlace(shared) : { number: Number(own.value), ownId: true };
}

/** The objects of an id in all spaces, at most `MAX_ID_PLACES`. */
export async function findIdPlaces(store: Store, spaces: IdSpaces, keys: IdKeys): Promise<IdPlace[]> {
  const range = { prefix: keys.ofUsers(), limit: MAX_ID_PLACES };
  const [row, owned] = await Promise.all([store.get(keys.of()), spaces.owned ? store.scan(range) : []]);
  const shared = sharedPlace(row);
  const places = owned.map(({ value }) => ({ number: Number(value), ownId: true }));
  return shared === undefined ? places : [shared, ...places].slice(0, MAX_ID_PLACES);
}

const sharedPlace = (row: Row | undefined): IdPlace | undefined =>
  row === undefined ? undefined : { number: Number(row.value), ownId: false };
