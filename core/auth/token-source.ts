/** The interface of what verifies tokens, without a cache: the built-in provider `jwt`, and providers of plugins. */
import type { Claims } from "./map-user.ts";
import type { TokenRequest } from "./provider-port.ts";

/** The content of a valid token. */
export interface VerifiedToken {
  readonly claims: Claims;
  /** Expiry in milliseconds since 1970; null when the token names none. */
  readonly expires: number | null;
}

export interface TokenSource {
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
