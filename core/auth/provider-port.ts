/** The interface of auth providers: for a token they return a user and the time of expiry. */
import type { User } from "../identity/principal.ts";

export interface Identity {
  readonly user: User;
  /** The token's expiry in milliseconds since 1970; null when it does not expire. */
  readonly expires: number | null;
  /** Milliseconds since 1970 from which it is refused: somewhat later than `expires`, because clocks differ. */
  readonly refusedFrom: number | null;
}

/** The data of a request that a provider gets beside the token. */
export interface TokenRequest {
  method: string;
  path: string;
  headers: Record<string, string>;
  query: Record<string, string>;
}

export interface Verifier {
  /** Patterns of routes that the provider makes public. */
  readonly publicRoutes: readonly string[];
  /**
   * Null for an invalid token. Answers synchronously when the answer is cached. `request` reads the head of the request: it may be called
   * only before the first await.
   *
   * @throws ServiceError `unavailable` (as a rejection) while the keys of the provider cannot be read
   */
  verify(token: string, request: () => TokenRequest): Promise<Identity | null> | Identity | null;
}
