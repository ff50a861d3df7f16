/** Indexing and search of one memory: in the commits of the messages, through crashes, outages and changes of the model. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Manifest } from "../../../core/manifest/manifest.ts";
import { createHashEmbedding } from "../../../core/memory/embedding/open.ts";
import { createExactVectors, createLayout } from "../../../core/memory/semantic/exact.ts";
import { openSemantics, reindex } from "../../../core/memory/semantic/open.ts";
import {
  createDraft,
  type MessagePlace,
  type SearchedMessage,
  type Semantic,
} from "../../../core/memory/semantic/semantic.ts";
import type { VectorEntry, Vectors } from "../../../core/plugin/plugin.ts";
import { createHost } from "../../../core/registry/host.ts";
import { Registry, type RegistryEntry } from "../../../core/registry/registry.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import type { SemanticMemoryManifest } from "../../../generated/types.ts";
import { silent } from "../../support/providers.ts";

const LAYOUT = createLayout("default");
const HASH = createHashEmbedding();

interface Opening {
  store?: Store;
  semantic?: Partial<SemanticMemoryManifest> | undefined;
  /** Of the embedding plugin `mine`. */
  embed?: (texts: string[]) => Promise<Float32Array[]>;
  model?: string;
  dimensions?: number;
  /** Of the vectors plugin `mine`. */
  vectors?: Vectors;
}

/** A process: its memory `default` with `local/hash` and `exact` unless said otherwise. */
async function open(context: Pick<TestContext, "after">, opening: Opening = {}) {
  const store = opening.store ?? createMemoryStore();
  const host = createHost({ logger: silent, env: {} });
  context.after(() => host.close());
  const { embed = HASH.embed, model, dimensions = 512, vectors } = opening;
  const entries: RegistryEntry[] = [
    {
      kind: "embedding",
      name: "mine",
      file: "/mine.ts",
      plugin: { kind: "embedding", create: () => ({ dimensions, model, embed: (texts) => embed(texts) }) },
    },
  ];
  if (vectors !== undefined) {
    entries.push({ kind: "vectors", name: "mine", file: "/v.ts", plugin: { kind: "vectors", create: () => vectors } });
  }
  const semantic = { embedding: "local/hash", vectors: "exact", limit: 5, threshold: 0.7, ...opening.semantic };
  const memory = { default: { contextLimit: 10, ...("semantic" in opening && !opening.semantic ? {} : { semantic }) } };
  const models = {
    embedding: () => {
      throw new Error("no models here");
    },
  };
  const opened = await openSemantics({ memory } as unknown as Manifest, {
    store,
    registry: new Registry(entries),
    host,
    models,
  });
  return { ...opened, store, host, semantic: opened.semantics.get("default")! };
}

const place = (message: string, conversation = "c", owner = "u"): MessagePlace => ({ owner, conversation, message });

/** What the memory domain does: the message and what is said of it to the index in one commit. */
async function save(store: Store, semantic: Semantic, at: MessagePlace, text: string): Promise<void> {
  const draft = createDraft();
  draft.put.push([`message/${at.conversation}/${at.message}`, JSON.stringify(text)]);
  semantic.saved(draft, at, text);
  await store.commit(draft);
  semantic.committed();
}

const find = async (
  semantic: Semantic,
  text: string,
  scope: { owner?: string; conversation?: string } = { owner: "u" },
) => (await semantic.search({ text, limit: 10, threshold: 0.5, ...scope })).map(({ message }) => message);

test("what was saved is found by the search that follows", async (context) => {
  const { store, semantic } = await open(context);
  await save(store, semantic, place("a"), "the ferry leaves at noon");
  await save(store, semantic, place("b"), "bread and butter");
  const [hit, ...others] = await semantic.search({
    text: "the ferry leaves at noon",
    owner: "u",
    limit: 10,
    threshold: 0.7,
  });
  assert.deepEqual({ ...hit, score: 1 }, { ...place("a"), score: 1 });
  assert.ok(hit!.score > 0.999 && hit!.score <= 1);
  assert.deepEqual(others, []);
  assert.equal(
    (await semantic.search({ text: "the ferry leaves at noon", owner: "u", limit: 10, threshold: 1 })).length,
    1,
  );
});

