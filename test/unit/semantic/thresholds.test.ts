/** The similarity that a memory asks for by default, measured on pairs of what was said and what is asked. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseManifest } from "../../../core/manifest/load.ts";
import type { NamedEmbedding } from "../../../core/memory/embedding/embedding.ts";
import { createHashEmbedding, createUseEmbedding } from "../../../core/memory/embedding/open.ts";
import { BY_MEANING, BY_WORDS, type Pairs } from "../../support/similar-pairs.ts";

const GRID = Array.from({ length: 20 }, (_, index) => index / 20);

function defaultOf(embedding: unknown): number {
  const text = JSON.stringify({ name: "Test", version: "1.0.0", memory: { default: { semantic: { embedding } } } });
  const { manifest } = parseManifest(text, { file: "service.yaml", env: {} });
  return manifest!.memory.default!.semantic!.threshold;
}

/** The shares of related and of unrelated pairs that are found from a threshold on. */
async function measured({ embed }: NamedEmbedding, pairs: Pairs): Promise<(threshold: number) => [number, number]> {
  const scores = async (kind: keyof Pairs) => {
    const vectors = await embed(pairs[kind].flat());
    return pairs[kind].map((_, index) => cosine(vectors[2 * index]!, vectors[2 * index + 1]!));
  };
  const [related, unrelated] = await Promise.all([scores("related"), scores("unrelated")]);
  const share = (all: number[], threshold: number) => all.filter((score) => score >= threshold).length / all.length;
  return (threshold) => [share(related, threshold), share(unrelated, threshold)];
}

const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, index) => sum + value * b[index]!, 0);
const cosine = (a: Float32Array, b: Float32Array) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

function assertSeparates(shares: (threshold: number) => [number, number], threshold: number): void {
  const [related, unrelated] = shares(threshold);
  const told = `at ${threshold}: ${related} of the related pairs are found, ${unrelated} of the others`;
  assert.ok(related >= 0.9 && unrelated <= 0.15, told);
  const worth = (one: number) => shares(one)[0] - shares(one)[1];
  const best = Math.max(...GRID.map(worth));
  assert.ok(worth(threshold) >= best - 0.05, `${told}; the best threshold separates ${best}`);
}

const useInstalled = (() => {
  try {
    createUseEmbedding({ onClose() {} });
    return true;
  } catch {
    return false;
  }
})();

test("memory.NAME.semantic.threshold for local/use tells what means the same in other words from what does not", {
  skip: !useInstalled && "@energetic-ai/embeddings is not installed",
}, async (t) => {
  const embedding = createUseEmbedding({ onClose: (close) => t.after(() => close()) });
  const shares = await measured(embedding, BY_MEANING);
  assertSeparates(shares, defaultOf("local/use"));
  // What is asked of embeddings that nobody has measured is no use here.
  assert.ok(shares(defaultOf("demo/vectors"))[0] < 0.5);
});

test("memory.NAME.semantic.threshold for local/hash tells what has words in common from what has not", async () => {
  const shares = await measured(createHashEmbedding(), BY_WORDS);
  assertSeparates(shares, defaultOf("local/hash"));
});

test("memory.NAME.semantic.threshold is 0.7 for embeddings of providers and plugins, and what the manifest says for all", () => {
  assert.equal(defaultOf("demo/vectors"), 0.7);
  assert.equal(defaultOf({ use: "mine", size: 3 }), 0.7);
});
