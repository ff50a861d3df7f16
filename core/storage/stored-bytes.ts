/**
 * How many bytes users have in the store, and how many they may have (`server.limits.stored`): their conversations, executions and working
 * memory. Each of these has a counter beside its rows, and each user one of all. A commit that changes such rows changes both, so that
 * they agree whatever happens, and what is removed gives back what it has counted for. What was stored while nothing was counted gives
 * nothing back.
 */
import { isSomebody } from "../identity/ownership.ts";
import { ServiceError } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { formatSize } from "../lib/size.ts";
import { countedRows, STORED_BYTES, storedBytesKey } from "./keys.ts";
import type { Commit, Row, Store } from "./store.ts";

interface StoredBytesLimit {
  /** Most bytes of one user; undefined without a bound. A reload may change it. */
  readonly most: number | undefined;
  refused(): void;
}

/** Work that has begun may go on so far beyond the bound, as a part of it. */
const BEYOND = 1 / 8;

const countOf = (row: Row | undefined): number => Number(row?.value ?? 0);
const bytesOf = ({ key, size, value }: Pick<Row, "key" | "size" | "value">): number =>
  key.length + (size ?? Buffer.byteLength(value));

/** The store, in which each user has at most so many bytes. */
export async function boundUsers(store: Store, limit: StoredBytesLimit): Promise<Store> {
  /** Also without a bound, where there was one: what has been counted is given back. */
  let counts = (await store.scan({ prefix: STORED_BYTES, limit: 1 })).length > 0;
  /** Bytes of commits that are under way, by user. */
  const underWay = new KeyCounts();
  const overfull = new Set<string | undefined>();

  function require(user: string, stored: number, more: number): void {
    const { most } = limit;
    const used = stored + underWay.of(user);
    if (most === undefined || used + more <= most) return;
    limit.refused();
    throw new ServiceError(
      "too_large",
      `this user has stored ${formatSize(used)}, and ${formatSize(more)} more would be over server.limits.stored: ${formatSize(most)}`,
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
    const [counters, before] = await Promise.all([
      store.getMany([...objects.map(({ counter }) => counter), ...users.map(storedBytesKey)]),
      store.getMany([...changed.keys()], 1),
    ]);
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
    const { most = Number.POSITIVE_INFINITY } = limit;
    for (const [index, user] of users.entries()) {
      const stored = countOf(counters[objects.length + index]);
      const change = changes.of(user);
      if (change > 0 && !commit.begun) require(user, stored, change);
      if (stored + change > most * (1 + BEYOND)) overfull.add(user);
      else overfull.delete(user);
      more.push([storedBytesKey(user), change]);
    }
    for (const user of users) underWay.add(user, changes.of(user));
    try {
      return await store.commit({ ...commit, add: [...add, ...more], expect: [...expect, ...unchanged] });
    } finally {
      for (const user of users) underWay.add(user, -changes.of(user));
    }
  }

  return {
    ...store,
    commit(commit) {
      if (commit.of === undefined) return store.commit(commit);
      counts ||= limit.most !== undefined;
      return counts ? commitCounted(commit) : store.commit(commit);
    },
    requireRoom(user, bytes) {
      if (limit.most === undefined || user === undefined || !isSomebody(user)) return undefined;
      return store.get(storedBytesKey(user)).then((row) => require(user, countOf(row), bytes()));
    },
    isOverfull: (user) => overfull.has(user),
  };
}
