/**
 * The keys that an identity provider publishes: read when the first token comes, again when they are old or a token names
 * one that is not among them, and not more often than that. While they cannot be read those that are known go on.
 */
import type { CryptoKey, FetchImplementation, FlattenedJWSInput, JWSHeaderParameters } from "jose";
import type { Logger } from "pino";
import { messageOf, unavailable } from "../lib/errors.ts";

/** Milliseconds: keys are fresh; a look for an unknown key waits; one that failed is tried again; keys may be old. */
export const KEYS_MAX_AGE_MS = 10 * 60_000;
const UNKNOWN_KEY_COOLDOWN_MS = 30_000;
const RETRY_DELAY_MS = 5_000;
const STALE_KEYS_MAX_AGE_MS = 60 * 60_000;
const FETCH_TIMEOUT_MS = 5_000;
/** Characters of a key set. */
const MAX_KEY_SET_CHARACTERS = 1_000_000;

type Jose = typeof import("jose");
type FindKey = (header?: JWSHeaderParameters, token?: FlattenedJWSInput) => Promise<CryptoKey>;

class KeysUnreadable extends Error {
  override readonly name = "Unreadable";
}

export class PublishedKeys {
  readonly #host: string;
  readonly #logger: Logger;
  readonly #compileKeySet: Jose["createLocalJWKSet"];
  readonly #findRemote: FindKey;
  #findKnown: FindKey | null = null;
  #readAt = 0;
  #failedAt = 0;

  constructor(url: URL, logger: Logger, { createRemoteJWKSet, createLocalJWKSet, customFetch }: Jose) {
    this.#host = url.host;
    this.#logger = logger;
    this.#compileKeySet = createLocalJWKSet;
    this.#findRemote = createRemoteJWKSet(url, {
      cacheMaxAge: KEYS_MAX_AGE_MS,
      cooldownDuration: UNKNOWN_KEY_COOLDOWN_MS,
      timeoutDuration: FETCH_TIMEOUT_MS,
      [customFetch]: (...parameters: Parameters<FetchImplementation>) => this.#fetch(...parameters),
    });
  }

  /** The key of a token. @throws ServiceError `unavailable` when the keys cannot be read and none are known */
  readonly findKey: FindKey = async (header, token) => {
    if (Date.now() - this.#failedAt >= RETRY_DELAY_MS) {
      try {
        return await this.#findRemote(header, token);
      } catch (error) {
        if (!(error instanceof KeysUnreadable)) throw error;
      }
    }
    if (this.#findKnown !== null && Date.now() - this.#readAt < STALE_KEYS_MAX_AGE_MS)
      return this.#findKnown(header, token);
    throw unavailable("the keys of the identity provider cannot be read, try again");
  };

  async #fetch(...[address, options]: Parameters<FetchImplementation>): Promise<Response> {
    try {
      const response = await fetch(address, options);
      if (response.status !== 200) throw new Error(`it answered ${response.status}`);
      const text = await response.text();
      if (text.length > MAX_KEY_SET_CHARACTERS) throw new Error("they are too large");
      const keys = JSON.parse(text) as Parameters<Jose["createLocalJWKSet"]>[0];
      this.#findKnown = this.#compileKeySet(keys);
      this.#readAt = Date.now();
      return Response.json(keys);
    } catch (error) {
      this.#failedAt = Date.now();
      this.#logger.warn({ host: this.#host }, `the keys of the identity provider cannot be read: ${messageOf(error)}`);
      throw new KeysUnreadable();
    }
  }
}
