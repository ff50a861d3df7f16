/**
 * Ids that clients choose. Where stored objects belong to users, so do their ids: two users may have the same one, and neither can
 * tell. Anywhere else an id is one for everybody. One store may hold both kinds, as isolation is switched on and off: what was made
 * before is found beside what came after.
 */
import type { Row, Store } from "./store.ts";

/** Where the id of one object may stand. */
export interface IdKeys {
  /** The row of everybody, or of a user. */
  of(owner?: string): string;
  /** Prefix of the rows of all users. */
  ofUsers(): string;
}

export interface IdSpaces {
  /** Whether the id of what is made now belongs to its owner. */
  readonly isolated: boolean;
  /** Whether any id may belong to a user: without one nothing has to be looked for there. */
  readonly owned: boolean;
}

/** Where an id leads. */
export interface IdPlace {
  /** Internal number of the object. */
  readonly number: number;
  /** Whether the id is its owner's, and not everybody's. */
  readonly ownId: boolean;
}

/** Places of one id that are looked at: who asks for more has to say whose. */
export const MAX_ID_PLACES = 16;

/** @param ofUsers prefix of all rows of ids that belong to users: those of a time when isolation was on */
export async function openIdSpaces(store: Store, isolated: boolean, ofUsers: string): Promise<IdSpaces> {
  return { isolated, owned: isolated || (await store.scan({ prefix: ofUsers, limit: 1 })).length > 0 };
}

/**
 * Where the id leads for a user: in its own space, else in that of everybody, where the object may be another user's. One read.
 *
 * @param owner undefined: the space of everybody alone
 */
export async function findIdPlace(
  store: Store,
  spaces: IdSpaces,
  keys: IdKeys,
  owner: string | undefined,
): Promise<IdPlace | undefined> {
  if (owner === undefined || !spaces.owned) return commonPlace(await store.get(keys.of()));
  const [own, common] = await store.getMany([keys.of(owner), keys.of()]);
  return own === undefined ? commonPlace(common) : { number: Number(own.value), ownId: true };
}

/** Where the id leads for anybody, at most `MOST_PLACES`. */
export async function findIdPlaces(store: Store, spaces: IdSpaces, keys: IdKeys): Promise<IdPlace[]> {
  const range = { prefix: keys.ofUsers(), limit: MAX_ID_PLACES };
  const [row, owned] = await Promise.all([store.get(keys.of()), spaces.owned ? store.scan(range) : []]);
  const common = commonPlace(row);
  const places = owned.map(({ value }) => ({ number: Number(value), ownId: true }));
  return common === undefined ? places : [common, ...places].slice(0, MAX_ID_PLACES);
}

const commonPlace = (row: Row | undefined): IdPlace | undefined =>
  row === undefined ? undefined : { number: Number(row.value), ownId: false };
