import type { User } from "../identity/user.ts";

export interface Identity {
  readonly user: User;
  /** Milliseconds since 1970 at which the token ends by its own account; null when it does not. */
  readonly expires: number | null;
  /** Milliseconds since 1970 from which it is refused: somewhat later, since clocks differ. */
  readonly refusedFrom: number | null;
}

/** What a provider is told of a request beside the token. */
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
   * Null for a token that is not good. Answers at once where the answer is known. `request` reads the head: it may be
   * called before the first await only.
   *
   * @throws ServiceError `unavailable` (as a rejection) while nobody can know: the keys of the provider cannot be read
   */
  verify(token: string, request: () => TokenRequest): Promise<Identity | null> | Identity | null;
}
