/** `exact` over many vectors: packed into blocks beside the rows, through crashes, other processes and deletions. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { ExactVectors } from "../../../core/memory/semantic/exact.ts";
import { createLayout, shortKey } from "../../../core/memory/semantic/layout.ts";
import { writeVector } from "../../../core/memory/semantic/rows.ts";
import { VectorCache } from "../../../core/memory/semantic/vector-cache.ts";
import type { VectorEntry } from "../../../core/plugin/plugin.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openPostgresStore } from "../../../core/storage/postgres-store.ts";
import { openSqliteStore } from "../../../core/storage/sqlite-store.ts";
import type { Commit, Row, Store } from "../../../core/storage/store.ts";
import { startPostgres } from "../../support/postgres.ts";
import { silent } from "../../support/providers.ts";
import { temporaryFolder } from "../../support/storage.ts";
import { createNumbers, randomVector } from "../../support/vectors.ts";

/** Null, which is said, where there is no PostgreSQL. */
const postgres = await startPostgres();
after(() => postgres?.close());

const LAYOUT = createLayout("default");
const KEYS = LAYOUT.of("u");
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
const everything = (vectors: ExactVectors) => vectors.search({ vector: query, owner: "u", ...ALL });

/** A store that counts the rows and the characters that it gives, and may refuse commits. */
function watched(inner: Store) {
  const seen = { rows: 0, characters: 0, largest: 0, commits: 0 };
  const count = (rows: readonly (Row | undefined)[]) => {
    const characters = rows.reduce((sum, row) => sum + (row?.value.length ?? 0), 0);
    seen.rows += rows.length;
    seen.characters += characters;
    seen.largest = Math.max(seen.largest, characters);
  };
  let refuse: (commit: Commit) => boolean = () => false;
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
    commit: async (commit) => {
      if (refuse(commit)) throw new Error("killed");
      seen.commits++;
      return inner.commit(commit);
    },
  };
  return {
    store,
    seen,
    refuseIf: (test: typeof refuse) => {
      refuse = test;
    },
  };
}

const blocksOf = (store: Store) => store.scan({ prefix: KEYS.blocks, limit: 1_000 });
const keysIn = (block: Row) => (JSON.parse(block.value) as [number, string[], string])[1];

test("search of an owner with fifty megabytes of vectors reads only candidates again, not all of them", async () => {
  const { store, seen } = watched(createMemoryStore());
  const vectors = new ExactVectors(store, LAYOUT, null);
  const many = Array.from({ length: 3_400 }, (_, number) => {
    const vector = new Float32Array(4_096);
    vector[number] = 1;
    return { owner: "u", conversation: "c", message: `m${number}`, vector };
  });
  await vectors.put(many);
  const search = (number: number) =>
    vectors.search({ vector: many[number]!.vector, owner: "u", limit: 5, threshold: 0.5 });
  assert.deepEqual(names(await search(1)), ["m1"]);
  await vectors.idle();
  seen.rows = 0;
  for (const number of [7, 1_900, 3_399]) assert.deepEqual(names(await search(number)), [`m${number}`]);
  assert.ok(seen.rows < 100, `${seen.rows} rows`);
});

test("vectors that were stored before there were blocks are found, and packed after the first search", async () => {
  const { store, seen } = watched(createMemoryStore());
  const old = entries(1_500);
  for (const row of old)
    await store.commit({ put: [[LAYOUT.vector(row), writeVector(row)]], add: [[KEYS.changes, 1]] });
  const vectors = new ExactVectors(store, LAYOUT, null);
  assert.deepEqual(names(await everything(vectors)), names(old));
  await vectors.idle();
  const packed = (await blocksOf(store)).flatMap(keysIn);
  assert.equal(packed.length, old.length);
  assert.equal(new Set(packed).size, old.length);
  seen.characters = 0;
  const again = new ExactVectors(store, LAYOUT, null);
  assert.equal((await again.search({ vector: query, owner: "u", limit: 5, threshold: -1 })).length, 5);
  const rows = old.reduce((sum, row) => sum + writeVector(row).length, 0);
  assert.ok(seen.characters < rows, `${seen.characters} characters, the rows have ${rows}`);
});

