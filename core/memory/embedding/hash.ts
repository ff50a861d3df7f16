/**
 * `local/hash`: feature hashing of words. It knows nothing about meaning: texts are similar when they have words, or parts of words, in
 * common. Deterministic and instant, it is meant for tests and trials; for real use there is `local/use`.
 */
import { nextTurn } from "../../lib/event-loop-turns.ts";
import type { NamedEmbedding } from "./embedding.ts";

const DIMENSIONS = 512;
const WORD = /[\p{L}\p{N}]+/gu;
/** All parts of a word together weigh less than the word. */
const PIECE_WEIGHT = 0.25;

/** How much is hashed in one turn of the event loop, about 4 ms. No text of a memory is longer. */
const CHARACTERS_PER_TURN = 8_000;

export function createHashEmbedding(): NamedEmbedding {
  return {
    provider: "local",
    model: "hash",
    dimensions: DIMENSIONS,
    async embed(texts, signal) {
      const vectors: Float32Array[] = [];
      for (const text of texts) {
        const vector = new Float32Array(DIMENSIONS);
        for (let start = 0; start < text.length; start += CHARACTERS_PER_TURN) {
          if (start > 0 || vectors.length > 0) await nextTurn();
          signal?.throwIfAborted();
          addWords(vector, text.slice(start, start + CHARACTERS_PER_TURN));
        }
        // Repeated words count less each time.
        vectors.push(vector.map((sum) => Math.sign(sum) * Math.sqrt(Math.abs(sum))));
      }
      return vectors;
    },
  };
}

function addWords(vector: Float32Array, text: string): void {
  // Some characters become many.
  const plain = text
    .normalize("NFKC")
    .toLowerCase()
    .slice(0, 2 * CHARACTERS_PER_TURN);
  for (const [word] of plain.matchAll(WORD)) {
    add(vector, word, 0, word.length, 1);
    // `invoice` and `invoices` have most parts in common.
    const edged = `<${word}>`;
    for (let end = 3; end <= edged.length; end++) add(vector, edged, end - 3, end, PIECE_WEIGHT);
  }
}

/** Half of the features count negatively, so that features that collide cancel out on average. */
function add(vector: Float32Array, text: string, start: number, end: number, weight: number): void {
  const hash = fnv1a(text, start, end);
  vector[(hash >>> 1) % DIMENSIONS]! += hash & 1 ? weight : -weight;
}

/** FNV-1a with a final mix, so that the low bits depend on the whole text. */
function fnv1a(text: string, start: number, end: number): number {
  let hash = 0x811c9dc5;
  for (let index = start; index < end; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
