/** `exact` over many vectors, with other processes and deletions. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { createExactVectors, createLayout, type VectorIndex } from "../../../core/memory/semantic/exact.ts";
import { createVectorCache } from "../../../core/memory/semantic/vector-cache.ts";
import type { VectorEntry } from "../../../core/plugin/plugin.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openPostgresStore } from "../../../core/storage/postgres-store.ts";
import { openSqliteStore } from "../../../core/storage/sqlite-store.ts";
import type { Row, Store } from "../../../core/storage/store.ts";
import { sharedPostgres } from "../../support/postgres.ts";
import { silent } from "../../support/providers.ts";
import { temporaryFolder } from "../../support/storage.ts";
import { createNumbers, randomVector } from "../../support/vectors.ts";

/** Null, which is said, where there is no PostgreSQL. */
const postgres = await sharedPostgres();
after(() => postgres?.close());

const LAYOUT = createLayout("default");
const DIMENSIONS = 16;
const ALL = { limit: 10_000, threshold: -1 };

const next = createNumbers(7);
const entry = (number: number, owner = "u"): VectorEntry => ({
  owner,
  conversation: `c${number % 9}`,
  message: `m${number}`,
  vector: randomVector(next, DIMENSIONS),
});
const entries = (count: number, owner = "u") => Array.from({ length: count }, (_, number) => entry(number, owner));
const names = (hits: readonly { message: string }[]) => hits.map(({ message }) => message).sort();
const query = randomVector(next, DIMENSIONS);
const everything = (vectors: VectorIndex) => vectors.search({ vector: query, owner: "u", ...ALL });

/** A store that counts the rows and the characters that it gives. */
function watched(inner: Store) {
  const seen = { rows: 0, characters: 0, largest: 0 };
  const count = (rows: readonly (Row | undefined)[]) => {
    const characters = rows.reduce((sum, row) => sum + (row?.value.length ?? 0), 0);
    seen.rows += rows.length;
    seen.characters += characters;
    seen.largest = Math.max(seen.largest, characters);
  };
  const store: Store = {
    ...inner,
    get: async (key) => {
      const row = await inner.get(key);
      count([row]);
      return row;
    },
    getMany: async (keys, longest) => {
      const rows = await inner.getMany(keys, longest);
      count(rows);
      return rows;
    },
    scan: async (range) => {
      const rows = await inner.scan(range);
      count(rows);
      return rows;
    },
  };
  return { store, seen };
}

test("search of an owner with fifty megabytes of vectors reads only candidates again, not all of them", async () => {
  const { store, seen } = watched(createMemoryStore());
  const vectors = createExactVectors(store, LAYOUT, null);
  const many = Array.from({ length: 3_400 }, (_, number) => {
    const vector = new Float32Array(4_096);
    vector[number] = 1;
    return { owner: "u", conversation: "c", message: `m${number}`, vector };
  });
  await vectors.put(many);
  const search = (number: number) =>
    vectors.search({ vector: many[number]!.vector, owner: "u", limit: 5, threshold: 0.5 });
  assert.deepEqual(names(await search(1)), ["m1"]);
  seen.rows = 0;
  for (const number of [7, 1_900, 3_399]) assert.deepEqual(names(await search(number)), [`m${number}`]);
  assert.ok(seen.rows < 100, `${seen.rows} rows`);
});

/** A store for each of two processes. In memory, and on a file that has one owner, both have the same, whose calls mix. */
const PAIRS: Record<string, (context: TestContext) => Promise<[Store, Store]>> = {
  "memory:": async () => {
    const store = pausing(createMemoryStore());
    return [store, store];
  },
  "sqlite:": async (context) => {
    const file = join(await temporaryFolder(context), "vectors.db");
    const store = await openSqliteStore({ file, synchronous: "normal", logger: silent });
    context.after(() => store.close());
    return [store, store];
  },
  ...(postgres === null
    ? {}
    : {
        "postgres:": async (context: TestContext): Promise<[Store, Store]> => {
          const url = await postgres.createDatabase(context);
          const first = await openPostgresStore(url, { logger: silent });
          const second = await openPostgresStore(url, { logger: silent });
          context.after(() => Promise.all([first.close(), second.close()]));
          return [first, second];
        },
      }),
};

/** Lets others go on before every call. */
function pausing(inner: Store): Store {
  const pause = () => new Promise(setImmediate);
  return {
    ...inner,
    get: (key) => pause().then(() => inner.get(key)),
    getMany: (keys, longest) => pause().then(() => inner.getMany(keys, longest)),
    scan: (range) => pause().then(() => inner.scan(range)),
    commit: (commit) => pause().then(() => inner.commit(commit)),
  };
}

