/**
 * Keyv instances for plugins, over the store: their writes join its groups of commits and work on every engine, and clearing a namespace
 * deletes a range of keys.
 */
import Keyv, { type KeyvStoreAdapter } from "keyv";
import { systemTime } from "../lib/clock.ts";
import { KEYV_ENDS, keyvEnd, keyvEndsBefore, keyvKey, keyvRows, NUMBER_LIMIT } from "./keys.ts";
import { allRows } from "./ranges.ts";
import type { Commit, Row, Store } from "./store.ts";

/** The key as the plugin wrote it, the value as Keyv serialized it, and when it expires in milliseconds since 1970. */
type Entry = [key: string, value: string, expires: number | null];

/** A write deletes at most this many expired rows. */
const MAX_SWEPT_ROWS = 20;
const ROWS_PER_READ = 200;
const SWEEP_INTERVAL_MS = 1_000;

export interface Namespaces {
  /** Calls of the instance that come before `connect` wait for it. */
  keyv(namespace: string): Keyv;
  /** Gives all instances their store. Called once. */
  connect(store: Store): void;
}

/** A plugin that awaits its Keyv while it is created would block the start: the wait ends with an error. */
const CONNECT_TIMEOUT_MS = 10_000;

export function createNamespaces(): Namespaces {
  let connected: Store | undefined;
  const waiting = new Set<(store: Store) => void>();

  const opened = (): Promise<Store> => {
    if (connected !== undefined) return Promise.resolve(connected);
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        waiting.delete(go);
        reject(
          new Error("host.keyv was awaited before the store is open: use it once the service runs, not in create"),
        );
      }, CONNECT_TIMEOUT_MS);
      const go = (store: Store): void => {
        clearTimeout(late);
        resolve(store);
      };
      waiting.add(go);
    });
  };

  return {
    keyv: (namespace) => createNamespace(opened, namespace),
    connect(store) {
      connected = store;
      for (const go of waiting) go(store);
      waiting.clear();
    },
  };
}

function createNamespace(opened: () => Promise<Store>, namespace: string): Keyv {
  // The namespace is part of the store's keys. With Keyv's own prefix, namespace `a` would see what `a:b` wrote.
  return new Keyv({ store: createAdapter(opened, namespace), useKeyPrefix: false, throwOnErrors: true });
}

function createAdapter(opened: () => Promise<Store>, namespace: string): KeyvStoreAdapter & { opts: unknown } {
  const prefix = keyvRows(namespace);
  let sweptAt = 0;

  /** Deletes expired rows, which otherwise would stay until somebody reads them. */
  async function sweep(store: Store): Promise<void> {
    if (systemTime() - sweptAt < SWEEP_INTERVAL_MS) return;
    sweptAt = systemTime();
    const expired = await store.scan({ prefix: KEYV_ENDS, before: keyvEndsBefore(sweptAt), limit: MAX_SWEPT_ROWS });
    const rows = await store.getMany(
      expired.map(({ value }) => JSON.parse(value) as string),
      0,
    );
    for (const [index, { key, revision }] of expired.entries()) {
      const row = rows[index];
      const isExpired = row !== undefined && endOf(row) <= sweptAt;
      const change: Commit = {
        delete: [key, ...(isExpired ? [row.key] : [])],
        expect: isExpired ? [[row.key, row.revision]] : [[key, revision]],
      };
      // On a conflict somebody wrote the row again meanwhile: a later sweep will see it.
      await store.commit(change).catch(() => {});
    }
  }

  async function set(key: string, value: unknown, ttl?: number): Promise<void> {
    const store = await opened();
    const expires = ttl === undefined || ttl <= 0 ? null : Math.min(systemTime() + Math.ceil(ttl), NUMBER_LIMIT - 1);
    const entry: Entry = [key, value as string, expires];
    const put: [string, string][] = [[keyvKey(namespace, key), JSON.stringify(entry)]];
    if (expires !== null) put.push([keyvEnd(expires, namespace, key), JSON.stringify(keyvKey(namespace, key))]);
    await store.commit({ put });
    await sweep(store).catch(() => {});
  }

  async function getMany(keys: string[]): Promise<(string | undefined)[]> {
    const rows = await (await opened()).getMany(keys.map((key) => keyvKey(namespace, key)));
    return rows.map((row) => (row === undefined ? undefined : liveValue(parseEntry(row))));
  }

  async function remove(keys: string[]): Promise<boolean> {
    const store = await opened();
    const rows = await store.getMany(keys.map((key) => keyvKey(namespace, key)));
    const known = rows.filter((row) => row !== undefined);
    if (known.length === 0) return false;
    await store.commit({ delete: known.flatMap((row) => rowKeys(row)) });
    return known.some((row) => liveValue(parseEntry(row)) !== undefined);
  }

  const rowKeys = (row: Row): string[] => {
    const [key, , expires] = parseEntry(row);
    return expires === null ? [row.key] : [row.key, keyvEnd(expires, namespace, key)];
  };

  async function* iterator(): AsyncGenerator<[string, string | undefined]> {
    const store = await opened();
    for await (const rows of allRows(store, { prefix }, ROWS_PER_READ)) {
      for (const row of rows) {
        const entry = parseEntry(row);
        if (liveValue(entry) !== undefined) yield [entry[0], entry[1]];
      }
    }
  }

  return {
    // Keyv offers an iterator only for the dialects that it knows.
    opts: { dialect: "sqlite", url: "" },
    get: async (key) => (await getMany([key]))[0] as never,
    getMany: async (keys) => (await getMany(keys)) as never,
    set,
    delete: async (key) => remove([key]),
    deleteMany: remove,
    has: async (key) => (await getMany([key]))[0] !== undefined,
    clear: async () => {
      await (await opened()).commit({ clear: [prefix] });
    },
    iterator,
    on: () => undefined as never,
  };
}

/** When an entry expires, which stands last: also in an excerpt. */
const endOf = ({ value }: Row): number => Number(/,(\d+)\]$/.exec(value)?.[1] ?? Number.POSITIVE_INFINITY);

const parseEntry = (row: Row): Entry => JSON.parse(row.value) as Entry;

const liveValue = ([, value, expires]: Entry): string | undefined =>
  expires !== null && expires <= systemTime() ? undefined : value;
