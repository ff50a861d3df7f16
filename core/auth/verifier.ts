/** Verifies tokens with the configured source, maps their claims to users, and caches the result. */

import { hash } from "node:crypto";
import type { Logger } from "pino";
import { type User, userIdOf } from "../identity/user.ts";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { MapUser } from "./map-user.ts";
import type { Identity, TokenRequest, Verifier } from "./provider-port.ts";
import type { TokenSource, VerifiedToken } from "./token-source.ts";

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

export function createProviderVerifier(source: TokenSource, map: MapUser, logger: Logger): Verifier {
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
