/** Similarity of vectors, and a list that keeps the highest scores. */

/** Scales to length 1, in place. A vector of zeros stays as it is, and is similar to nothing. */
export function normalize(vector: Float32Array): Float32Array {
  let sum = 0;
  for (let index = 0; index < vector.length; index++) sum += vector[index]! * vector[index]!;
  if (sum === 0 || !Number.isFinite(sum)) return vector.fill(0);
  const scale = 1 / Math.sqrt(sum);
  for (let index = 0; index < vector.length; index++) vector[index]! *= scale;
  return vector;
}

/** Dot product of `query` and the vector at `offset`, which for normalized vectors is the cosine of their angle. */
export function similarity(query: Float32Array, matrix: Float32Array, offset: number): number {
  const { length } = query;
  // Four sums, so that the processor need not finish one addition before it begins the next.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let index = 0;
  for (; index + 3 < length; index += 4) {
    a += query[index]! * matrix[offset + index]!;
    b += query[index + 1]! * matrix[offset + index + 1]!;
    c += query[index + 2]! * matrix[offset + index + 2]!;
    d += query[index + 3]! * matrix[offset + index + 3]!;
  }
  for (; index < length; index++) a += query[index]! * matrix[offset + index]!;
  return a + b + c + d;
}

/** The `limit` highest of those at or above `threshold`, best first; of equal ones the earlier. */
export class Nearest<T> {
  readonly #limit: number;
  readonly #threshold: number;
  readonly #best: { score: number; item: T }[] = [];

  constructor(limit: number, threshold: number) {
    this.#limit = limit;
    this.#threshold = threshold;
  }

  /** The least score that may get into the list. */
  get floor(): number {
    const full = this.#best.length >= this.#limit;
    return full ? (this.#best.at(-1)?.score ?? Number.POSITIVE_INFINITY) : this.#threshold;
  }

  offer(score: number, item: T): void {
    if (this.#limit === 0 || !(score >= this.#threshold)) return;
    const best = this.#best;
    if (best.length === this.#limit && score <= best[best.length - 1]!.score) return;
    let low = 0;
    let high = best.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (best[middle]!.score >= score) low = middle + 1;
      else high = middle;
    }
    best.splice(low, 0, { score, item });
    if (best.length > this.#limit) best.pop();
  }

  list(): readonly { score: number; item: T }[] {
    return this.#best;
  }
}
