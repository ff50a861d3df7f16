/** What tokens were good for, until they end. A token itself is not kept: whoever sees this cannot use it. */
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

  /** @param maxTokens identities kept at once; when there are more, the oldest goes */
  constructor(maxTokens = MAX_TOKENS) {
    this.#maxTokens = maxTokens;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Undefined when nothing is known of the token, or not any more. */
  get(digest: string, now: number): Identity | undefined {
    const entry = this.#entries.get(digest);
    if (entry === undefined) return undefined;
    if (now < entry.until) return entry.identity;
    this.#entries.delete(digest);
    return undefined;
  }

  /** @param until milliseconds since 1970: it is looked at anew from then on */
  set(digest: string, identity: Identity, until: number): void {
    this.#entries.delete(digest);
    if (this.#entries.size >= this.#maxTokens) this.#entries.delete(this.#entries.keys().next().value!);
    this.#entries.set(digest, { identity, until });
  }
}

/** SHA-256 of a token. */
export const digestToken = (token: string): string => hash("sha256", token, "base64");
