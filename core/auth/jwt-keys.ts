/**
 * The keys that an identity provider publishes (JWKS). They are fetched with the first token and again when they are old or a token
 * names an unknown key, at most once per cooldown. While fetching fails the known keys stay in use, for an hour at most.
 */
import type { CryptoKey, FetchImplementation, FlattenedJWSInput, JWSHeaderParameters } from "jose";
import type { Logger } from "pino";
import { messageOf, unavailable } from "../lib/errors.ts";
import { readBytes } from "../outbound/body.ts";
import { outboundFetch } from "../outbound/proxy.ts";

/** Age at which the keys are fetched again. */
export const KEYS_MAX_AGE_MS = 10 * 60_000;
/** Shortest time between two fetches because of unknown keys. */
const UNKNOWN_KEY_COOLDOWN_MS = 30_000;
/** Delay after a failed fetch. */
const RETRY_DELAY_MS = 5_000;
/** How long known keys stay in use while fetching fails. */
const STALE_KEYS_MAX_AGE_MS = 60 * 60_000;
const FETCH_TIMEOUT_MS = 5_000;
const MAX_KEY_SET_BYTES = 1_000_000;

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

  /** Finds the key of a token. @throws ServiceError `unavailable` when the keys cannot be read and none are known */
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
      const response = await outboundFetch(address, options);
      if (response.status !== 200) throw new Error(`it answered ${response.status}`);
      const bytes = await readBytes(response.body, { bytes: MAX_KEY_SET_BYTES }, () => new Error("they are too large"));
      const keys = JSON.parse(String(bytes)) as Parameters<Jose["createLocalJWKSet"]>[0];
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
