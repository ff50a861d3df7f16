/** What tokens were good for, until they end. A token itself is not kept: whoever sees this cannot use it. */
import { hash } from "node:crypto";
import type { Identity } from "./provider-port.ts";

const MOST = 10_000;

interface Kept {
  readonly identity: Identity;
  /** Milliseconds since 1970. */
  readonly until: number;
}

export class TokenCache {
  readonly #kept = new Map<string, Kept>();
  readonly #most: number;

  /** @param most identities kept at once; when there are more, the oldest goes */
  constructor(most = MOST) {
    this.#most = most;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Undefined when nothing is known of the token, or not any more. */
  get(digest: string, now: number): Identity | undefined {
    const kept = this.#kept.get(digest);
    if (kept === undefined) return undefined;
    if (now < kept.until) return kept.identity;
    this.#kept.delete(digest);
    return undefined;
  }

  /** @param until milliseconds since 1970: it is looked at anew from then on */
  set(digest: string, identity: Identity, until: number): void {
    this.#kept.delete(digest);
    if (this.#kept.size >= this.#most) this.#kept.delete(this.#kept.keys().next().value!);
    this.#kept.set(digest, { identity, until });
  }
}

/** SHA-256 of a token. */
export const digestOf = (token: string): string => hash("sha256", token, "base64");
