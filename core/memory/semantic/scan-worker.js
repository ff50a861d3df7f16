// The thread that compares vectors: keeps those of some owners as bytes, and finds the nearest of them. What it finds are candidates:
// the service compares them again by the exact vectors in the store.
// Plain JavaScript, so that it starts alike from the source and from a build.
import { parentPort, workerData } from "node:worker_threads";

const { memory, dots } = new WebAssembly.Instance(new WebAssembly.Module(workerData.kernel)).exports;
const PAGE_BYTES = 65_536;
/** Vectors go through the kernel in pieces that stay in the processor's cache. */
const PIECE_BYTES = 256 * 1024;
/** Sixteen at a time. */
const LANES = 16;
/** The greatest number in a query: the sums of products then fit into 32 bits, for any length up to 16,000. */
const QUERY_RANGE = 4_095;
/** Memory of a vector beside its numbers: its key, and the entries of the key in a list and a map. */
const ENTRY_BYTES = 160;

const padded = (dimensions) => Math.ceil(dimensions / LANES) * LANES;

/**
 * Bytes that are proportional to the numbers of a vector, and the factor between both: that with which the vector's similarity to
 * itself is exact, so that errors are least where vectors are near each other.
 */
function quantize(vector, bytes, offset) {
  let largest = 0;
  for (const number of vector) largest = Math.max(largest, Math.abs(number));
  const scale = largest === 0 ? 0 : 127 / largest;
  let square = 0;
  let product = 0;
  for (let index = 0; index < vector.length; index++) {
    const number = vector[index];
    const byte = Math.round(number * scale);
    bytes[offset + index] = byte;
    square += number * number;
    product += number * byte;
  }
  return product === 0 ? 0 : square / product;
}

/** The vector of a row of the store: base64 of 32-bit floats, the last of its fields. */
function rowVector(value) {
  const bytes = new Uint8Array(Buffer.from(JSON.parse(value)[3], "base64"));
  return new Float32Array(bytes.buffer, 0, bytes.byteLength >> 2);
}

/** Packs rows into the text of one block: dimensions, keys, and base64 of all factors followed by all bytes. */
function pack(keys, values) {
  const vectors = values.map(rowVector);
  const dimensions = vectors[0].length;
  const kept = [...keys.keys()].filter((index) => vectors[index].length === dimensions);
  const factors = new Float32Array(kept.length);
  const bytes = new Int8Array(kept.length * dimensions);
  for (const [place, index] of kept.entries()) factors[place] = quantize(vectors[index], bytes, place * dimensions);
  const data = Buffer.concat([new Uint8Array(factors.buffer), new Uint8Array(bytes.buffer)]).toString("base64");
  return JSON.stringify([dimensions, kept.map((index) => keys[index]), data]);
}

function unpack(text) {
  const [dimensions, keys, base64] = JSON.parse(text);
  // Copied, since the decoded bytes may begin at any offset of a shared buffer, and floats need an aligned one.
  const { buffer } = new Uint8Array(Buffer.from(base64, "base64"));
  return {
    dimensions,
    keys,
    factors: new Float32Array(buffer, 0, keys.length),
    bytes: new Int8Array(buffer, keys.length * 4),
  };
}

/** The vectors of one owner. */
class Matrix {
  dimensions = 0;
  stride = 0;
  count = 0;
  vectors = new Int8Array(0);
  factors = new Float32Array(0);
  keys = [];
  places = new Map();

  get bytes() {
    return this.vectors.byteLength + this.factors.byteLength + this.count * ENTRY_BYTES;
  }

  /** The place of a vector, a new one or that of the one it replaces; -1 for another length, which comes from another model. */
  place(key, dimensions) {
    if (this.dimensions === 0) {
      this.dimensions = dimensions;
      this.stride = padded(dimensions);
    }
    if (dimensions !== this.dimensions) return -1;
    const known = this.places.get(key);
    if (known !== undefined) return known;
    const place = this.count++;
    this.places.set(key, place);
    this.keys[place] = key;
    if (this.count > this.factors.length) this.reserve(Math.ceil(Math.max(this.count * 1.25, 16)));
    return place;
  }

  reserve(count) {
    const { vectors, factors } = this;
    this.vectors = new Int8Array(count * this.stride);
    this.vectors.set(vectors);
    this.factors = new Float32Array(count);
    this.factors.set(factors);
  }

  addRows(keys, values) {
    for (const [index, key] of keys.entries()) {
      const vector = rowVector(values[index]);
      const place = this.place(key, vector.length);
      if (place >= 0) this.factors[place] = quantize(vector, this.vectors, place * this.stride);
    }
  }

