/**
 * What checks tokens, each in its way, without a memory of its own: the built-in provider `jwt`, and providers of plugins.
 */
import type { Claims } from "./map-user.ts";
import type { TokenRequest } from "./provider-port.ts";

/** A token that is good. */
export interface VerifiedToken {
  readonly claims: Claims;
  /** Milliseconds since 1970 at which it ends by its own account; null when it does not say. */
  readonly expires: number | null;
}

export interface TokenSource {
  readonly publicRoutes: readonly string[];
  /** Milliseconds for which a token is still good after its end, since clocks differ. */
  readonly toleranceMs: number;
  /** Milliseconds for which an answer may be remembered at most; 0: not at all. */
  readonly cacheMs: number;
  /**
   * Null for a token that is not good. `request` is called before the first await only.
   *
   * @throws ServiceError `unavailable` while nobody can know
   */
  check(token: string, request: () => TokenRequest): Promise<VerifiedToken | null>;
}
