/**
 * `local/hash`: feature hashing of words. It knows nothing about meaning: texts are similar when they have words, or parts of words, in
 * common. Deterministic and instant, it is meant for tests and trials; for real use there is `local/use`.
 */
import type { NamedEmbedding } from "./embedding.ts";

const DIMENSIONS = 512;
const WORD = /[\p{L}\p{N}]+/gu;
/** All parts of a word together weigh less than the word. */
const PIECE_WEIGHT = 0.25;

export function createHashEmbedding(): NamedEmbedding {
  return {
    provider: "local",
    model: "hash",
    dimensions: DIMENSIONS,
    embed: async (texts) => texts.map(hashText),
  };
}

function hashText(text: string): Float32Array {
  const vector = new Float32Array(DIMENSIONS);
  for (const [word] of text.normalize("NFKC").toLowerCase().matchAll(WORD)) {
    add(vector, word, 1);
    // `invoice` and `invoices` have most parts in common.
    const edged = `<${word}>`;
    for (let start = 0; start + 3 <= edged.length; start++) add(vector, edged.slice(start, start + 3), PIECE_WEIGHT);
  }
  // Repeated words count less each time.
  for (let index = 0; index < DIMENSIONS; index++) {
    vector[index] = Math.sign(vector[index]!) * Math.sqrt(Math.abs(vector[index]!));
  }
  return vector;
}

/** Half of the features count negatively, so that features that collide cancel out on average. */
function add(vector: Float32Array, feature: string, weight: number): void {
  const hash = fnv1a(feature);
  vector[(hash >>> 1) % DIMENSIONS]! += hash & 1 ? weight : -weight;
}

/** FNV-1a with a final mix, so that the low bits depend on the whole text. */
function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