  addBlock(text) {
    const { dimensions, keys, factors, bytes } = unpack(text);
    for (const [index, key] of keys.entries()) {
      const place = this.place(key, dimensions);
      if (place < 0) continue;
      this.vectors.set(bytes.subarray(index * dimensions, (index + 1) * dimensions), place * this.stride);
      this.factors[place] = factors[index];
    }
  }

  /** The last one takes its place. */
  remove(key) {
    const place = this.places.get(key);
    if (place === undefined) return;
    this.places.delete(key);
    const last = --this.count;
    const moved = this.keys.pop();
    if (place === last) return;
    this.keys[place] = moved;
    this.places.set(moved, place);
    this.vectors.copyWithin(place * this.stride, last * this.stride, (last + 1) * this.stride);
    this.factors[place] = this.factors[last];
  }
}

/** The highest scores, best first. */
class Best {
  scores = [];
  items = [];

  constructor(limit, least) {
    this.limit = limit;
    this.floor = least;
  }

  offer(score, item) {
    let low = 0;
    for (let high = this.scores.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (this.scores[middle] >= score) low = middle + 1;
      else high = middle;
    }
    this.scores.splice(low, 0, score);
    this.items.splice(low, 0, item);
    if (this.scores.length > this.limit) {
      this.scores.pop();
      this.items.pop();
    }
    if (this.scores.length === this.limit) this.floor = Math.max(this.floor, this.scores[this.limit - 1]);
  }
}

/** Where the kernel finds what it works on; the query is at 0. */
function lay({ stride }) {
  const rows = Math.max(1, Math.floor(PIECE_BYTES / stride));
  const vectors = stride * 2;
  const results = vectors + rows * stride;
  const missing = results + rows * 4 - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  return { rows, vectors, results };
}

function scan(matrix, query, owner, prefix, best) {
  const { stride, count } = matrix;
  const { rows, vectors, results } = lay(matrix);
  const numbers = new Int16Array(memory.buffer, 0, stride).fill(0);
  let largest = 0;
  for (const number of query) largest = Math.max(largest, Math.abs(number));
  const range = Math.min(QUERY_RANGE, Math.floor(2 ** 31 / 127 / (stride / 4)) - 1);
  for (let index = 0; index < query.length; index++) numbers[index] = Math.round((query[index] / largest) * range);
  const unit = largest / range;
  const piece = new Int8Array(memory.buffer, vectors, rows * stride);
  const products = new Int32Array(memory.buffer, results, rows);
  for (let start = 0; start < count; start += rows) {
    const length = Math.min(rows, count - start);
    piece.set(matrix.vectors.subarray(start * stride, (start + length) * stride));
    dots(0, vectors, results, length, stride);
    for (let row = 0; row < length; row++) {
      const score = products[row] * matrix.factors[start + row] * unit;
      if (score < best.floor || (score === best.floor && best.items.length === best.limit)) continue;
      const key = matrix.keys[start + row];
      if (key.startsWith(prefix)) best.offer(score, { owner, key });
    }
  }
}

const owners = new Map();

const commands = {
  /** Adds rows or blocks to what there is of an owner. @returns bytes of all of it */
  add({ owner, keys, rows, blocks }) {
    const matrix = owners.get(owner) ?? new Matrix();
    owners.set(owner, matrix);
    if (rows !== undefined) matrix.addRows(keys, rows);
    for (const block of blocks ?? []) matrix.addBlock(block);
    return matrix.bytes;
  },
  remove({ owner, keys }) {
    for (const key of keys) owners.get(owner)?.remove(key);
  },
  drop({ owner }) {
    owners.delete(owner);
  },
  /** The nearest of some owners, whose keys begin with `prefix`, and which of the owners are not here. */
  search({ owners: wanted, query, prefix, limit, least }) {
    const best = new Best(limit, least);
    const missing = [];
    for (const owner of wanted) {
      const matrix = owners.get(owner);
      if (matrix === undefined) missing.push(owner);
      else if (matrix.dimensions === query.length) scan(matrix, query, owner, prefix, best);
    }
    return { found: best.items, missing };
  },
  pack: ({ keys, rows }) => pack(keys, rows),
};

parentPort.on("message", ({ id, name, input }) => {
  try {
    parentPort.postMessage({ id, result: commands[name](input) });
  } catch (error) {
    parentPort.postMessage({ id, problem: String(error?.stack ?? error) });
  }
});
