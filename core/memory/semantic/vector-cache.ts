/** A cache of vectors: one matrix for each owner, of which the least recently used are evicted. */
import { type Nearest, similarity } from "./nearest.ts";
import type { VectorRow } from "./rows.ts";
import type { MessagePlace } from "./semantic.ts";

/** A search yields to the event loop after this many rows, which take some milliseconds. */
const ROWS_PER_TURN = 4_096;
/** Memory of a row beside its vector: two ids and their entries in a list and a map. */
const ROW_BYTES = 200;

/** All vectors of one owner, as of the value `changes` of the owner's change counter. */
export class OwnerVectors {
  readonly owner: string;
  changes: number;
  #dimensions = 0;
  #matrix = new Float32Array(0);
  readonly #conversations: string[] = [];
  readonly #messages: string[] = [];
  readonly #rows = new Map<string, number>();

  constructor(owner: string, changes: number) {
    this.owner = owner;
    this.changes = changes;
  }

  get bytes(): number {
    return this.#matrix.byteLength + this.#messages.length * ROW_BYTES;
  }

  /** Adds or replaces. */
  set({ conversation, message, vector }: VectorRow): void {
    if (this.#dimensions === 0) this.#dimensions = vector.length;
    // A vector of another length comes from another model, and cannot be compared.
    if (vector.length !== this.#dimensions) return;
    const key = `${conversation}\0${message}`;
    let row = this.#rows.get(key);
    if (row === undefined) {
      row = this.#messages.length;
      this.#rows.set(key, row);
      this.#conversations.push(conversation);
      this.#messages.push(message);
      this.#reserve((row + 1) * this.#dimensions);
    }
    this.#matrix.set(vector, row * this.#dimensions);
  }

  #reserve(length: number): void {
    if (length <= this.#matrix.length) return;
    const larger = new Float32Array(Math.max(length, this.#matrix.length * 1.5, this.#dimensions * 16) | 0);
    larger.set(this.#matrix);
    this.#matrix = larger;
  }

  async search(query: Float32Array, conversation: string | undefined, nearest: Nearest<MessagePlace>): Promise<void> {
    if (query.length !== this.#dimensions) return;
    const count = this.#messages.length;
    for (let row = 0; row < count; row++) {
      if (row % ROWS_PER_TURN === ROWS_PER_TURN - 1) await new Promise(setImmediate);
      if (conversation !== undefined && this.#conversations[row] !== conversation) continue;
      const score = similarity(query, this.#matrix, row * this.#dimensions);
      if (score < nearest.floor) continue;
      const place = { owner: this.owner, conversation: this.#conversations[row]!, message: this.#messages[row]! };
      nearest.offer(score, place);
    }
  }
}

/** A bounded set of owners. All changes of cached vectors go through it, so that it knows its size. */
export class VectorCache {
  /** The least recently used first. */
  readonly #owners = new Map<string, OwnerVectors>();
  readonly #limit: number;
  #bytes = 0;

  /** @param limit bytes of all owners together */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get limit(): number {
    return this.#limit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(owner: string): OwnerVectors | undefined {
    const found = this.#owners.get(owner);
    if (found === undefined) return undefined;
    this.#owners.delete(owner);
    this.#owners.set(owner, found);
    return found;
  }

  /** Like `get`, but does not count as use. */
  peek(owner: string): OwnerVectors | undefined {
    return this.#owners.get(owner);
  }

  set(vectors: OwnerVectors): void {
    this.#drop(vectors.owner);
    this.#owners.set(vectors.owner, vectors);
    this.#bytes += vectors.bytes;
    this.#trim();
  }

  /** Adds or replaces a row of a cached owner, and counts the change. */
  add(vectors: OwnerVectors, row: VectorRow): void {
    const before = vectors.bytes;
    vectors.set(row);
    vectors.changes++;
    this.#bytes += vectors.bytes - before;
    this.#trim();
  }

  clear(): void {
    this.#owners.clear();
    this.#bytes = 0;
  }

  #drop(owner: string): void {
    this.#bytes -= this.#owners.get(owner)?.bytes ?? 0;
    this.#owners.delete(owner);
  }

  #trim(): void {
    for (const owner of this.#owners.keys()) {
      if (this.#bytes <= this.#limit) return;
      this.#drop(owner);
    }
  }
}
