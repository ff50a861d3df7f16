/** `exact` beside a search that compares every vector with plain arithmetic. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createExactVectors, createLayout } from "../../../core/memory/semantic/exact.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { clusteredVector, createNumbers, nearestMessages, randomVector } from "../../support/vectors.ts";

const LAYOUT = createLayout("default");
const VECTORS = 2_000;
const QUERIES = 20;
const LIMIT = 10;
/** Least share of the nearest ten that must be found. */
const RECALL = 0.95;

const KINDS: Record<string, (next: () => number, dimensions: number) => () => Float32Array> = {
  "vectors by chance": (next, dimensions) => () => randomVector(next, dimensions),
  "vectors in clusters": (next, dimensions) => {
    const centres = Array.from({ length: 30 }, () => randomVector(next, dimensions));
    return () => clusteredVector(next, centres, 0.7);
  },
  "vectors that are nearly the same": (next, dimensions) => {
    const centres = [randomVector(next, dimensions)];
    return () => clusteredVector(next, centres, 0.05);
  },
};

for (const [kind, makerOf] of Object.entries(KINDS)) {
  // 100 is no multiple of what is compared at a time.
  for (const dimensions of [100, 384]) {
    test(`search of exact finds at least ${RECALL} of the nearest ${LIMIT}: ${kind}, ${dimensions} dimensions`, async () => {
      const next = createNumbers(dimensions);
      const make = makerOf(next, dimensions);
      const entries = Array.from({ length: VECTORS }, (_, count) => {
        return { owner: "u", conversation: `c${count % 20}`, message: `m${count}`, vector: make() };
      });
      const store = createMemoryStore();
      await createExactVectors(store, LAYOUT, null).put(entries);
      const read = createExactVectors(store, LAYOUT, null);
      let found = 0;
      for (let query = 0; query < QUERIES; query++) {
        const vector = make();
        const expected = new Set(nearestMessages(entries, vector, LIMIT));
        const hits = await read.search({ vector, owner: "u", limit: LIMIT, threshold: -1 });
        assert.equal(hits.length, LIMIT);
        found += hits.filter(({ message }) => expected.has(message)).length;
      }
      const recall = found / (QUERIES * LIMIT);
      assert.ok(recall >= RECALL, `${recall}`);
    });
  }
}
