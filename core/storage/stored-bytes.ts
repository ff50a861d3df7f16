/**
 * How many bytes users have in the store, and how many they may have (`server.limits.stored`): their conversations, executions and working
 * memory. Each of these has a counter beside its rows, and each user one of all. A commit that changes such rows changes both, so that
 * they agree whatever happens, and what is removed gives back what it has counted for. What was stored while nothing was counted gives
 * nothing back.
 */
import { isSomebody } from "../identity/principal.ts";
import { ServiceError } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { formatSize } from "../lib/size.ts";
import { countedRows, STORED_BYTES, storedBytesKey } from "./keys.ts";
import type { Commit, Row, Store } from "./store.ts";

interface BoundedStore {
  readonly store: Store;
  /** Sets the most bytes of one user; undefined ends the bound. */
  bound(most: number | undefined): void;
}

/** Work that has begun may go on so far beyond the bound, as a part of it. */
const BEYOND = 1 / 8;

const countOf = (row: Row | undefined): number => Number(row?.value ?? 0);
const bytesOf = ({ key, size, value }: Pick<Row, "key" | "size" | "value">): number =>
  key.length + (size ?? Buffer.byteLength(value));

/** The store, in which each user has at most so many bytes. It is the store as it is as long as nothing was ever bounded. */
export async function boundUsers(store: Store, refused: () => void): Promise<BoundedStore> {
  let limit: number | undefined;
  const bounded: Store = {
    ...store,
    // There from the begin, since others hold copies of the store.
    requireRoom(user, bytes) {
      if (limit === undefined || user === undefined || !isSomebody(user)) return undefined;
      return store.get(storedBytesKey(user)).then((row) => require(user, countOf(row), bytes()));
    },
    isOverfull: (user) => overfull.has(user),
  };
  /** Bytes of commits that are under way, by user. */
  const underWay = new KeyCounts();
  /** For each reading of counters, the bytes of commits that have ended since it began. */
  const readings = new Set<KeyCounts>();
  const overfull = new Set<string | undefined>();

  function require(user: string, stored: number, more: number): void {
    const used = stored + underWay.of(user);
    if (limit === undefined || used + more <= limit) return;
    refused();
    throw new ServiceError(
      "too_large",
      `this user has stored ${formatSize(used)}, and ${formatSize(more)} more would be over server.limits.stored: ${formatSize(limit)}`,
    );
  }

  async function commitCounted(commit: Commit): Promise<number> {
    const { put = [], delete: removed = [], clear = [], add = [], expect = [], of = [] } = commit;
    const objects = of.flatMap((owned) => {
      const { userId: user = "" } = owned;
      if (!isSomebody(user)) return [];
      const rows = countedRows(owned, user);
      return { ...rows, user, isCleared: clear.some((prefix) => rows.counter.startsWith(prefix)), bytes: 0 };
    });
    const objectOf = (key: string) => objects.find(({ prefixes }) => prefixes.some((prefix) => key.startsWith(prefix)));
    const changed = new Map(
      [...removed.map((key) => [key, undefined] as const), ...put].filter(([key]) => objectOf(key)),
    );
    const users = [...new Set(objects.map(({ user }) => user))];
    const since = new KeyCounts();
    readings.add(since);
    const [counters, before] = await Promise.all([
      store.getMany([...objects.map(({ counter }) => counter), ...users.map(storedBytesKey)]),
      store.getMany([...changed.keys()], 1),
    ]).finally(() => readings.delete(since));
    for (const row of before) if (row !== undefined) objectOf(row.key)!.bytes -= bytesOf(row);
    for (const [key, value] of changed) if (value !== undefined) objectOf(key)!.bytes += bytesOf({ key, value });
    const changes = new KeyCounts();
    const more: [string, number][] = [];
    const unchanged: [string, number | null][] = [];
    for (const [index, { user, counter, isCleared, bytes }] of objects.entries()) {
      const row = counters[index];
      // Rows that were not counted when they were stored are not given back.
      const change = isCleared ? -countOf(row) : Math.max(bytes, -countOf(row));
      if (isCleared) unchanged.push([counter, row?.revision ?? null]);
      else more.push([counter, change]);
      changes.add(user, change);
    }
    const most = limit ?? Number.POSITIVE_INFINITY;
    for (const [index, user] of users.entries()) {
      const stored = countOf(counters[objects.length + index]);
      const change = changes.of(user);
      const late = since.of(user);
      // What has ended meanwhile may have been read or not: where that decides, it is read again.
      if (late > 0 && stored + late + underWay.of(user) + change > most) return commitCounted(commit);
      if (change > 0 && !commit.begun) require(user, stored, change);
      if (stored + change > most * (1 + BEYOND)) overfull.add(user);
      else overfull.delete(user);
      more.push([storedBytesKey(user), change]);
    }
    for (const user of users) underWay.add(user, changes.of(user));
    try {
      const revision = await store.commit({ ...commit, add: [...add, ...more], expect: [...expect, ...unchanged] });
      for (const ended of readings) for (const user of users) ended.add(user, changes.of(user));
      return revision;
    } finally {
      for (const user of users) underWay.add(user, -changes.of(user));
    }
  }

  /** Also once the bound has ended: what has been counted is given back. */
  function count(): void {
    bounded.commit = (commit) => (commit.of === undefined ? store.commit(commit) : commitCounted(commit));
  }
  if ((await store.scan({ prefix: STORED_BYTES, limit: 1 })).length > 0) count();
  return {
    store: bounded,
    bound(most) {
      limit = most;
      if (most !== undefined) count();
    },
  };
}
