/** The built-in auth provider `jwt`: verifies signed JSON Web Tokens. */
import type {
  CryptoKey,
  FetchImplementation,
  FlattenedJWSInput,
  JWSHeaderParameters,
  JWTPayload,
  JWTVerifyOptions,
} from "jose";
import type { Logger } from "pino";
import { messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { readBytes } from "../outbound/body.ts";
import { outboundFetch } from "../outbound/proxy.ts";
import type { JwtConfig, TokenKey } from "./jwt-key.ts";
import type { TokenSource, VerifiedToken } from "./token-source.ts";

/*
 * The keys that an identity provider publishes (JWKS). They are fetched with the first token and again when they are old or a token
 * names an unknown key, at most once per cooldown. While fetching fails the known keys stay in use, for an hour at most.
 */

/** Age at which the keys are fetched again. */
const KEYS_MAX_AGE_MS = 10 * 60_000;
/** Shortest time between two fetches because of unknown keys. */
const UNKNOWN_KEY_COOLDOWN_MS = 30_000;
/** Delay after a failed fetch. */
const RETRY_DELAY_MS = 5_000;
/** How long known keys stay in use while fetching fails. */
const STALE_KEYS_MAX_AGE_MS = 60 * 60_000;
const FETCH_TIMEOUT_MS = 5_000;
const MAX_KEY_SET_BYTES = 1_000_000;

type FindKey = (header?: JWSHeaderParameters, token?: FlattenedJWSInput) => Promise<CryptoKey>;

class KeysUnreadable extends Error {
  override readonly name = "Unreadable";
}

class PublishedKeys {
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

/** How far the clocks of the issuer and this machine may differ. */
const CLOCK_TOLERANCE_SECONDS = 30;

const TEXT = { type: "string", minLength: 1 };
const TEXT_OR_LIST = { anyOf: [TEXT, { type: "array", items: TEXT, minItems: 1 }] };

/** JSON Schema of the provider's keys beside `use` and `mapUser`. */
export const JWT_CONFIG = {
  type: "object",
  properties: {
    secret: { type: "string" },
    jwks: { type: "string" },
    algorithms: { type: "array", items: { type: "string" }, minItems: 1 },
    audience: TEXT_OR_LIST,
    issuer: TEXT_OR_LIST,
    requireExp: { type: "boolean", default: true },
    publicRoutes: { type: "array", items: { type: "string", pattern: "^([A-Z]+ )?/\\S*$" }, default: [] },
  },
  additionalProperties: false,
};

type Jose = typeof import("jose");
type Check = (token: string) => Promise<{ payload: JWTPayload }>;

/** Loads the library that verifies signatures. */
export async function jwtSource(config: JwtConfig, key: TokenKey, logger: Logger): Promise<TokenSource> {
  const jose = await import("jose");
  const check = compileCheck(jose, key, verifyOptions(config, key.algorithms), logger);
  return {
    publicRoutes: config.publicRoutes,
    toleranceMs: CLOCK_TOLERANCE_SECONDS * 1000,
    // Not longer than the keys themselves: a token whose key is no longer published must be refused.
    cacheMs: KEYS_MAX_AGE_MS,
    async check(token): Promise<VerifiedToken | null> {
      try {
        const { payload } = await check(token);
        const { exp } = payload;
        return { claims: payload, expires: exp === undefined ? null : exp * 1000 };
      } catch (error) {
        if (error instanceof ServiceError) throw error;
        logger.debug(`token refused: ${messageOf(error)}`);
        return null;
      }
    },
  };
}

function verifyOptions({ audience, issuer, requireExp }: JwtConfig, algorithms: readonly string[]): JWTVerifyOptions {
  const options: JWTVerifyOptions = { algorithms: [...algorithms], clockTolerance: CLOCK_TOLERANCE_SECONDS };
  if (audience !== undefined) options.audience = audience;
  if (issuer !== undefined) options.issuer = issuer;
  if (requireExp) options.requiredClaims = ["exp"];
  return options;
}

function compileCheck(jose: Jose, { source }: TokenKey, options: JWTVerifyOptions, logger: Logger): Check {
  const { jwtVerify } = jose;
  if (!(source instanceof URL)) return (token) => jwtVerify(token, source, options);
  const { findKey } = new PublishedKeys(source, logger, jose);
  return async (token) => {
    try {
      return await jwtVerify(token, findKey, options);
    } catch (error) {
      // The token does not name its key, and several published keys are possible: try each.
      if (!(error instanceof jose.errors.JWKSMultipleMatchingKeys)) throw error;
      for await (const key of error) {
        try {
          return await jwtVerify(token, key, options);
        } catch (failure) {
          if (!(failure instanceof jose.errors.JWSSignatureVerificationFailed)) throw failure;
        }
      }
      throw error;
    }
  };
}
