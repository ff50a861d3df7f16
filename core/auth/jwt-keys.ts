/**
 * The keys that an identity provider publishes: read when the first token comes, again when they are old or a token names
 * one that is not among them, and not more often than that. While they cannot be read those that are known go on.
 */
import type { CryptoKey, FetchImplementation, FlattenedJWSInput, JWSHeaderParameters } from "jose";
import type { Logger } from "pino";
import { messageOf, unavailable } from "../lib/errors.ts";

/** Milliseconds: keys are fresh; a look for an unknown key waits; one that failed is tried again; keys may be old. */
export const FRESH = 10 * 60_000;
const COOLDOWN = 30_000;
const PAUSE = 5_000;
const OLDEST = 60 * 60_000;
const TIMEOUT = 5_000;
/** Characters of a key set. */
const LARGEST = 1_000_000;

type Jose = typeof import("jose");
type KeyOf = (header?: JWSHeaderParameters, token?: FlattenedJWSInput) => Promise<CryptoKey>;

class Unreadable extends Error {
  override readonly name = "Unreadable";
}

export class PublishedKeys {
  readonly #host: string;
  readonly #logger: Logger;
  readonly #setOf: Jose["createLocalJWKSet"];
  readonly #remote: KeyOf;
  #known: KeyOf | null = null;
  #readAt = 0;
  #failedAt = 0;

  constructor(url: URL, logger: Logger, { createRemoteJWKSet, createLocalJWKSet, customFetch }: Jose) {
    this.#host = url.host;
    this.#logger = logger;
    this.#setOf = createLocalJWKSet;
    this.#remote = createRemoteJWKSet(url, {
      cacheMaxAge: FRESH,
      cooldownDuration: COOLDOWN,
      timeoutDuration: TIMEOUT,
      [customFetch]: (...parameters: Parameters<FetchImplementation>) => this.#fetch(...parameters),
    });
  }

  /** The key of a token. @throws ServiceError `unavailable` when the keys cannot be read and none are known */
  readonly keyOf: KeyOf = async (header, token) => {
    if (Date.now() - this.#failedAt >= PAUSE) {
      try {
        return await this.#remote(header, token);
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
      }
    }
    if (this.#known !== null && Date.now() - this.#readAt < OLDEST) return this.#known(header, token);
    throw unavailable("the keys of the identity provider cannot be read, try again");
  };

  async #fetch(...[address, options]: Parameters<FetchImplementation>): Promise<Response> {
    try {
      const response = await fetch(address, options);
      if (response.status !== 200) throw new Error(`it answered ${response.status}`);
      const text = await response.text();
      if (text.length > LARGEST) throw new Error("they are too large");
      const keys = JSON.parse(text) as Parameters<Jose["createLocalJWKSet"]>[0];
      this.#known = this.#setOf(keys);
      this.#readAt = Date.now();
      return Response.json(keys);
    } catch (error) {
      this.#failedAt = Date.now();
      this.#logger.warn({ host: this.#host }, `the keys of the identity provider cannot be read: ${messageOf(error)}`);
      throw new Unreadable();
    }
  }
}