test("an owner with few vectors has no blocks", async () => {
  const { store } = watched(createMemoryStore());
  const vectors = new ExactVectors(store, LAYOUT, null);
  await vectors.put(entries(300));
  assert.equal((await everything(vectors)).length, 300);
  await vectors.idle();
  assert.deepEqual(await store.scan({ prefix: LAYOUT.packs, limit: 10 }), []);
});

test("a process that ends before any commit of packing loses no vector and finds none twice", async () => {
  const all = entries(1_400);
  for (let survivors = 0; ; survivors++) {
    const { store, refuseIf } = watched(createMemoryStore());
    const first = new ExactVectors(store, LAYOUT, null);
    let packing = 0;
    const isPacking = ({ put = [] }: Commit) => put.some(([key]) => key === KEYS.pack);
    refuseIf((commit) => isPacking(commit) && packing++ >= survivors);
    await first.put(all.slice(0, 1_000));
    await first.idle();
    await first.put(all.slice(1_000));
    await first.idle();
    const wasKilled = packing > survivors;
    refuseIf(() => false);
    const second = new ExactVectors(store, LAYOUT, null);
    assert.deepEqual(names(await everything(second)), names(all), `after ${survivors} commits`);
    await second.idle();
    const third = new ExactVectors(store, LAYOUT, null);
    assert.deepEqual(names(await everything(third)), names(all));
    const packed = (await blocksOf(store)).flatMap(keysIn);
    assert.equal(new Set(packed).size, packed.length, "in two blocks");
    if (!wasKilled) break;
    assert.ok(survivors < 20);
  }
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
          const url = await postgres.createDatabase();
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
  test(`what two processes write, replace and delete while both pack is what a search finds: ${engine}`, async (context) => {
    const stores = await pairOf(context);
    const both = stores.map((store) => new ExactVectors(store, LAYOUT, null));
    context.after(() => Promise.all(both.map((vectors) => vectors.idle())));
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
    for (const each of both) await each.idle();
    const afresh = new ExactVectors(stores[0], LAYOUT, null);
    assert.deepEqual(names(await everything(afresh)), [...model.keys()].sort());
    assert.ok((await blocksOf(stores[0])).length >= 3);
  });
}

/** A store that lets `action` happen right before the first call that is meant. */
function interrupted(
  inner: Store,
  isMeant: (call: { scan?: string; commit?: Commit }) => boolean,
  action: () => Promise<unknown>,
): Store {
  let isDone = false;
  const interrupt = async (call: { scan?: string; commit?: Commit }) => {
    if (isDone || !isMeant(call)) return;
    isDone = true;
    await action();
  };
  return {
    ...inner,
    scan: (range) => interrupt({ scan: range.prefix }).then(() => inner.scan(range)),
    commit: (commit) => interrupt({ commit }).then(() => inner.commit(commit)),
  };
}

const writesBlock = ({ commit }: { commit?: Commit }) =>
  commit?.put?.some(([key]) => key.startsWith(KEYS.blocks)) === true;

test("a search finds vectors that another process packs between its reads", async () => {
  const inner = createMemoryStore();
  const writer = new ExactVectors(inner, LAYOUT, null);
  const all = entries(900);
  await writer.put(all.slice(0, 600));
  await writer.idle();
  const notes = async () => (await inner.scan({ prefix: KEYS.recent, limit: 1_000 })).length;
  await writer.put(all.slice(600, 600 + 255 - (await notes())));
  assert.equal(await notes(), 255);
  const written = 600 + 255;
  const store = interrupted(
    inner,
    ({ scan }) => scan === KEYS.recent,
    async () => {
      await writer.put(all.slice(written));
      await new ExactVectors(inner, LAYOUT, null).put([entry(900)]);
      const packer = new ExactVectors(inner, LAYOUT, null);
      await everything(packer);
      await packer.idle();
      assert.ok((await notes()) < 255);
    },
  );
  const found = new Set(names(await everything(new ExactVectors(store, LAYOUT, null))));
  assert.deepEqual(
    all.slice(0, written).filter(({ message }) => !found.has(message)),
    [],
  );
});

test("a vector that is replaced while it is being packed is found by what it is now", async () => {
  const inner = createMemoryStore();
  const replaced = { ...entry(3), conversation: "late", vector: query };
  const note = KEYS.recent + shortKey(replaced);
  const store = interrupted(
    inner,
    (call) => writesBlock(call) && call.commit?.delete?.includes(note) === true,
    () => new ExactVectors(inner, LAYOUT, null).put([replaced]),
  );
  const vectors = new ExactVectors(store, LAYOUT, null);
  const far = () => randomVector(next, DIMENSIONS).map((number, at) => -Math.abs(number) * Math.sign(query[at]!));
  await vectors.put(entries(600).map((one) => ({ ...one, vector: far() })));
  await vectors.idle();
  await vectors.put(entries(300).map((one) => ({ ...one, conversation: "late", vector: far() })));
  await vectors.idle();
  assert.ok((await blocksOf(inner)).flatMap(keysIn).includes(shortKey(replaced)), "packed");
  const hits = await new ExactVectors(inner, LAYOUT, null).search({
    vector: query,
    owner: "u",
    limit: 1,
    threshold: 0,
  });
  assert.deepEqual(names(hits), ["m3"]);
});

test("of two processes that pack the same vectors one gives way", async () => {
  const inner = createMemoryStore();
  const other = new ExactVectors(inner, LAYOUT, null);
  const old = entries(1_300);
  // Their keys are among the first, which both pack first.
  const recent = entries(300).map((one) => ({ ...one, conversation: "c0", message: `m0 ${one.message}` }));
  const store = interrupted(inner, writesBlock, async () => {
    await everything(other);
    await other.idle();
    await other.put(recent);
    await other.idle();
  });
  for (const row of old) {
    await inner.commit({ put: [[LAYOUT.vector(row), writeVector(row)]], add: [[KEYS.changes, 1]] });
  }
  const vectors = new ExactVectors(store, LAYOUT, null);
  await everything(vectors);
  await vectors.idle();
  const packed = (await blocksOf(inner)).flatMap(keysIn);
  assert.equal(new Set(packed).size, packed.length, "in two blocks");
  const found = await everything(new ExactVectors(inner, LAYOUT, null));
  assert.deepEqual(names(found), names([...old, ...recent]));
});

test("deleted vectors take no place among the hits, and are removed from the blocks and by the next process after a crash", async () => {
  const store = createMemoryStore();
  const near = Array.from({ length: 900 }, (_, number) => ({ ...entry(number), conversation: "near", vector: query }));
  const far = entries(300);
  const vectors = new ExactVectors(store, LAYOUT, null);
  await vectors.put([...near, ...far.map((one) => ({ ...one, message: `far ${one.message}` }))]);
  await vectors.idle();
  await vectors.search({ vector: query, owner: "u", limit: 1, threshold: -1 });
  await vectors.delete([{ owner: "u", conversation: "near" }]);
  for (const each of [vectors, new ExactVectors(store, LAYOUT, null)]) {
    const hits = await each.search({ vector: query, owner: "u", limit: 50, threshold: -1 });
    assert.equal(hits.length, 50);
    assert.ok(hits.every(({ message }) => message.startsWith("far")));
  }
  const hasNear = async () => (await blocksOf(store)).flatMap(keysIn).some((key) => key.startsWith("near/"));
  assert.ok(await hasNear());
  const after = new ExactVectors(store, LAYOUT, null);
  after.start();
  await after.idle();
  assert.ok(!(await hasNear()));
  assert.deepEqual(await store.scan({ prefix: LAYOUT.deletions, limit: 1 }), []);
  assert.equal((await everything(new ExactVectors(store, LAYOUT, null))).length, far.length);
});

test("a vector that is deleted while it is being packed is in no block once the deletion is cleaned up", async () => {
  const inner = createMemoryStore();
  const deleted = entry(3);
  const store = interrupted(inner, writesBlock, async () => {
    const other = new ExactVectors(inner, LAYOUT, null);
    await other.delete([deleted]);
    other.start();
    await other.idle();
    assert.deepEqual(await inner.scan({ prefix: LAYOUT.deletions, limit: 1 }), []);
  });
  for (const row of entries(600)) {
    await inner.commit({ put: [[LAYOUT.vector(row), writeVector(row)]], add: [[KEYS.changes, 1]] });
  }
  const vectors = new ExactVectors(store, LAYOUT, null);
  await everything(vectors);
  await vectors.idle();
  const packed = (await blocksOf(inner)).flatMap(keysIn);
  assert.ok(packed.length >= 512, `${packed.length} are packed`);
  assert.ok(!packed.includes(shortKey(deleted)));
});

test("the vectors of many owners are read in small pieces, and others get their turn between them", async () => {
  const { store, seen } = watched(createMemoryStore());
  const writer = new ExactVectors(store, LAYOUT, null);
  for (let owner = 0; owner < 30; owner++) await writer.put(entries(600, `u${owner}`));
  await writer.idle();
  seen.largest = 0;
  let turns = 0;
  const count = () => {
    turns++;
    timer = setImmediate(count);
  };
  let timer = setImmediate(count);
  const reader = new ExactVectors(store, LAYOUT, null, { cache: new VectorCache(200_000) });
  const hits = await reader.search({ vector: query, limit: 20, threshold: -1 });
  clearImmediate(timer);
  assert.equal(hits.length, 20);
  assert.ok(seen.largest < 2.5 * 1024 * 1024, `${seen.largest} characters at once`);
  assert.ok(turns >= 90, `${turns} turns for 30 owners with three pieces each`);
});

test("a search of one owner's conversation, or of everybody, is the same whether the vectors are in memory or not", async () => {
  const store = createMemoryStore();
  const all = ["u", "v"].flatMap((owner) => entries(700, owner));
  const writer = new ExactVectors(store, LAYOUT, null);
  await writer.put(all);
  await writer.idle();
  for (const cache of [new VectorCache(), new VectorCache(0), new VectorCache(60_000)]) {
    const vectors = new ExactVectors(store, LAYOUT, null, { cache });
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
  const writer = new ExactVectors(store, LAYOUT, null);
  await writer.put([...entries(1_200), { ...entry(0), conversation: "short" }]);
  await writer.idle();
  const vectors = new ExactVectors(store, LAYOUT, null);
  seen.rows = 0;
  const hits = await vectors.search({ vector: query, owner: "u", conversation: "short", ...ALL });
  assert.deepEqual(names(hits), ["m0"]);
  assert.ok(seen.rows <= 2, `${seen.rows} rows`);
});

test("a search goes on after the thread that compares vectors has ended", async () => {
  const store = createMemoryStore();
  const cache = new VectorCache();
  const vectors = new ExactVectors(store, LAYOUT, null, { cache });
  const all = entries(700);
  await vectors.put(all);
  await vectors.idle();
  assert.equal((await everything(vectors)).length, all.length);
  // What it cannot read ends only the call.
  await assert.rejects(cache.thread.add("broken", { blocks: ["no block"] }), /the thread that compares vectors failed/);
  assert.equal((await everything(vectors)).length, all.length);
  await cache.thread.terminate();
  assert.equal((await everything(vectors)).length, all.length);
});
