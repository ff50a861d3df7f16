/** The embeddings that come with Penstock: `local/hash`, `local/use` in its thread, and those of model providers. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import type { EmbeddingModelV3, EmbeddingModelV3CallOptions } from "@ai-sdk/provider";
import type { NamedEmbedding } from "../../../core/memory/embedding/embedding.ts";
import {
  createHashEmbedding,
  createModelEmbedding,
  createUseEmbedding,
  openEmbedding,
} from "../../../core/memory/embedding/open.ts";
import { normalize, similarity } from "../../../core/memory/semantic/matrix.ts";
import { createHost } from "../../../core/registry/host.ts";
import { Registry } from "../../../core/registry/registry.ts";
import { embeddingSuite } from "../../suites/embedding.suite.ts";
import { silent } from "../../support/providers.ts";

function hostFor(test: TestContext) {
  const host = createHost({ logger: silent, env: {} });
  test.after(() => host.close());
  return host;
}

const NONE = {
  embedding: (): never => {
    throw new Error("no models here");
  },
};

embeddingSuite("local/hash", async () => createHashEmbedding());
/** One thread for all: it takes a while to load. */
const shared = createHost({ logger: silent, env: {} });
const encoder = createUseEmbedding(shared);
after(() => shared.close());
embeddingSuite("local/use", async () => encoder);
embeddingSuite("of a model provider", async () => createModelEmbedding("up/letters", letters().model));
embeddingSuite("of a plugin", async (context) => {
  const hash = createHashEmbedding();
  const plugin = {
    kind: "embedding" as const,
    create: () => ({ dimensions: 512, embed: (texts: string[]) => hash.embed(texts) }),
  };
  const registry = new Registry([{ kind: "embedding", name: "mine", file: "/mine.ts", plugin }]);
  return openEmbedding("mine", { registry, host: hostFor(context), models: NONE });
});

async function alike(embedding: NamedEmbedding, a: string, b: string): Promise<number> {
  const [first, second] = await embedding.embed([a, b]);
  return similarity(normalize(first!), normalize(second!), 0);
}

test("local/use knows that sentences without a common word mean the same", async () => {
  const use = encoder;
  const same = await alike(use, "I forgot my login credentials and cannot sign in", "How do I reset my password?");
  const other = await alike(use, "The weather is nice in Paris today", "How do I reset my password?");
  assert.ok(same > 0.55 && other < 0.2, `${same} ${other}`);
});

test("local/hash finds common words and parts of words, and says so honestly of meaning", async () => {
  const hash = createHashEmbedding();
  const words = await alike(hash, "the invoice of March", "The INVOICE of march!");
  const parts = await alike(hash, "invoices", "invoice");
  const meaning = await alike(hash, "I forgot my login credentials", "How do we reset a password?");
  assert.ok(words > 0.99, `${words}`);
  assert.ok(parts > 0.4, `${parts}`);
  assert.ok(meaning < 0.2, `${meaning}`);
});

for (const [what, texts] of [
  ["a text of a MiB", ["word ".repeat(1 << 18)]],
  ["2,000 texts", Array(2_000).fill("word ".repeat(200))],
] as const)
  test(`local/hash embeds ${what} in many turns of the event loop`, async () => {
    let turns = 0;
    let goesOn = true;
    const count = () => {
      turns++;
      if (goesOn) setImmediate(count);
    };
    setImmediate(count);
    const vectors = await createHashEmbedding().embed(texts);
    goesOn = false;
    assert.equal(vectors.length, texts.length);
    assert.ok(turns > 100, `${turns} turns`);
  });

test("local/use embeds in a thread: the event loop turns meanwhile", async () => {
  const use = encoder;
  await use.embed(["warm"]);
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  await use.embed(Array.from({ length: 60 }, (_, count) => `sentence number ${count} about the state of the harbour`));
  clearInterval(timer);
  assert.ok(turns > 10, `${turns} turns`);
});

test("local/use answers a query before a long batch that came first", async () => {
  const use = encoder;
  await use.embed(["warm"]);
  const order: string[] = [];
  const batch = use.embed(Array.from({ length: 80 }, (_, count) => `message ${count}`)).then(() => order.push("batch"));
  const query = use.embed(["query"]).then(() => order.push("query"));
  await Promise.all([batch, query]);
  assert.deepEqual(order, ["query", "batch"]);
});

test("local/use rejects what is running when the service stops, and what comes after", async () => {
  const host = createHost({ logger: silent, env: {} });
  const use = createUseEmbedding(host);
  const running = assert.rejects(use.embed(["one"]), /stopping/);
  await host.close();
  await running;
  await assert.rejects(use.embed(["two"]), /stopping/);
});

test("local/use lets go of a call that is aborted, and goes on with the others", async () => {
  const use = encoder;
  const controller = new AbortController();
  const long = use.embed(
    Array.from({ length: 60 }, () => "a sentence"),
    controller.signal,
  );
  const other = use.embed(["another sentence", "and one more"]);
  controller.abort(new Error("enough"));
  await assert.rejects(long, /enough/);
  assert.equal((await other).length, 2);
});

test("a model provider gets no more texts at once than it says", async () => {
  const { model, calls } = letters(10);
  const vectors = await createModelEmbedding("up/letters", model).embed(
    Array.from({ length: 25 }, (_, n) => `text ${n}`),
  );
  assert.equal(vectors.length, 25);
  assert.deepEqual(
    calls.map(({ values }) => values.length),
    [10, 10, 5],
  );
});

test("a model provider that gives too few vectors is an error, not a shift of all that follow", async () => {
  const { model } = letters();
  const short: EmbeddingModelV3 = {
    ...model,
    doEmbed: async (options) => {
      const result = await model.doEmbed(options);
      return { ...result, embeddings: result.embeddings.slice(1) };
    },
  };
  await assert.rejects(createModelEmbedding("up/letters", short).embed(["a", "b"]), /1 vectors came back for 2 texts/);
});

test("a model provider's status 400 is a refusal, its status 500 is not", async () => {
  const failing = (statusCode: number): EmbeddingModelV3 => ({
    ...letters().model,
    doEmbed: async () => {
      throw Object.assign(new Error("no"), { statusCode });
    },
  });
  await assert.rejects(createModelEmbedding("up/a", failing(400)).embed(["a"]), { name: "EmbeddingRefused" });
  await assert.rejects(createModelEmbedding("up/a", failing(500)).embed(["a"]), { name: "Error" });
});

/** An embedding model that counts letters. */
function letters(maxEmbeddingsPerCall?: number) {
  const calls: EmbeddingModelV3CallOptions[] = [];
  const model: EmbeddingModelV3 = {
    specificationVersion: "v3",
    provider: "up",
    modelId: "letters",
    maxEmbeddingsPerCall,
    supportsParallelCalls: false,
    async doEmbed(options) {
      calls.push(options);
      const embeddings = options.values.map((text) => {
        const vector = new Array<number>(64).fill(0);
        for (const letter of text) vector[letter.codePointAt(0)! % 64]! += 1;
        return vector;
      });
      return { embeddings, warnings: [] };
    },
  };
  return { model, calls };
}

test("a failure of a provider's embedding model names the model", async () => {
  const { model } = letters();
  const doEmbed = () => Promise.reject(Object.assign(new Error("Incorrect API key"), { statusCode: 401 }));
  const embedding = createModelEmbedding("up/letters", { ...model, doEmbed });
  await assert.rejects(async () => embedding.embed(["a"]), { message: "up/letters: Incorrect API key" });
});
