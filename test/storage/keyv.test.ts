/** `host.keyv(namespace)`: plain Keyv over the store. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { pino } from "pino";
import { createHost } from "../../core/registry/host.ts";
import { createNamespaces } from "../../core/storage/keyv-namespace.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";

function opened(t: { after(callback: () => Promise<void>): void }) {
  const namespaces = createNamespaces();
  const host = createHost({ logger: pino({ level: "silent" }), env: {}, keyv: namespaces.keyv });
  t.after(() => host.close());
  const store = createMemoryStore();
  namespaces.connect(store);
  return { host, store };
}

test("namespaces of plugins: what a plugin sets is there, in its namespace alone, whatever the characters of its keys", async (t) => {
  const { host } = opened(t);
  const keys = ["a", "a b", "a/b", "a:b", "%", "_", "ü", "日本", "", "x".repeat(2_000)];
  const [one, two] = [host.keyv("one"), host.keyv("one:a")];
  for (const key of keys) await one.set(key, { key, list: [1, null, "\u001e\0"] });
  await two.set("b", 2);
  for (const key of keys) assert.deepEqual(await one.get(key), { key, list: [1, null, "\u001e\0"] });
  assert.equal(await two.get("a"), undefined);
  assert.equal(await host.keyv("one:a").get("b"), 2);
  assert.deepEqual(await one.getMany(["a", "none", "%"]).then((values) => values.map((value) => value !== undefined)), [
    true,
    false,
    true,
  ]);
  assert.deepEqual([await one.has("a"), await one.has("none")], [true, false]);
  assert.deepEqual([await one.delete("a"), await one.delete("a"), await one.get("a")], [true, false, undefined]);
});

test("namespaces of plugins: clear empties one namespace, of which others' names may be patterns", async (t) => {
  const { host } = opened(t);
  const names = ["a_b", "axb", "a%", "a", "a_b:c"];
  for (const name of names) await host.keyv(name).set("k", name);
  await host.keyv("a_b").clear();
  const left = await Promise.all(names.map((name) => host.keyv(name).get("k")));
  assert.deepEqual(left, [undefined, "axb", "a%", "a", "a_b:c"]);
});

test("namespaces of plugins: what has a time to live ends, and its rows go with later writes", async (t) => {
  const { host, store } = opened(t);
  const { now } = Date;
  let ahead = 0;
  t.mock.method(Date, "now", () => now() + ahead);
  const keyv = host.keyv("ttl");
  await keyv.set("short", 1, 600_000);
  await keyv.set("extended", 1, 600_000);
  await keyv.set("extended", 2, 3_600_000);
  await keyv.set("kept", 3);
  assert.equal(await keyv.get("short"), 1);
  ahead = 1_200_000;
  assert.equal(await keyv.has("short"), false);
  await keyv.set("later", 4, 60_000);
  assert.deepEqual(await keyv.getMany(["short", "extended", "kept", "later"]), [undefined, 2, 3, 4]);
  assert.deepEqual(
    (await store.scan({ prefix: "kv/", limit: 9 })).map(({ key }) => key),
    ["kv/ttl/extended", "kv/ttl/kept", "kv/ttl/later"],
  );
  assert.equal((await store.scan({ prefix: "kx/", limit: 9 })).length, 2);
});

test("namespaces of plugins: the iterator gives every key and value, also of more than a page", async (t) => {
  const { host } = opened(t);
  const keyv = host.keyv("many");
  await Promise.all(Array.from({ length: 450 }, (_, index) => keyv.set(`key ${index}`, index)));
  const seen = new Map<string, number>();
  for await (const [key, value] of keyv.iterator?.({}) ?? []) seen.set(key, value);
  assert.equal(seen.size, 450);
  for (const [key, value] of seen) assert.equal(key, `key ${value}`);
});

test("namespaces of plugins: what is asked for before the store is open waits for it", async (t) => {
  const namespaces = createNamespaces();
  const host = createHost({ logger: pino({ level: "silent" }), env: {}, keyv: namespaces.keyv });
  t.after(() => host.close());
  const set = host.keyv("early").set("k", 1);
  const store = createMemoryStore();
  assert.equal((await store.scan({ prefix: "kv/", limit: 1 })).length, 0);
  namespaces.connect(store);
  await set;
  assert.equal(await host.keyv("early").get("k"), 1);
});
