/** Memories over a store, without a service around them. */
import assert from "node:assert/strict";
import { EVERYTHING, isIsolated, type Principal } from "../../core/identity/principal.ts";
import { type ErrorKind, ServiceError } from "../../core/lib/errors.ts";
import type { Serialized } from "../../core/lib/serialized.ts";
import { parseManifest } from "../../core/manifest/load.ts";
import type { Manifest } from "../../core/manifest/manifest.ts";
import { type MemoriesOptions, openDomain } from "../../core/memory/memories.ts";
import type { MessageQuery } from "../../core/memory/memory.ts";
import type { Memory, MemoryAccess } from "../../core/memory/scoped.ts";
import { encodeNumber, encodeShortText, encodeText } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import type { Conversation, ConversationList, Message } from "../../generated/types.ts";

/** The memories of a manifest over one store. */
export const createMemories = (manifest: Manifest, store: Store, options: MemoriesOptions = {}) =>
  openDomain(store, { isolated: isIsolated(manifest), ...options }).memories(manifest);

interface OpenOptions extends MemoriesOptions {
  /** The `memory` section of the manifest. */
  memory?: Record<string, unknown>;
  store?: Store;
}

/** As one process has them: a second call with the same store is another process. */
export async function openMemories({
  memory = { default: {} },
  store = createMemoryStore(),
  ...options
}: OpenOptions = {}) {
  const manifest = JSON.stringify({ name: "Test", version: "1.0.0", memory });
  const loaded = parseManifest(manifest, { file: "service.yaml", env: {} });
  if (loaded.manifest === null)
    throw new Error(loaded.issues.map((issue) => `${issue.path}: ${issue.message}`).join("\n"));
  const memories = await createMemories(loaded.manifest, store, options);
  const named = (name: string): Memory => {
    const found = memories.get(name);
    if (found === undefined) throw new Error(`no memory ${name}`);
    return found;
  };
  return { store, memories, named, access: named(Object.keys(memory)[0]!).for(EVERYTHING) };
}

export const user = (userId: string | null): Principal => ({ userId, isolated: true });
export const said = (what: string, id?: string) => ({
  role: "user" as const,
  parts: [{ type: "text", text: what }],
  ...(id !== undefined && { id }),
});

/** The page as the client reads it. */
export async function pageOf(access: MemoryAccess, id: string, query: Partial<MessageQuery> = {}) {
  const { json } = await access.messages(id, { limit: 100, ...query });
  return JSON.parse(json) as { conversation: Conversation; messages: Message[] };
}

export async function textsOf(access: MemoryAccess, id: string, query: Partial<MessageQuery> = {}): Promise<string[]> {
  return (await pageOf(access, id, query)).messages.map(textOf);
}

export const textOf = ({ parts, content }: Message): string =>
  parts === undefined ? String(content) : (parts[0] as { text: string }).text;

export function rejectsAs(promise: Promise<unknown>, kind: ErrorKind, message?: RegExp): Promise<void> {
  return assert.rejects(promise, (error) => {
    assert.ok(error instanceof ServiceError, String(error));
    assert.equal(error.kind, kind, error.message);
    if (message !== undefined) assert.match(error.message, message);
    return true;
  });
}

/** A page of conversations, parsed. */
export const listed = async (page: Promise<Serialized>): Promise<ConversationList> =>
  JSON.parse((await page).json) as ConversationList;

/** Every row of a store, by its key. */
export async function everyRow(store: Store): Promise<Map<string, string>> {
  const rows = new Map<string, string>();
  for (const first of "cihknrsuw") {
    for (const { key, value } of await store.scan({ prefix: first, limit: 1_000_000 })) rows.set(key, value);
  }
  return rows;
}

/** Counts what a store is asked for, and lets a test step in before a commit. */
export function watched(store: Store) {
  const seen = { reads: 0, commits: [] as Commit[] };
  const hooks: { beforeCommit?: (commit: Commit) => Promise<void> } = {};
  const spy: Store = {
    kind: store.kind,
    get: (key) => read(store.get(key)),
    getMany: (keys) => read(store.getMany(keys)),
    scan: (range) => read(store.scan(range)),
    tail: (tail) => read(store.tail(tail)),
    commit: async (commit) => {
      await hooks.beforeCommit?.(commit);
      seen.commits.push(commit);
      return store.commit(commit);
    },
    problem: () => store.problem(),
    close: () => store.close(),
  };
  function read<T>(result: Promise<T>): Promise<T> {
    seen.reads++;
    return result;
  }
  return { store: spy, seen, hooks };
}

/** That indexes, totals and rows of all conversations tell the same story, and that nothing is left of deleted ones. */
export async function checkConsistency(store: Store): Promise<void> {
  const rows = await everyRow(store);
  const ids = new Map(
    [...rows].flatMap(([key, value]) => (/^i[du]\//.test(key) ? [[encodeNumber(Number(value)), key]] : [])),
  );
  const expected = new Map<string, string>();
  const totals = new Map<string, number>();
  const known = new Set<string>();
  for (const [key, value] of rows) {
    if (!/^c\/.{9}\/n$/.test(key)) continue;
    const { id, userId, resourceId, updatedAt } = (JSON.parse(value) as [Conversation])[0];
    const [, conversation] = key.split("/") as [string, string];
    const [table, memory] = (ids.get(conversation) ?? "").split("/") as [string, string];
    assert.ok(memory !== undefined, `${key} has no id row`);
    known.add(conversation);
    const at = `${encodeNumber(Date.parse(updatedAt))}/${conversation}`;
    const idKey =
      table === "iu" ? `iu/${memory}/${encodeText(id)}/${encodeShortText(userId)}` : `id/${memory}/${encodeText(id)}`;
    expected.set(idKey, String(Number.parseInt(conversation, 36)));
    expected.set(`u/${memory}/${encodeText(userId)}/${at}`, JSON.stringify(resourceId));
    expected.set(`r/${memory}/${encodeText(resourceId)}/${at}`, JSON.stringify(userId));
    for (const total of [`n/${memory}/u/${encodeText(userId)}`, `n/${memory}/r/${encodeText(resourceId)}`]) {
      totals.set(total, (totals.get(total) ?? 0) + 1);
    }
  }
  assert.deepEqual(
    new Map([...rows].filter(([key]) => /^(id|iu|u|r)\//.test(key)).sort()),
    new Map([...expected].sort()),
  );
  for (const [key, value] of rows) {
    const [table, conversation, kind] = key.split("/");
    assert.notEqual(table, "cc", "a copy is unfinished");
    if (table === "n" && conversation !== "h") assert.equal(Number(value), totals.get(key) ?? 0, key);
    if (table === "c") assert.ok(known.has(conversation!), `${key} belongs to no conversation`);
    if (table === "c" && kind === "i") {
      const message = rows.get(`c/${conversation}/m/${JSON.parse(value)}`);
      assert.equal(key, `c/${conversation}/i/${encodeText((JSON.parse(message ?? "{}") as Message).id)}`);
    }
  }
}
