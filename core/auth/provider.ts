/** Opens the auth provider that `auth.provider` names, at boot. */

import { hash } from "node:crypto";
import type {
  CryptoKey,
  FetchImplementation,
  FlattenedJWSInput,
  JWSHeaderParameters,
  JWTPayload,
  JWTVerifyOptions,
} from "jose";
import type { Logger } from "pino";
import { type User, userIdOf } from "../identity/principal.ts";
import { messageOf, type Path, type Problem, ServiceError, unavailable } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { maskText } from "../manifest/environment.ts";
import { type AuthProviderManifest, hint, type Manifest } from "../manifest/manifest.ts";
import { isPublic } from "../manifest/notices.ts";
import { readBytes } from "../outbound/body.ts";
import { outboundFetch } from "../outbound/proxy.ts";
import type { AuthPlugin, AuthProvider, Host } from "../plugin/plugin.ts";
import { CreateError, configProblems, configure, createInstance } from "../registry/create.ts";
import type { Registry } from "../registry/registry.ts";
import { compileTokenKey, type JwtConfig, type TokenKey } from "./jwt-key.ts";
import { type Claims, compileMapUser, givesId, type MapUser } from "./map-user.ts";
import type { Identity, TokenRequest, Verifier } from "./provider-port.ts";

// The interface of what verifies tokens, without a cache: the built-in provider `jwt`, and providers of plugins.

/** The content of a valid token. */
interface VerifiedToken {
  readonly claims: Claims;
  /** Expiry in milliseconds since 1970; null when the token names none. */
  readonly expires: number | null;
}

interface TokenSource {
  readonly publicRoutes: readonly string[];
  /** Milliseconds for which a token is still accepted after its expiry, because clocks differ. */
  readonly toleranceMs: number;
  /** Milliseconds for which an answer may be cached at most; 0 when it must not be. */
  readonly cacheMs: number;
  /**
   * Null for an invalid token. `request` may be called only before the first await.
   *
   * @throws ServiceError `unavailable` while tokens cannot be verified
   */
  check(token: string, request: () => TokenRequest): Promise<VerifiedToken | null>;
}