for (const [engine, pairOf] of Object.entries(PAIRS)) {
  test(`what two processes write, replace and delete is what a search of either finds: ${engine}`, async (context) => {
    const stores = await pairOf(context);
    const both = stores.map((store) => createExactVectors(store, LAYOUT, null));
    const model = new Map<string, VectorEntry>();
    for (let round = 0; round < 30; round++) {
      const vectors = both[round % 2]!;
      const written = Array.from({ length: 60 }, () => entry(Math.floor(next() * 1_500)));
      const distinct = [...new Map(written.map((one) => [one.message, one])).values()];
      const searching = everything(both[(round + 1) % 2]!);
      await vectors.put(distinct);
      for (const one of distinct) model.set(one.message, one);
      const gone = [...model.values()].filter(() => next() < 0.02);
      await vectors.delete(gone);
      for (const { message } of gone) model.delete(message);
      await searching;
      for (const each of both) {
        const hits = await everything(each);
        assert.deepEqual(names(hits), [...model.keys()].sort());
        for (const { message, score } of hits) {
          const exact = model.get(message)!.vector.reduce((sum, number, at) => sum + number * query[at]!, 0);
          assert.ok(Math.abs(score - exact) < 1e-5, `${message}: ${score}, not ${exact}`);
        }
      }
    }
    const afresh = createExactVectors(stores[0], LAYOUT, null);
    assert.deepEqual(names(await everything(afresh)), [...model.keys()].sort());
  });
}

test("deleted vectors take no place among the hits of the process that deleted them, nor of another", async () => {
  const store = createMemoryStore();
  const near = Array.from({ length: 900 }, (_, number) => ({ ...entry(number), conversation: "near", vector: query }));
  const far = entries(300);
  const vectors = createExactVectors(store, LAYOUT, null);
  await vectors.put([...near, ...far.map((one) => ({ ...one, message: `far ${one.message}` }))]);
  await vectors.search({ vector: query, owner: "u", limit: 1, threshold: -1 });
  await vectors.delete([{ owner: "u", conversation: "near" }]);
  for (const each of [vectors, createExactVectors(store, LAYOUT, null)]) {
    const hits = await each.search({ vector: query, owner: "u", limit: 50, threshold: -1 });
    assert.equal(hits.length, 50);
    assert.ok(hits.every(({ message }) => message.startsWith("far")));
  }
  assert.equal((await everything(createExactVectors(store, LAYOUT, null))).length, far.length);
});

test("the vectors of many owners are read in small pieces, and others get their turn between them", async () => {
  const { store, seen } = watched(createMemoryStore());
  const writer = createExactVectors(store, LAYOUT, null);
  for (let owner = 0; owner < 30; owner++) await writer.put(entries(600, `u${owner}`));
  seen.largest = 0;
  let turns = 0;
  const count = () => {
    turns++;
    timer = setImmediate(count);
  };
  let timer = setImmediate(count);
  const reader = createExactVectors(store, LAYOUT, null, { cache: createVectorCache(200_000) });
  const hits = await reader.search({ vector: query, limit: 20, threshold: -1 });
  clearImmediate(timer);
  assert.equal(hits.length, 20);
  assert.ok(seen.largest < 2.5 * 1024 * 1024, `${seen.largest} characters at once`);
  assert.ok(turns >= 90, `${turns} turns for 30 owners with three reads each`);
});

test("a search of one owner's conversation, or of everybody, is the same whether the vectors are in memory or not", async () => {
  const store = createMemoryStore();
  const all = ["u", "v"].flatMap((owner) => entries(700, owner));
  const writer = createExactVectors(store, LAYOUT, null);
  await writer.put(all);
  for (const cache of [createVectorCache(), createVectorCache(0), createVectorCache(60_000)]) {
    const vectors = createExactVectors(store, LAYOUT, null, { cache });
    for (let time = 0; time < 2; time++) {
      const one = await vectors.search({ vector: query, owner: "v", conversation: "c3", ...ALL });
      const wanted = all.filter(({ owner, conversation }) => owner === "v" && conversation === "c3");
      assert.deepEqual(names(one), names(wanted));
      assert.ok(one.every(({ owner, conversation }) => owner === "v" && conversation === "c3"));
      assert.equal((await vectors.search({ vector: query, ...ALL })).length, all.length);
    }
  }
});

test("a search of one conversation reads no other of the owner's conversations when it is short", async () => {
  const { store, seen } = watched(createMemoryStore());
  const writer = createExactVectors(store, LAYOUT, null);
  await writer.put([...entries(1_200), { ...entry(0), conversation: "short" }]);
  const vectors = createExactVectors(store, LAYOUT, null);
  seen.rows = 0;
  const hits = await vectors.search({ vector: query, owner: "u", conversation: "short", ...ALL });
  assert.deepEqual(names(hits), ["m0"]);
  assert.ok(seen.rows <= 2, `${seen.rows} rows`);
});

test("a search after a write of another process reads that vector, and not all of the owner again", async () => {
  const { store, seen } = watched(createMemoryStore());
  const vectors = createExactVectors(store, LAYOUT, null);
  const long = randomVector(next, 512);
  const all = entries(1_200).map((one) => ({ ...one, vector: randomVector(next, 512) }));
  await vectors.put(all);
  const characters = async () => {
    seen.characters = 0;
    const [hit] = await vectors.search({ vector: long, owner: "u", limit: 1, threshold: -1 });
    return { read: seen.characters, nearest: hit?.message };
  };
  await characters();
  const before = await characters();
  const nearest = { ...entry(1_200), vector: long };
  await createExactVectors(store, LAYOUT, null).put([nearest]);
  const after = await characters();
  assert.equal(after.nearest, nearest.message);
  const [row] = await store.scan({ prefix: LAYOUT.vector(nearest), limit: 1 });
  // Of every other row an excerpt at most.
  assert.ok(
    after.read <= before.read + row!.value.length * 2 + all.length * 128,
    `${after.read}, before ${before.read}`,
  );
});
