/** Vectors by chance, and what an exact search finds among them. */
import { normalize } from "../../core/memory/semantic/matrix.ts";
import type { VectorEntry } from "../../core/plugin/plugin.ts";

/** Numbers from 0 to 1, the same for the same seed. */
export function createNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** About a normal distribution. */
const bell = (next: () => number) => next() + next() + next() + next() - 2;

export function randomVector(next: () => number, dimensions: number): Float32Array {
  return normalize(Float32Array.from({ length: dimensions }, () => bell(next)));
}

/** Around one of some centres, as texts about some subjects are. */
export function clusteredVector(next: () => number, centres: readonly Float32Array[], spread: number): Float32Array {
  const centre = centres[Math.floor(next() * centres.length)]!;
  const scale = spread / Math.sqrt(centre.length);
  return normalize(centre.map((number) => number + bell(next) * scale));
}

/** The short names of the nearest, found with plain arithmetic. */
export function nearestMessages(entries: readonly VectorEntry[], query: Float32Array, limit: number): string[] {
  return entries
    .map(({ message, vector }) => ({
      message,
      score: vector.reduce((sum, number, at) => sum + number * query[at]!, 0),
    }))
    .sort((a, b) => b.score - a.score)
    .slice(0, limit)
    .map(({ message }) => message);
}