/* The built-in auth provider `jwt`: verifies signed JSON Web Tokens. */

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
const JWT_CONFIG = {
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
async function jwtSource(config: JwtConfig, key: TokenKey, logger: Logger): Promise<TokenSource> {
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

// Verifies tokens with the configured source, maps their claims to users, and caches the result.

// Caches the users of verified tokens until they expire. It keeps only digests of tokens, so that its content cannot be used to log in.

const MAX_TOKENS = 10_000;

interface CacheEntry {
  readonly identity: Identity;
  /** Milliseconds since 1970. */
  readonly until: number;
}

/** @param maxTokens entries kept at once; beyond that the oldest one is removed */
export function createTokenCache(maxTokens = MAX_TOKENS) {
  const entries = new Map<string, CacheEntry>();

  /** Undefined when the token is unknown, or its entry has expired. */
  function get(digest: string, now: number): Identity | undefined {
    const entry = entries.get(digest);
    if (entry === undefined) return undefined;
    if (now < entry.until) return entry.identity;
    entries.delete(digest);
    return undefined;
  }

  /** @param until milliseconds since 1970, when the token must be verified again */
  function set(digest: string, identity: Identity, until: number): void {
    entries.delete(digest);
    if (entries.size >= maxTokens) entries.delete(entries.keys().next().value!);
    entries.set(digest, { identity, until });
  }

  return {
    get size(): number {
      return entries.size;
    },
    get,
    set,
  };
}

/** SHA-256 of a token. */
export const digestToken = (token: string): string => hash("sha256", token, "base64");

/** As for the ids of users in requests. */
const MAX_USER_ID_LENGTH = 256;

function createProviderVerifier(source: TokenSource, map: MapUser, logger: Logger): Verifier {
  const cache = createTokenCache();
  const publicRoutes = source.publicRoutes;
  const toUser = map;

  function verify(token: string, request: () => TokenRequest): Promise<Identity | null> | Identity | null {
    if (source.cacheMs === 0) return check(token, request);
    const digest = digestToken(token);
    return cache.get(digest, Date.now()) ?? checkAndCache(digest, token, request);
  }

  async function checkAndCache(digest: string, token: string, request: () => TokenRequest): Promise<Identity | null> {
    const identity = await check(token, request);
    if (identity === null) return null;
    const until = Math.min(identity.refusedFrom ?? Number.POSITIVE_INFINITY, Date.now() + source.cacheMs);
    cache.set(digest, identity, until);
    return identity;
  }

  async function check(token: string, request: () => TokenRequest): Promise<Identity | null> {
    const verified = await source.check(token, request);
    if (verified === null) return null;
    const user = await mapUser(verified);
    if (user === null) return null;
    const { expires } = verified;
    return { user, expires, refusedFrom: expires === null ? null : expires + source.toleranceMs };
  }

  /** Null when the claims do not map to a user: then the token is refused. */
  async function mapUser({ claims }: VerifiedToken): Promise<User | null> {
    try {
      const user: unknown = await toUser(claims);
      if (isObject(user) && (userIdOf(user)?.length ?? 0) > MAX_USER_ID_LENGTH) {
        logger.warn(`the id of a user is longer than ${MAX_USER_ID_LENGTH} characters: the token is refused`);
        return null;
      }
      if (isObject(user)) return (source.cacheMs === 0 ? user : deepFreeze(structuredClone(user))) as User;
      logger.error("mapUser did not return an object: the token is refused");
    } catch (error) {
      logger.error(`mapUser failed, the token is refused: ${messageOf(error)}`);
    }
    return null;
  }

  return { publicRoutes, verify };
}

/** Freezes a cached user, because many requests share it. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const key in value) deepFreeze(value[key]);
  return Object.freeze(value);
}

const BUILT_IN_PROVIDER = "jwt";
const PROVIDER_PATH = ["auth", "provider"] as const;

interface OpenedVerifier {
  /** Null without a provider, without authentication, and when one of the problems is an error. */
  readonly verifier: Verifier | null;
  readonly problems: readonly Problem[];
}

interface ProviderParts {
  readonly registry: Registry;
  readonly host: Host;
  /** Name of the environment variable that a value of the manifest refers to. */
  variableOf?(path: Path): string | undefined;
}

/** Never throws: failures are returned as problems. */
export async function openVerifier(manifest: Pick<Manifest, "auth">, parts: ProviderParts): Promise<OpenedVerifier> {
  const { mode, provider, isolation } = manifest.auth;
  if (mode === "none" || provider === undefined) return { verifier: null, problems: [] };
  const { mapUser } = provider;
  const problems: Problem[] = [];
  let map: MapUser | null = null;
  try {
    map = compileMapUser(mapUser, parts.registry);
  } catch (error) {
    problems.push({ path: [...PROVIDER_PATH, "mapUser", "use"], message: messageOf(error) });
  }
  problems.push(...providerWarnings(provider, isolation === "user"));
  const logger = parts.host.logger.child({ auth: provider.use });
  const source = await makeSource(provider, parts, logger);
  if (Array.isArray(source)) return { verifier: null, problems: [...problems, ...source] };
  if (map === null) return { verifier: null, problems };
  return { verifier: createProviderVerifier(source, map, logger), problems };
}

function providerWarnings({ use, mapUser, jwks }: AuthProviderManifest, isolated: boolean): Problem[] {
  const warnings: Problem[] = [];
  const warn = (key: string, message: string) =>
    warnings.push({ path: [...PROVIDER_PATH, key], message, severity: "warning" });
  if (isolated && !givesId(mapUser)) {
    warn("mapUser", "no field id or sub: stored objects belong to users, and these users would have none");
  }
  if (use === BUILT_IN_PROVIDER && typeof jwks === "string" && /^http:/i.test(jwks) && URL.canParse(jwks)) {
    const { hostname } = new URL(jwks);
    if (isPublic(hostname))
      warn("jwks", `keys come over http: whoever stands between ${hostname} and here may change them`);
  }
  return warnings;
}

async function makeSource(
  provider: AuthProviderManifest,
  { registry, host, variableOf }: ProviderParts,
  logger: Logger,
): Promise<TokenSource | Problem[]> {
  const { use, mapUser: _, ...rest } = provider;
  // Keys that begin with `x-` are the user's own notes.
  const config = Object.fromEntries(Object.entries(rest).filter(([key]) => !key.startsWith("x-")));
  const plugin = registry.get("auth", use);
  const { env, signal, onClose, keyv } = host;
  if (plugin !== undefined) return pluginProvider(plugin, config, { name: use, logger, env, signal, onClose, keyv });
  if (use !== BUILT_IN_PROVIDER) {
    const message = `no auth plugin "${use}"${hint(use, [BUILT_IN_PROVIDER, ...registry.names("auth")])}`;
    return [{ path: [...PROVIDER_PATH, "use"], message }];
  }
  const configured = configure({ config: JWT_CONFIG }, config);
  if (configured.config === null) return configProblems(PROVIDER_PATH, configured.problem, JWT_CONFIG);
  const jwt = configured.config as unknown as JwtConfig;
  const key = compileTokenKey(jwt);
  if (!("problems" in key)) return jwtSource(jwt, key, logger);
  return key.problems.map(({ path, message }) => {
    const place = [...PROVIDER_PATH, ...path];
    const variable = variableOf?.(place);
    return { path: place, message: variable === undefined ? message : `${message} (from ${variable})` };
  });
}

async function pluginProvider(plugin: AuthPlugin, config: object, host: Host): Promise<TokenSource | Problem[]> {
  try {
    return pluginSource(await createInstance(plugin, config, host), host.logger);
  } catch (error) {
    if (error instanceof CreateError && error.phase === "config")
      return configProblems(PROVIDER_PATH, error.message, plugin.config);
    return [{ path: PROVIDER_PATH, message: messageOf(error) }];
  }
}

// Verifies tokens with the auth provider of a plugin. An exception, and any result but a user object, refuses the token.

function pluginSource(provider: AuthProvider, logger: Logger): TokenSource {
  return {
    publicRoutes: provider.publicRoutes ?? [],
    // Not cached: only the plugin knows how long its answer is valid.
    cacheMs: 0,
    toleranceMs: 0,
    async check(token: string, request: () => TokenRequest): Promise<VerifiedToken | null> {
      try {
        const user: unknown = await provider.verifyToken(token, request());
        if (user === null || user === undefined) return null;
        if (typeof user !== "object" || Array.isArray(user)) {
          logger.error("verifyToken must return a user object: the token is refused");
          return null;
        }
        const claims = user as VerifiedToken["claims"];
        const { exp } = claims;
        if (exp === undefined || exp === null) return { claims, expires: null };
        if (typeof exp === "number" && exp * 1000 > Date.now()) return { claims, expires: exp * 1000 };
        if (typeof exp === "number") logger.debug("token refused: exp of its user has passed");
        else
          logger.error("exp must be a number of seconds since 1970 in what verifyToken returns: the token is refused");
        return null;
      } catch (error) {
        // Many plugins throw for an invalid token, and some repeat the token in the message.
        logger.debug(`token refused: ${maskText(messageOf(error), [token])}`);
        return null;
      }
    },
  };
}
