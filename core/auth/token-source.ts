/** What verifies tokens, without a cache of its own: the built-in provider `jwt`, and providers of plugins. */
import type { Claims } from "./map-user.ts";
import type { TokenRequest } from "./provider-port.ts";

/** What a valid token says. */
export interface VerifiedToken {
  readonly claims: Claims;
  /** Milliseconds since 1970 at which it says it expires; null when it does not say. */
  readonly expires: number | null;
}

export interface TokenSource {
  readonly publicRoutes: readonly string[];
  /** Milliseconds for which a token is still accepted after its expiry, since clocks differ. */
  readonly toleranceMs: number;
  /** Milliseconds for which an answer may be cached at most; 0: not at all. */
  readonly cacheMs: number;
  /**
   * Null for an invalid token. `request` may be called before the first await only.
   *
   * @throws ServiceError `unavailable` while tokens cannot be verified
   */
  check(token: string, request: () => TokenRequest): Promise<VerifiedToken | null>;
}
