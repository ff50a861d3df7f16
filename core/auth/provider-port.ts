/** What the service needs of an auth provider: a token goes in, a user with the time of expiry comes out. */
import type { User } from "../identity/user.ts";

export interface Identity {
  readonly user: User;
  /** Milliseconds since 1970 at which the token says it expires; null when it does not expire. */
  readonly expires: number | null;
  /** Milliseconds since 1970 from which it is refused: somewhat later than `expires`, since clocks differ. */
  readonly refusedFrom: number | null;
}

/** What a provider is told about a request, beside the token. */
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
   * Null for an invalid token. Answers synchronously when the answer is cached. `request` reads the head of the request: call it
   * before the first await only.
   *
   * @throws ServiceError `unavailable` (as a rejection) while the keys of the provider cannot be read
   */
  verify(token: string, request: () => TokenRequest): Promise<Identity | null> | Identity | null;
}
