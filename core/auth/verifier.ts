/** Verifies tokens with the configured source, maps their claims to users, and caches the result. */
import type { Logger } from "pino";
import { type User, userIdOf } from "../identity/user.ts";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { MapUser } from "./map-user.ts";
import type { Identity, TokenRequest, Verifier } from "./provider-port.ts";
import { digestToken, TokenCache } from "./token-cache.ts";
import type { TokenSource, VerifiedToken } from "./token-source.ts";

/** As for the ids of users in requests. */
const MAX_USER_ID_LENGTH = 256;

export class ProviderVerifier implements Verifier {
  readonly publicRoutes: readonly string[];
  readonly #source: TokenSource;
  readonly #toUser: MapUser;
  readonly #logger: Logger;
  readonly #cache = new TokenCache();

  constructor(source: TokenSource, map: MapUser, logger: Logger) {
    this.publicRoutes = source.publicRoutes;
    this.#source = source;
    this.#toUser = map;
    this.#logger = logger;
  }

  verify(token: string, request: () => TokenRequest): Promise<Identity | null> | Identity | null {
    if (this.#source.cacheMs === 0) return this.#check(token, request);
    const digest = digestToken(token);
    return this.#cache.get(digest, Date.now()) ?? this.#checkAndCache(digest, token, request);
  }

  async #checkAndCache(digest: string, token: string, request: () => TokenRequest): Promise<Identity | null> {
    const identity = await this.#check(token, request);
    if (identity === null) return null;
    const until = Math.min(identity.refusedFrom ?? Number.POSITIVE_INFINITY, Date.now() + this.#source.cacheMs);
    this.#cache.set(digest, identity, until);
    return identity;
  }

  async #check(token: string, request: () => TokenRequest): Promise<Identity | null> {
    const verified = await this.#source.check(token, request);
    if (verified === null) return null;
    const user = await this.#mapUser(verified);
    if (user === null) return null;
    const { expires } = verified;
    return { user, expires, refusedFrom: expires === null ? null : expires + this.#source.toleranceMs };
  }

  /** Null when the claims do not map to a user: then the token is refused. */
  async #mapUser({ claims }: VerifiedToken): Promise<User | null> {
    try {
      const user: unknown = await this.#toUser(claims);
      if (isObject(user) && (userIdOf(user)?.length ?? 0) > MAX_USER_ID_LENGTH) {
        this.#logger.warn(`the id of a user is longer than ${MAX_USER_ID_LENGTH} characters: the token is refused`);
        return null;
      }
      if (isObject(user)) return (this.#source.cacheMs === 0 ? user : deepFreeze(structuredClone(user))) as User;
      this.#logger.error("mapUser did not return an object: the token is refused");
    } catch (error) {
      this.#logger.error(`mapUser failed, the token is refused: ${messageOf(error)}`);
    }
    return null;
  }
}

/** Freezes a cached user, because many requests share it. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const key in value) deepFreeze(value[key]);
  return Object.freeze(value);
}
