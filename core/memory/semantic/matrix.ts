/** The vectors of one owner in memory, as bytes, by the keys of their rows. */
import { nextTurn } from "../../lib/event-loop-turns.ts";

// Similarity of vectors, and a list that keeps the highest scores.

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

/*
 * Dot products of one query with many vectors, in WebAssembly for its SIMD instructions: sixteen numbers at a time, ten times as fast as
 * JavaScript. It is so small that it is written down here, instruction by instruction, rather than compiled from another language.
 */

/** Of the binary format, https://webassembly.github.io/spec/core/binary/ */
const I32 = 0x7f;
const FUNCTION_TYPE = 0x60;
const BLOCK_WITHOUT_RESULT = 0x40;
const ALIGN_4 = 2;
const ALIGN_16 = 4;

/** Numbers that are multiplied at a time. */
const LANES = 16;

const SECTION = { type: 1, function: 3, memory: 5, export: 7, code: 10 };

const get = (local: number) => [0x20, local];
const set = (local: number) => [0x21, local];
const tee = (local: number) => [0x22, local];
/** Below 64, so that it is one byte. */
const i32 = (value: number) => [0x41, value];
const I32_ADD = 0x6a;
const I32_SUB = 0x6b;
const I32_SHL = 0x74;
const LESS_UNSIGNED = 0x49;
const STORE_I32 = [0x36, ALIGN_4, 0];
const LOOP = [0x03, BLOCK_WITHOUT_RESULT];
const REPEAT_IF = [0x0d, 0];
const END = 0x0b;
const simd = (...code: number[]) => [0xfd, ...code];
const ZERO_VECTOR = simd(0x0c, ...new Array<number>(16).fill(0));
const load16Bytes = (offset: number) => simd(0x00, ALIGN_16, offset);
const LOW_BYTES_TO_I16 = simd(0x87, 0x01);
const HIGH_BYTES_TO_I16 = simd(0x88, 0x01);
const DOT_I16 = simd(0xba, 0x01);
const ADD_I32X4 = simd(0xae, 0x01);

// Parameters: addresses of the query (16-bit numbers), of the vectors (bytes) and of the results, then how many vectors, and the bytes
// of each, a multiple of sixteen.
const [QUERY, VECTORS, RESULTS, COUNT, STRIDE] = [0, 1, 2, 3, 4];
const [AT, BYTES, SUM] = [5, 6, 7];

/** Adds the products of eight bytes, low or high ones of those just loaded, to the four sums. */
const addProducts = (half: number[], offset: number) => [
  ...get(SUM),
  ...get(BYTES),
  ...half,
  ...get(QUERY),
  ...get(AT),
  ...i32(1),
  I32_SHL,
  I32_ADD,
  ...load16Bytes(offset),
  ...DOT_I16,
  ...ADD_I32X4,
  ...set(SUM),
];

const BODY = [
  ...LOOP,
  ...ZERO_VECTOR,
  ...set(SUM),
  ...i32(0),
  ...set(AT),
  ...LOOP,
  ...[...get(VECTORS), ...get(AT), I32_ADD, ...load16Bytes(0), ...set(BYTES)],
  ...addProducts(LOW_BYTES_TO_I16, 0),
  ...addProducts(HIGH_BYTES_TO_I16, 16),
  ...[...get(AT), ...i32(16), I32_ADD, ...tee(AT), ...get(STRIDE), LESS_UNSIGNED],
  ...REPEAT_IF,
  END,
  ...get(RESULTS),
  ...[0, 1, 2, 3].flatMap((index) => [...get(SUM), ...simd(0x1b, index), ...(index === 0 ? [] : [I32_ADD])]),
  ...STORE_I32,
  ...[...get(RESULTS), ...i32(4), I32_ADD, ...set(RESULTS)],
  ...[...get(VECTORS), ...get(STRIDE), I32_ADD, ...set(VECTORS)],
  ...[...get(COUNT), ...i32(1), I32_SUB, ...tee(COUNT)],
  ...REPEAT_IF,
  END,
  END,
];

/** One local of 32 bits (`AT`) and two of 128 (`BYTES`, `SUM`). */
const LOCALS = [2, 1, I32, 2, 0x7b];

const name = (text: string) => [text.length, ...Buffer.from(text)];
const section = (id: number, content: readonly number[]) => [id, ...length(content.length), ...content];
/** A number in groups of seven bits. */
const length = (value: number): number[] => (value < 128 ? [value] : [(value & 127) | 128, ...length(value >> 7)]);

interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): void };
  dots(query: number, vectors: number, results: number, count: number, stride: number): void;
}

/** Of the kernel: `memory` of one page at first, which is used by one call at a time. */
function compile(): Exports {
  const code = [...LOCALS, ...BODY];
  const bytes = Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(SECTION.type, [1, FUNCTION_TYPE, 5, I32, I32, I32, I32, I32, 0]),
    ...section(SECTION.function, [1, 0]),
    ...section(SECTION.memory, [1, 0, 1]),
    ...section(SECTION.export, [2, ...name("memory"), 2, 0, ...name("dots"), 0, 0]),
    ...section(SECTION.code, [1, ...length(code.length), ...code]),
  ]);
  // Node.js has it, and its types do not.
  const { Instance, Module } = Reflect.get(globalThis, "WebAssembly");
  return new Instance(new Module(bytes)).exports as Exports;
}

const PAGE_BYTES = 65_536;
/** The greatest number in a query: the sums of products then fit into 32 bits, for any length up to 16,000. */
const QUERY_RANGE = 4_095;
const { memory, dots } = compile();

/**
 * Products of a query with vectors of bytes that are `stride` apart, a multiple of `LANES`. They are to be multiplied by `unit`, and
 * valid until the next call.
 */
function dotProducts(query: Float32Array, vectors: Int8Array, stride: number) {
  const count = vectors.length / stride;
  const results = stride * 2 + vectors.length;
  const missing = results + count * 4 - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  let largest = 0;
  for (const number of query) largest = Math.max(largest, Math.abs(number));
  const range = Math.min(QUERY_RANGE, Math.floor(2 ** 31 / 127 / (stride / 4)) - 1);
  const numbers = new Int16Array(memory.buffer, 0, stride).fill(0);
  for (let index = 0; index < query.length; index++) numbers[index] = Math.round((query[index]! / largest) * range);
  new Int8Array(memory.buffer, stride * 2).set(vectors);
  dots(0, stride * 2, results, count, stride);
  return { products: new Int32Array(memory.buffer, results, count), unit: largest / range };
}

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
