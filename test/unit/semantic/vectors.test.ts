/** `exact`: the conformance suite over a store, and what it keeps in memory. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createExactVectors, createLayout } from "../../../core/memory/semantic/exact.ts";
import { createVectorCache } from "../../../core/memory/semantic/vector-cache.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { vectorsSuite } from "../../suites/vectors.suite.ts";

const LAYOUT = createLayout("default");
const cached = (store: Store, bytes: number) =>
  createExactVectors(store, LAYOUT, null, { cache: createVectorCache(bytes) });

vectorsSuite("exact", async () => createExactVectors(createMemoryStore(), LAYOUT, null));
vectorsSuite("exact with a cache for nothing", async () => cached(createMemoryStore(), 0));

/** A store that counts its scans. */
function counting(): { store: Store; scans: () => number } {
  const inner = createMemoryStore();
  let scans = 0;
  const store: Store = {
    ...inner,
    scan: (range) => {
      scans++;
      return inner.scan(range);
    },
  };
  return { store, scans: () => scans };
}

const unit = (place: number): Float32Array => {
  const vector = new Float32Array(64);
  vector[place] = 1;
  return vector;
};
const entry = (owner: string, message: string, place: number) => ({
  owner,
  conversation: "c",
  message,
  vector: unit(place),
});

test("an owner's vectors are read once, and what this process writes joins them", async () => {
  const { store, scans } = counting();
  const vectors = createExactVectors(store, LAYOUT, null);
  await vectors.put([entry("u", "a", 1)]);
  const search = (place: number) => vectors.search({ vector: unit(place), owner: "u", limit: 10, threshold: 0.5 });
  assert.equal((await search(1)).length, 1);
  const before = scans();
  for (let round = 0; round < 5; round++) {
    await vectors.put([entry("u", `b${round}`, 2)]);
    assert.equal((await search(2)).length, round + 1);
  }
  assert.equal(scans(), before);
});

test("what another process writes or deletes is seen by the next search", async () => {
  const store = createMemoryStore();
  const [here, there] = [createExactVectors(store, LAYOUT, null), createExactVectors(store, LAYOUT, null)];
  const search = async () =>
    (await here.search({ vector: unit(1), owner: "u", limit: 10, threshold: 0.5 })).map(({ message }) => message);
  await here.put([entry("u", "a", 1)]);
  assert.deepEqual(await search(), ["a"]);
  await there.put([entry("u", "b", 1)]);
  assert.deepEqual((await search()).sort(), ["a", "b"]);
  await Promise.all([here.put([entry("u", "c", 1)]), there.put([entry("u", "d", 1)])]);
  assert.deepEqual((await search()).sort(), ["a", "b", "c", "d"]);
  await there.delete([{ owner: "u", conversation: "c", message: "a" }]);
  assert.deepEqual((await search()).sort(), ["b", "c", "d"]);
});

test("writes of two processes in any order are never missed", async () => {
  const store = createMemoryStore();
  const slow: Store = {
    ...store,
    commit: async (commit) => {
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
      const revision = await store.commit(commit);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
      return revision;
    },
    scan: async (range) => {
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
      return store.scan(range);
    },
  };
  const both = [createExactVectors(slow, LAYOUT, null), createExactVectors(slow, LAYOUT, null)];
  const written = new Set<string>();
  const write = async (index: number) => {
    for (let round = 0; round < 40; round++) {
      const message = `${index}-${round}`;
      await both[index % 2]!.put([entry("u", message, 1)]);
      written.add(message);
      const known = [...written];
      const hits = await both[(index + round) % 2]!.search({
        vector: unit(1),
        owner: "u",
        limit: 1_000,
        threshold: 0.5,
      });
      const found = new Set(hits.map(({ message: id }) => id));
      assert.deepEqual(
        known.filter((id) => !found.has(id)),
        [],
      );
    }
  };
  await Promise.all([0, 1, 2, 3].map(write));
});

test("the cache gives up the owner that was not used for longest, and stays within its bound", async () => {
  const { store, scans } = counting();
  // 64 dimensions are 64 bytes and a factor, reserved for 16 vectors at a time: three owners fit.
  const vectors = cached(store, 3 * (16 * 68 + 220 + 1_000) + 100);
  const search = (owner: string) => vectors.search({ vector: unit(1), owner, limit: 10, threshold: 0.5 });
  const owners = ["a", "b", "c", "d"];
  for (const owner of owners) await vectors.put([entry(owner, "m", 1)]);
  for (const owner of owners) assert.equal((await search(owner)).length, 1);
  const before = scans();
  await search("d");
  await search("c");
  assert.equal(scans(), before, "still in memory");
  await search("a");
  assert.equal(scans(), before + 1, "given up");
});

test("an owner with more vectors than fit is searched all the same, and not kept", async () => {
  const store = createMemoryStore();
  const vectors = cached(store, 20_000);
  const many = Array.from({ length: 1_200 }, (_, count) => entry("u", `m${count}`, count % 64));
  await vectors.put(many);
  const hits = await vectors.search({ vector: unit(5), owner: "u", limit: 100, threshold: 0.5 });
  assert.equal(hits.length, many.filter(({ vector }) => vector[5] === 1).length);
});

test("owners and conversations whose names begin alike, or are longer than a key, do not mix", async () => {
  const vectors = createExactVectors(createMemoryStore(), LAYOUT, null);
  const long = "ö".repeat(256);
  const names = ["a", "ab", "a/b", "a%2fb", long, `${long.slice(1)}x`];
  for (const name of names) await vectors.put([{ owner: name, conversation: name, message: name, vector: unit(1) }]);
  for (const name of names) {
    const hits = await vectors.search({ vector: unit(1), owner: name, limit: 10, threshold: 0.5 });
    assert.deepEqual(hits, [{ owner: name, conversation: name, message: name, score: 1 }]);
  }
  await vectors.delete([{ owner: "a", conversation: "a" }]);
  assert.equal((await vectors.search({ vector: unit(1), limit: 10, threshold: 0.5 })).length, names.length - 1);
});
