/** The vectors of one owner in memory, as bytes, by the keys of their rows. */
import { nextTurn } from "../../lib/event-loop-turns.ts";
import { dotProducts, LANES } from "./dot-kernel.ts";
import { Nearest } from "./nearest.ts";

/** Memory of a vector beside its numbers: its key, its revision, and their entries in a list and a map. */
const ENTRY_BYTES = 220;
/** What is compared at a time stays in the processor's cache. */
const PIECE_BYTES = 256 * 1024;
/** These take about a millisecond. Then others have their turn. */
const PIECES_PER_TURN = 32;
/** How far a score by bytes may be from the exact one, with room to spare. */
const ROUGHNESS = 0.05;

export class Matrix {
  readonly #keys: string[] = [];
  readonly #rows = new Map<string, { place: number; revision: number }>();
  #dimensions = 0;
  #stride = 0;
  #vectors = new Int8Array(0);
  #factors = new Float32Array(0);

  get bytes(): number {
    return this.#vectors.byteLength + this.#factors.byteLength + this.#keys.length * ENTRY_BYTES;
  }

  get keys(): Iterable<string> {
    return this.#keys;
  }

  /** Of the row that was added last with this key. */
  revision(key: string): number | undefined {
    return this.#rows.get(key)?.revision;
  }

  /** Adds a vector or replaces it. One of another length, which comes from another model, is left out. */
  add(key: string, revision: number, vector: Float32Array): void {
    if (this.#dimensions === 0) {
      this.#dimensions = vector.length;
      this.#stride = Math.ceil(vector.length / LANES) * LANES;
    }
    if (vector.length !== this.#dimensions) return;
    const place = this.#rows.get(key)?.place ?? this.#keys.push(key) - 1;
    this.#rows.set(key, { place, revision });
    if (place >= this.#factors.length) {
      const count = Math.ceil(Math.max(this.#keys.length * 1.25, 16));
      const [vectors, factors] = [this.#vectors, this.#factors];
      this.#vectors = new Int8Array(count * this.#stride);
      this.#vectors.set(vectors);
      this.#factors = new Float32Array(count);
      this.#factors.set(factors);
    }
    this.#factors[place] = quantize(vector, this.#vectors, place * this.#stride);
  }

  /** The last one takes its place. */
  remove(key: string): void {
    const row = this.#rows.get(key);
    if (row === undefined) return;
    this.#rows.delete(key);
    const last = this.#keys.pop()!;
    if (last === key) return;
    const from = this.#keys.length;
    this.#keys[row.place] = last;
    this.#rows.get(last)!.place = row.place;
    this.#vectors.copyWithin(row.place * this.#stride, from * this.#stride, (from + 1) * this.#stride);
    this.#factors[row.place] = this.#factors[from]!;
  }

  /** Keys of at most `limit` of the nearest that begin with a prefix, roughly in order. */
  async nearest(query: Float32Array, prefix: string, limit: number, least: number): Promise<string[]> {
    if (query.length !== this.#dimensions) return [];
    const nearest = new Nearest<string>(limit, least - ROUGHNESS);
    const stride = this.#stride;
    const rows = Math.max(1, Math.floor(PIECE_BYTES / stride));
    // From the end, so that none is missed when one is removed meanwhile and the last takes its place.
    for (let end = this.#keys.length, pieces = 1; end > 0; end -= rows, pieces++) {
      const start = Math.max(0, end - rows);
      const piece = this.#vectors.subarray(start * stride, end * stride);
      const { products, unit } = dotProducts(query, piece, stride);
      for (let place = end - 1; place >= start; place--) {
        const score = products[place - start]! * this.#factors[place]! * unit;
        if (score >= nearest.floor && this.#keys[place]?.startsWith(prefix)) nearest.offer(score, this.#keys[place]!);
      }
      if (pieces % PIECES_PER_TURN === 0) await nextTurn();
    }
    return nearest.list().map(({ item }) => item);
  }
}

/**
 * Bytes that are proportional to the numbers of a vector, and the factor between both: that with which the vector's similarity to
 * itself is exact, so that errors are least where vectors are near each other.
 */
function quantize(vector: Float32Array, bytes: Int8Array, offset: number): number {
  let largest = 0;
  for (const number of vector) largest = Math.max(largest, Math.abs(number));
  const scale = largest === 0 ? 0 : 127 / largest;
  let square = 0;
  let product = 0;
  for (let index = 0; index < vector.length; index++) {
    const number = vector[index]!;
    const byte = Math.round(number * scale);
    bytes[offset + index] = byte;
    square += number * number;
    product += number * byte;
  }
  return product === 0 ? 0 : square / product;
}
