/** Opens the store that `store:` in the manifest names. */
import { isAbsolute, resolve } from "node:path";
import type { Logger } from "pino";
import type { Host } from "../plugin/plugin.ts";
import { createInstance } from "../registry/create.ts";
import { guarded } from "../registry/guarded.ts";
import type { Registry } from "../registry/registry.ts";
import { joinRows } from "./bounded-reader.ts";
import { createMemoryStore } from "./memory-store.ts";
import { isPostgresUrl } from "./postgres-settings.ts";
import { requireNoImport } from "./row-lines.ts";
import type { Joined, PluginStore, Store, Tail } from "./store.ts";

interface OpenOptions {
  logger: Logger;
  registry: Registry;
  host: Host;
  /** The folder of the manifest, which a relative FILE is relative to. */
  folder: string;
  /** True: also a store into which an import did not come to its end, for the next import. */
  unfinished?: boolean;
}

/**
 * @param url `memory:`, `sqlite:FILE` (`?synchronous=normal`), `postgres://...`, or a store plugin: `NAME`, `NAME:URL`
 * @throws Error with a message for the user when the store cannot be used
 */
export async function openStore(url: string, options: OpenOptions): Promise<Store> {
  const store = await openEngine(url, options);
  try {
    if (!options.unfinished) await requireNoImport(store);
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

async function openEngine(url: string, options: OpenOptions): Promise<Store> {
  if (url === "memory:") return createMemoryStore();
  if (url.startsWith("sqlite:")) {
    const { openSqliteStore } = await import("./sqlite-store.ts");
    return openSqliteStore({ ...parseSqliteUrl(url, options.folder), logger: options.logger });
  }
  if (isPostgresUrl(url)) {
    const { openPostgresStore } = await import("./postgres-store.ts");
    return openPostgresStore(url, { logger: options.logger });
  }
  return openPlugin(url, options);
}

/** In the result `where` names the file as the manifest does. */
export function parseSqliteUrl(
  url: string,
  folder: string,
): { file: string; where: string; synchronous: "full" | "normal" } {
  const [name = "", query = ""] = url.slice("sqlite:".length).split(/\?(.*)/s, 2);
  const path = name.replace(/^\/\/(?=.)/, "");
  if (path === "" || path === ":memory:") throw new Error(`store: ${url} names no file; memory: keeps nothing on disk`);
  let synchronous: "full" | "normal" = "full";
  for (const [key, value] of new URLSearchParams(query)) {
    if (key !== "synchronous") throw new Error(`store: unknown setting ${key}; sqlite: knows synchronous`);
    if (value !== "full" && value !== "normal") throw new Error("store: synchronous must be full or normal");
    synchronous = value;
  }
  return { file: isAbsolute(path) ? path : resolve(folder, path), where: `sqlite:${name}`, synchronous };
}

const METHODS = ["get", "getMany", "scan", "tail", "commit", "problem", "close"] as const;

async function openPlugin(url: string, { registry, host }: OpenOptions): Promise<Store> {
  const [name = "", rest] = url.split(/:(.*)/s, 2);
  const plugin = registry.get("store", name);
  if (plugin === undefined) {
    throw new Error(`store: there is no store plugin ${name}; or use memory:, sqlite:FILE or postgres://...`);
  }
  const config = rest === undefined ? {} : { url: rest };
  const made = await createInstance(plugin, config, { ...host, name });
  const store = { kind: made.kind, ...guarded(made, METHODS) };
  return { ...store, tail: store.tail ?? ((tail) => tailByScan(store, tail)), ...wakingOf(made) };
}

/** Wake-ups are hints: one that fails is none. */
function wakingOf(made: PluginStore): Pick<Store, "wake" | "watch"> {
  const { wake, watch } = guarded(made, ["wake", "watch"]);
  if (wake === undefined || watch === undefined) return {};
  return {
    wake: (topic) => void Promise.resolve(wake(topic)).catch(() => {}),
    watch(topic, woken) {
      const watching = Promise.resolve(watch(topic, woken));
      watching.catch(() => {});
      return () => void watching.then((end) => end()).catch(() => {});
    },
  };
}

async function tailByScan(store: PluginStore, tail: Tail): Promise<Joined | null> {
  const { otherKey, most: _, ...range } = tail;
  const [rows, other] = await Promise.all([store.scan({ ...range, reverse: true }), store.get(otherKey)]);
  return joinRows(rows.reverse(), tail, other);
}