test("a text waits in the commit of its message, and the next process embeds what a crash left waiting", async (context) => {
  const store = createMemoryStore();
  const first = await open(context, { store });
  const draft = createDraft();
  first.semantic.saved(draft, place("a"), "the ferry leaves at noon");
  await store.commit(draft);
  // The first process ends here: it has not even been told that the commit is done.
  assert.equal((await store.scan({ prefix: LAYOUT.waiting(), limit: 10 })).length, 1);
  const second = await open(context, { store });
  second.start();
  assert.deepEqual(await find(second.semantic, "ferry leaves noon"), ["a"]);
  assert.deepEqual(await store.scan({ prefix: LAYOUT.waiting(), limit: 10 }), []);
});

test("a message that is saved again is found by its new text alone", async (context) => {
  const { store, semantic } = await open(context);
  await save(store, semantic, place("a"), "the ferry leaves at noon");
  assert.deepEqual(await find(semantic, "ferry leaves noon"), ["a"]);
  await save(store, semantic, place("a"), "bread and butter");
  assert.deepEqual(await find(semantic, "ferry leaves noon"), []);
  assert.deepEqual(await find(semantic, "bread and butter"), ["a"]);
  await save(store, semantic, place("a"), "");
  assert.deepEqual(await find(semantic, "bread and butter"), []);
});

test("deleting messages or a conversation takes vectors and waiting texts in the same commit", async (context) => {
  const { store, semantic, host } = await open(context);
  for (const [message, conversation] of [
    ["a", "c"],
    ["b", "c"],
    ["a", "cc"],
    ["b", "d"],
  ] as const) {
    await save(store, semantic, place(message, conversation), "the ferry leaves at noon");
  }
  assert.equal((await find(semantic, "ferry leaves noon")).length, 4);
  const one = createDraft();
  semantic.deleted(one, [place("a", "c")]);
  await store.commit(one);
  assert.equal((await find(semantic, "ferry leaves noon")).length, 3);
  await host.close();
  // Nobody embeds any more: this one stays waiting.
  await save(store, semantic, place("z", "c"), "the ferry leaves at noon");
  const whole = createDraft();
  semantic.conversationDeleted(whole, "u", "c");
  await store.commit(whole);
  assert.deepEqual(await store.scan({ prefix: LAYOUT.waiting(), limit: 10 }), []);
  const left = await store.scan({ prefix: LAYOUT.vectors(), limit: 10 });
  assert.deepEqual(
    left.map(({ value }) => JSON.parse(value).slice(1, 3)),
    [
      ["cc", "a"],
      ["d", "b"],
    ],
  );
});

test("a message deleted while its text is being embedded leaves no vector behind", async (context) => {
  const gate = createGate();
  const { store, semantic } = await open(context, {
    semantic: { embedding: "mine" },
    embed: async (texts) => {
      gate.entered();
      await gate.opened;
      return HASH.embed(texts);
    },
  });
  await save(store, semantic, place("a"), "the ferry leaves at noon");
  await save(store, semantic, place("b"), "the ferry leaves at noon");
  await gate.inside;
  const draft = createDraft();
  semantic.deleted(draft, [place("a")]);
  await store.commit(draft);
  gate.open();
  assert.deepEqual(await find(semantic, "ferry leaves noon"), ["b"]);
  assert.equal((await store.scan({ prefix: LAYOUT.vectors(), limit: 10 })).length, 1);
});

/** Holds whoever enters until it is opened. */
function createGate() {
  let open = () => {};
  let entered = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const inside = new Promise<void>((resolve) => {
    entered = resolve;
  });
  return { open: () => open(), entered: () => entered(), opened, inside };
}

test("messages of others, of other conversations, and nobody's in particular", async (context) => {
  const { store, semantic } = await open(context);
  await save(store, semantic, place("a", "c", "u"), "the ferry leaves at noon");
  await save(store, semantic, place("b", "d", "u"), "the ferry leaves at noon");
  await save(store, semantic, place("c", "e", "v"), "the ferry leaves at noon");
  assert.deepEqual((await find(semantic, "ferry leaves noon")).sort(), ["a", "b"]);
  assert.deepEqual(await find(semantic, "ferry leaves noon", { owner: "u", conversation: "d" }), ["b"]);
  assert.deepEqual(await find(semantic, "ferry leaves noon", { owner: "v" }), ["c"]);
  assert.deepEqual((await find(semantic, "ferry leaves noon", {})).sort(), ["a", "b", "c"]);
  assert.deepEqual(await find(semantic, "...", {}), [], "without a word nothing is similar");
});

