/** Caches the users of verified tokens until they expire. It keeps only digests of tokens, so that its content cannot be used to log in. */
import { hash } from "node:crypto";
import type { Identity } from "./provider-port.ts";

const MAX_TOKENS = 10_000;

interface CacheEntry {
  readonly identity: Identity;
  /** Milliseconds since 1970. */
  readonly until: number;
}

export class TokenCache {
  readonly #entries = new Map<string, CacheEntry>();
  readonly #maxTokens: number;

  /** @param maxTokens entries kept at once; beyond that the oldest one is removed */
  constructor(maxTokens = MAX_TOKENS) {
    this.#maxTokens = maxTokens;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Undefined when the token is unknown, or its entry has expired. */
  get(digest: string, now: number): Identity | undefined {
    const entry = this.#entries.get(digest);
    if (entry === undefined) return undefined;
    if (now < entry.until) return entry.identity;
    this.#entries.delete(digest);
    return undefined;
  }

  /** @param until milliseconds since 1970, when the token must be verified again */
  set(digest: string, identity: Identity, until: number): void {
    this.#entries.delete(digest);
    if (this.#entries.size >= this.#maxTokens) this.#entries.delete(this.#entries.keys().next().value!);
    this.#entries.set(digest, { identity, until });
  }
}

/** SHA-256 of a token. */
export const digestToken = (token: string): string => hash("sha256", token, "base64");
