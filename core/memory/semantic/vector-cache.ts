/** Which owners' vectors the scan thread has: a bounded number of bytes, of which the least recently used are given up. */
import type { OwnerKeys } from "./layout.ts";
import { ScanThread, type StoredVectors } from "./scan-thread.ts";
import type { Progress } from "./stored-vectors.ts";

/** Room for 100,000 vectors of 1,536 dimensions, or 300,000 of 512. */
const CACHE_BYTES = 192 * 1024 * 1024;
/** What an owner costs who has no vectors. */
const OWNER_BYTES = 1_000;
/** Owners remembered to have more vectors than the cache holds; beyond this number they are found out again. */
const MAX_LARGE_OWNERS = 1_000;

/** The vectors of an owner as of the value `changes` of the owner's counter; NaN while they are being read. */
export interface CachedOwner {
  readonly keys: OwnerKeys;
  changes: number;
  bytes: number;
  readonly progress: Progress;
}

/** One for all memories of a service. */
export class VectorCache {
  readonly thread = new ScanThread(() => this.#forgetAll());
  /** By prefix of the owner's vectors, the least recently used first. */
  readonly #owners = new Map<string, CachedOwner>();
  readonly #large = new Set<string>();
  readonly #limit: number;
  #bytes = 0;

  /** @param limit bytes of all owners together */
  constructor(limit = CACHE_BYTES) {
    this.#limit = limit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(name: string): CachedOwner | undefined {
    const found = this.#owners.get(name);
    if (found === undefined) return undefined;
    this.#owners.delete(name);
    this.#owners.set(name, found);
    return found;
  }

  /** Like `get`, but does not count as use. */
  peek(name: string): CachedOwner | undefined {
    return this.#owners.get(name);
  }

  /** The owner is about to be read, for the first time or again: what was read before stays. */
  begin(keys: OwnerKeys): CachedOwner {
    const known = this.#owners.get(keys.vectors);
    if (known === undefined) this.#bytes += OWNER_BYTES;
    const { bytes = OWNER_BYTES, progress = { blocks: 0 } } = known ?? {};
    const owner: CachedOwner = { keys, changes: Number.NaN, bytes, progress };
    this.#owners.delete(keys.vectors);
    this.#owners.set(keys.vectors, owner);
    return owner;
  }

  /** @returns false when the owner is no longer in the cache, or does not fit into it */
  async add(owner: CachedOwner, vectors: StoredVectors): Promise<boolean> {
    const name = owner.keys.vectors;
    if (this.#owners.get(name) !== owner) return false;
    const bytes = OWNER_BYTES + (await this.thread.add(name, vectors));
    if (this.#owners.get(name) !== owner) return false;
    this.#bytes += bytes - owner.bytes;
    owner.bytes = bytes;
    if (bytes > this.#limit) {
      if (this.#large.size >= MAX_LARGE_OWNERS) this.#large.clear();
      this.#large.add(name);
      this.drop(owner);
      return false;
    }
    for (const other of this.#owners.values()) {
      if (this.#bytes <= this.#limit) break;
      if (other !== owner) this.drop(other);
    }
    return true;
  }

  /** Whether the owner is known to have more vectors than fit. */
  isLarge(name: string): boolean {
    return this.#large.has(name);
  }

  drop({ keys: { vectors } }: CachedOwner): void {
    this.#bytes -= this.#owners.get(vectors)?.bytes ?? 0;
    this.#owners.delete(vectors);
    // It fails only with the thread, and with that everything is gone.
    this.thread.drop(vectors).catch(() => {});
  }

  /** Drops all owners whose vectors have this prefix. */
  forget(prefix: string): void {
    for (const [name, owner] of this.#owners) if (name.startsWith(prefix)) this.drop(owner);
    for (const name of this.#large) if (name.startsWith(prefix)) this.#large.delete(name);
  }

  #forgetAll(): void {
    this.#owners.clear();
    this.#bytes = 0;
  }
}
