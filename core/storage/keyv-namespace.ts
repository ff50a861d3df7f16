/**
 * Plain Keyv for plugins, over the store: what they write travels in its groups of commits, works on every engine, and is
 * cleared by a range of keys.
 */

import Keyv, { type KeyvStoreAdapter } from "keyv";
import { systemTime } from "../lib/clock.ts";
import { NUMBER_LIMIT } from "./encoding.ts";
import { KEYV_ENDS, keyvEnd, keyvEndsBefore, keyvKey, keyvRows } from "./keys.ts";
import type { Commit, Row, Store } from "./store.ts";

/** The key as the plugin wrote it, what Keyv made of the value, and when it ends in milliseconds since 1970. */
type Entry = [key: string, value: string, expires: number | null];

/** Ended rows that a write takes along. */
const SWEEP = 20;
const PAGE = 200;
/** Milliseconds between two sweeps. */
const PAUSE = 1_000;

interface Namespaces {
  /** What is asked of it before there is a store waits. */
  keyv(namespace: string): Keyv;
  /** Where all of them keep things. Once. */
  connect(store: Store): void;
}

/** Milliseconds: who waits for the store while it is made would keep the service from starting. */
const PATIENCE = 10_000;

export function createNamespaces(): Namespaces {
  let kept: Store | undefined;
  const waiting = new Set<(store: Store) => void>();

  const opened = (): Promise<Store> => {
    if (kept !== undefined) return Promise.resolve(kept);
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        waiting.delete(go);
        reject(
          new Error("host.keyv was awaited before the store is open: use it once the service runs, not in create"),
        );
      }, PATIENCE);
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
      kept = store;
      for (const go of waiting) go(store);
      waiting.clear();
    },
  };
}

function createNamespace(opened: () => Promise<Store>, namespace: string): Keyv {
  // The namespace is in our keys: Keyv's own prefix would let `a` see what `a:b` wrote.
  return new Keyv({ store: createAdapter(opened, namespace), useKeyPrefix: false, throwOnErrors: true });
}

function createAdapter(opened: () => Promise<Store>, namespace: string): KeyvStoreAdapter & { opts: unknown } {
  const prefix = keyvRows(namespace);
  let swept = 0;

  /** What has ended and nobody asked for again would stay for ever. */
  async function sweep(store: Store): Promise<void> {
    if (systemTime() - swept < PAUSE) return;
    swept = systemTime();
    const ended = await store.scan({ prefix: KEYV_ENDS, before: keyvEndsBefore(swept), limit: SWEEP });
    const rows = await store.getMany(ended.map(({ value }) => JSON.parse(value) as string));
    for (const [index, { key, revision }] of ended.entries()) {
      const row = rows[index];
      const expires = row === undefined ? null : entryOf(row)[2];
      const over = row !== undefined && expires !== null && expires <= swept;
      const change: Commit = {
        delete: [key, ...(over ? [row.key] : [])],
        expect: over ? [[row.key, row.revision]] : [[key, revision]],
      };
      // Somebody wrote it again meanwhile: the next sweep sees what it is then.
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
    return rows.map((row) => (row === undefined ? undefined : liveValue(entryOf(row))));
  }

  async function remove(keys: string[]): Promise<boolean> {
    const store = await opened();
    const rows = await store.getMany(keys.map((key) => keyvKey(namespace, key)));
    const known = rows.filter((row) => row !== undefined);
    if (known.length === 0) return false;
    await store.commit({ delete: known.flatMap((row) => keysOf(row)) });
    return known.some((row) => liveValue(entryOf(row)) !== undefined);
  }

  const keysOf = (row: Row): string[] => {
    const [key, , expires] = entryOf(row);
    return expires === null ? [row.key] : [row.key, keyvEnd(expires, namespace, key)];
  };

  async function* iterator(): AsyncGenerator<[string, string | undefined]> {
    const store = await opened();
    for (let after: string | undefined; ; ) {
      const rows = await store.scan({ prefix, limit: PAGE, ...(after === undefined ? {} : { after }) });
      for (const row of rows) {
        const entry = entryOf(row);
        if (liveValue(entry) !== undefined) yield [entry[0], entry[1]];
      }
      if (rows.length < PAGE) return;
      after = rows.at(-1)?.key;
    }
  }

  return {
    // Keyv offers its iterator for the dialects that it knows.
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

const entryOf = (row: Row): Entry => JSON.parse(row.value) as Entry;

const liveValue = ([, value, expires]: Entry): string | undefined =>
  expires !== null && expires <= systemTime() ? undefined : value;
