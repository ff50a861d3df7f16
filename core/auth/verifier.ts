/** A provider with its users mapped, and the tokens that it knows remembered. */

import type { Logger } from "pino";
import type { User } from "../identity/user.ts";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { MapUser } from "./map-user.ts";
import type { Identity, TokenRequest, Verifier } from "./provider-port.ts";
import { digestOf, TokenCache } from "./token-cache.ts";
import type { TokenSource, Verified } from "./token-source.ts";

export class ProviderVerifier implements Verifier {
  readonly publicRoutes: readonly string[];
  readonly #source: TokenSource;
  readonly #map: MapUser;
  readonly #logger: Logger;
  readonly #cache = new TokenCache();

  constructor(source: TokenSource, map: MapUser, logger: Logger) {
    this.publicRoutes = source.publicRoutes;
    this.#source = source;
    this.#map = map;
    this.#logger = logger;
  }

  verify(token: string, request: () => TokenRequest): Promise<Identity | null> | Identity | null {
    if (this.#source.memory === 0) return this.#ask(token, request);
    const digest = digestOf(token);
    return this.#cache.get(digest, Date.now()) ?? this.#remember(digest, token, request);
  }

  async #remember(digest: string, token: string, request: () => TokenRequest): Promise<Identity | null> {
    const identity = await this.#ask(token, request);
    if (identity === null) return null;
    const until = Math.min(identity.refused ?? Number.POSITIVE_INFINITY, Date.now() + this.#source.memory);
    this.#cache.set(digest, identity, until);
    return identity;
  }

  async #ask(token: string, request: () => TokenRequest): Promise<Identity | null> {
    const verified = await this.#source.check(token, request);
    if (verified === null) return null;
    const user = await this.#userOf(verified);
    if (user === null) return null;
    const { expires } = verified;
    return { user, expires, refused: expires === null ? null : expires + this.#source.tolerance };
  }

  /** Null when there is none: then the token is good for nothing. */
  async #userOf({ claims }: Verified): Promise<User | null> {
    try {
      const user: unknown = await this.#map(claims);
      if (isObject(user)) return (this.#source.memory === 0 ? user : frozen(structuredClone(user))) as User;
      this.#logger.error("mapUser gave no object: the token is refused");
    } catch (error) {
      this.#logger.error(`mapUser failed, the token is refused: ${messageOf(error)}`);
    }
    return null;
  }
}

/** What many requests share must be changed by none of them. */
function frozen<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const key in value) frozen(value[key]);
  return Object.freeze(value);
}
