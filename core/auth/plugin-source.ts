/** Verifies tokens with the auth provider of a plugin. An exception, and any result but a user object, refuses the token. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { maskText } from "../manifest/environment.ts";
import type { AuthProvider } from "../plugin/plugin.ts";
import type { TokenRequest } from "./provider-port.ts";
import type { TokenSource, VerifiedToken } from "./token-source.ts";

export function pluginSource(provider: AuthProvider, logger: Logger): TokenSource {
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