test("while the embedding is out of order messages are saved, searches answer 503, and all is caught up with after", async (context) => {
  let broken = true;
  const { store, semantic } = await open(context, {
    semantic: { embedding: "mine" },
    embed: async (texts) => {
      if (broken) throw new Error("connection refused");
      return HASH.embed(texts);
    },
  });
  await save(store, semantic, place("a"), "the ferry leaves at noon");
  await assert.rejects(find(semantic, "ferry"), { name: "ServiceError", kind: "unavailable" });
  broken = false;
  const deadline = performance.now() + 60_000;
  while ((await find(semantic, "ferry leaves noon")).length === 0) {
    assert.ok(performance.now() < deadline, "never caught up");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
});

test("one text that the model refuses does not keep the others from being found", async (context) => {
  const refusing = {
    specificationVersion: "v3" as const,
    provider: "up",
    modelId: "m",
    maxEmbeddingsPerCall: 100,
    supportsParallelCalls: false,
    doEmbed: async ({ values }: { values: string[] }) => {
      if (values.some((text) => text.includes("poison"))) throw Object.assign(new Error("no"), { statusCode: 400 });
      return { embeddings: (await HASH.embed(values)).map((vector) => [...vector]), warnings: [] };
    },
  };
  const store = createMemoryStore();
  const host = createHost({ logger: silent, env: {} });
  context.after(() => host.close());
  const semantic = { embedding: "up/m", vectors: "exact", limit: 5, threshold: 0.7 };
  const manifest = { memory: { default: { contextLimit: 10, semantic } } } as unknown as Manifest;
  const models = { embedding: () => refusing };
  const opened = await openSemantics(manifest, { store, registry: new Registry([]), host, models });
  const index = opened.semantics.get("default")!;
  const texts = Array.from({ length: 20 }, (_, count) => (count === 7 ? "poison" : `the ferry leaves at noon`));
  await Promise.all(texts.map((text, count) => save(store, index, place(`m${count}`), text)));
  const hits = await index.search({ text: "the ferry leaves at noon", owner: "u", limit: 100, threshold: 0.5 });
  assert.equal(hits.length, 19);
  const waiting = await store.scan({ prefix: LAYOUT.waiting(), limit: 10 });
  assert.equal(waiting.length, 1, "the refused one waits for another model");
  assert.equal(JSON.parse((await store.get(LAYOUT.state))!.value).dimensions, 512);
  await assert.rejects(index.search({ text: "poison", owner: "u", limit: 1, threshold: 0 }), { kind: "invalid_input" });
});

test("an index made with another embedding, model, length or vectors is an error that names penstock reindex", async (context) => {
  const changes: [string, Opening][] = [
    [
      "local/hash (512 dimensions) in exact, and the manifest says plugin mine (512",
      { semantic: { embedding: "mine" } },
    ],
    [
      "in exact, and the manifest says local/hash (512 dimensions) in mine",
      { semantic: { vectors: "mine" }, vectors: remote() },
    ],
  ];
  for (const [expected, opening] of changes) {
    const store = createMemoryStore();
    assert.deepEqual((await open(context, { store })).problems, []);
    assert.deepEqual((await open(context, { store })).problems, [], "the same again");
    const { problems, semantics } = await open(context, { ...opening, store });
    assert.equal(problems.length, 1);
    assert.equal(problems[0]!.severity, "error");
    assert.deepEqual(problems[0]!.path, ["memory", "default", "semantic", "embedding"]);
    assert.ok(problems[0]!.message.includes(expected), problems[0]!.message);
    assert.match(problems[0]!.message, /run penstock reindex$/);
    assert.equal(semantics.size, 0);
  }
  const store = createMemoryStore();
  const mine = { semantic: { embedding: "mine" } };
  await open(context, { store, ...mine, model: "one" });
  assert.match((await open(context, { store, ...mine, model: "two" })).problems[0]!.message, /mine\/one .* mine\/two/);
  assert.match(
    (await open(context, { store, ...mine, model: "one", dimensions: 7 })).problems[0]!.message,
    /7 dimensions/,
  );
  assert.deepEqual((await open(context, { store, ...mine, model: "one" })).problems, []);
});

test("messages saved while a memory had no semantic search are warned of", async (context) => {
  const store = createMemoryStore();
  await open(context, { store });
  assert.deepEqual((await open(context, { store, semantic: undefined })).problems, []);
  const { problems, semantics } = await open(context, { store });
  assert.equal(problems[0]!.severity, "warning");
  assert.match(problems[0]!.message, /run penstock reindex/);
  assert.equal(semantics.size, 1);
});

test("what an earlier build kept of vectors beside their rows is removed by the first start, and the vectors are found", async (context) => {
  const store = createMemoryStore();
  const first = await open(context, { store });
  await save(store, first.semantic, place("a"), "the ferry leaves at noon");
  assert.deepEqual(await find(first.semantic, "ferry leaves noon"), ["a"]);
  const obsolete = [
    "packs/default/u/state",
    "packs/default/u/block/1",
    "packs/default/u/recent/c/a",
    "deletions/default/u",
  ];
  await store.commit({ put: obsolete.map((key) => [`semantic/${key}`, "1"]) });
  const { semantic } = await open(context, { store });
  for (const prefix of ["semantic/packs/", "semantic/deletions/"])
    assert.deepEqual(await store.scan({ prefix, limit: 1 }), []);
  assert.deepEqual(await find(semantic, "ferry leaves noon"), ["a"]);
});

test("a process whose index another process has rebuilt stores no vectors in it, and says so", async (context) => {
  const store = createMemoryStore();
  const { semantic } = await open(context, { store });
  await save(store, semantic, place("a"), "the ferry leaves at noon");
  assert.deepEqual(await find(semantic, "ferry leaves noon"), ["a"]);
  const { IndexState } = await import("../../../core/memory/semantic/state.ts");
  const made = { provider: "up", model: "m", dimensions: 3, vectors: "exact" };
  const other = await IndexState.begin(store, LAYOUT.state, made);
  await store.commit({ clear: [LAYOUT.vectors()] });
  await other.finish();
  await save(store, semantic, place("b"), "the ferry leaves at noon");
  await assert.rejects(find(semantic, "ferry"), { kind: "unavailable", message: /restart this one/ });
  assert.deepEqual(await store.scan({ prefix: LAYOUT.vectors(), limit: 10 }), []);
  assert.equal((await store.scan({ prefix: LAYOUT.waiting(), limit: 10 })).length, 1, "waits for a process that can");
});

/** Vectors outside of the store, as a plugin has them. */
function remote(): Vectors & { fail: boolean; puts: VectorEntry[] } {
  const inner = createExactVectors(createMemoryStore(), createLayout("elsewhere"), null);
  const checked =
    <A extends unknown[], R>(work: (...input: A) => Promise<R>) =>
    async (...input: A): Promise<R> => {
      if (vectors.fail) throw new Error("the index is away");
      return work(...input);
    };
  const vectors: Vectors & { fail: boolean; puts: VectorEntry[] } = {
    fail: false,
    puts: [],
    put: checked(async (entries) => {
      vectors.puts.push(...entries);
      await inner.put(entries);
    }),
    delete: checked((places) => inner.delete(places)),
    search: checked((query) => inner.search(query)),
    clear: checked(() => inner.clear()),
  };
  return vectors;
}

test("vectors of a plugin: put, replaced and deleted, through a crash between the commit and the plugin", async (context) => {
  const vectors = remote();
  const store = createMemoryStore();
  const semantic = { vectors: "mine" };
  const first = await open(context, { store, semantic, vectors });
  await save(store, first.semantic, place("a"), "the ferry leaves at noon");
  await save(store, first.semantic, place("b"), "the ferry leaves at noon");
  await save(store, first.semantic, place("a", "d"), "the ferry leaves at noon");
  assert.equal((await find(first.semantic, "ferry leaves noon")).length, 3);
  assert.ok(
    Math.abs(vectors.puts[0]!.vector.reduce((sum, number) => sum + number * number, 0) - 1) < 1e-5,
    "of length 1",
  );
  // The commits are done, and the process ends before the plugin hears of them.
  await first.host.close();
  const draft = createDraft();
  first.semantic.deleted(draft, [place("a")]);
  first.semantic.conversationDeleted(draft, "u", "d");
  await store.commit(draft);
  const second = await open(context, { store, semantic, vectors });
  second.start();
  assert.deepEqual(await find(second.semantic, "ferry leaves noon"), ["b"]);
  assert.deepEqual(await store.scan({ prefix: LAYOUT.waiting(), limit: 10 }), []);
});

test("vectors of a plugin that fails are put again when it works", async (context) => {
  const vectors = remote();
  const { store, semantic } = await open(context, { semantic: { vectors: "mine" }, vectors });
  vectors.fail = true;
  await save(store, semantic, place("a"), "the ferry leaves at noon");
  await assert.rejects(find(semantic, "ferry"), { kind: "unavailable" });
  vectors.fail = false;
  const deadline = performance.now() + 60_000;
  while ((await find(semantic, "ferry leaves noon")).length === 0) {
    assert.ok(performance.now() < deadline, "never put");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
});

test("what a plugin finds of somebody else is not believed", async (context) => {
  const vectors: Vectors = {
    ...remote(),
    search: async () => [
      { ...place("mine"), score: 0.9 },
      { ...place("theirs", "c", "v"), score: 0.95 },
      { ...place("elsewhere", "d"), score: 0.93 },
      { ...place("poor"), score: 0.1 },
    ],
  };
  const { semantic } = await open(context, { semantic: { vectors: "mine" }, vectors });
  assert.deepEqual(await find(semantic, "x", { owner: "u", conversation: "c" }), ["mine"]);
});

test("ten thousand messages saved at once are embedded in batches and all found", async (context) => {
  const sizes: number[] = [];
  const { store, semantic } = await open(context, {
    semantic: { embedding: "mine" },
    embed: (texts) => {
      sizes.push(texts.length);
      return HASH.embed(texts);
    },
  });
  const saves = Array.from({ length: 10_000 }, (_, count) =>
    save(store, semantic, place(`m${count}`, `c${count % 50}`), `parcel ${count}`),
  );
  await Promise.all(saves);
  const deadline = performance.now() + 60_000;
  while ((await store.scan({ prefix: LAYOUT.waiting(), limit: 1 })).length > 0) {
    assert.ok(performance.now() < deadline);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.ok(sizes.length < 400, `${sizes.length} calls`);
  const hits = await semantic.search({ text: "parcel 4711", owner: "u", limit: 1, threshold: 0.9 });
  assert.equal(hits[0]!.message, "m4711");
});

/** What `penstock reindex` does with one memory. */
function rebuild(
  context: TestContext,
  store: Store,
  messages: AsyncIterable<SearchedMessage>,
  embed: typeof HASH.embed = HASH.embed,
) {
  const host = createHost({ logger: silent, env: {} });
  context.after(() => host.close());
  const settings = {
    ...{ embedding: "local/hash", vectors: "exact", limit: 5, threshold: 0.7 },
    ...{ scope: "user" as const, pgvector: "auto" as const },
  };
  const models = {
    embedding: () => {
      throw new Error("no models here");
    },
  };
  const source = { store, host, registry: new Registry([]), models, embeddings: async () => ({ ...HASH, embed }) };
  return reindex("default", settings, source, messages, () => {});
}

test("a reindex that was interrupted is an error at boot, and the next one makes the index whole", async (context) => {
  const store = createMemoryStore();
  const { semantic } = await open(context, { store });
  await save(store, semantic, place("stale"), "the ferry leaves at noon");
  assert.deepEqual(await find(semantic, "ferry leaves noon"), ["stale"]);
  const run = (broken: boolean) => {
    let calls = 0;
    return rebuild(context, store, messages(), async (texts) => {
      if (broken && ++calls > 1) throw new Error("power cut");
      return HASH.embed(texts);
    });
  };
  async function* messages() {
    for (let count = 0; count < 100; count++)
      yield { ...place(`m${count}`), text: count === 50 ? " " : `parcel ${count}` };
  }
  await assert.rejects(run(true), /power cut/);
  const [problem] = (await open(context, { store })).problems;
  assert.match(problem!.message, /not complete, since penstock reindex was interrupted: run penstock reindex again/);
  assert.deepEqual(await run(false), { indexed: 99, refused: 0 });
  const after = await open(context, { store });
  assert.deepEqual(after.problems, []);
  assert.equal((await find(after.semantic, "parcel 77"))[0], "m77");
  assert.deepEqual(await find(after.semantic, "ferry leaves noon"), []);
});

test("a reindex removes the vectors from before in slices: no commit removes more than 1,000", async (context) => {
  const inner = createMemoryStore();
  const layout = createLayout("default");
  const vector = new Float32Array([1]);
  await createExactVectors(inner, layout, null).put(
    Array.from({ length: 2_500 }, (_, index) => ({ owner: "u", conversation: "c", message: `m${index}`, vector })),
  );
  const left = async () => (await inner.scan({ prefix: layout.vectors(), limit: 3_000, longest: 1 })).length;
  const removed: number[] = [];
  const store: Store = {
    ...inner,
    commit: async (commit) => {
      const before = await left();
      const revision = await inner.commit(commit);
      removed.push(before - (await left()));
      return revision;
    },
  };
  await rebuild(context, store, (async function* () {})());
  assert.deepEqual(
    removed.filter((count) => count > 0),
    [1_000, 1_000, 500],
  );
});
