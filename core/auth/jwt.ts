/** The built-in auth provider `jwt`: verifies signed JSON Web Tokens. */
import type { JWTPayload, JWTVerifyOptions } from "jose";
import type { Logger } from "pino";
import { messageOf, ServiceError } from "../lib/errors.ts";
import type { JwtConfig, TokenKey } from "./jwt-key.ts";
import { KEYS_MAX_AGE_MS, PublishedKeys } from "./jwt-keys.ts";
import type { TokenSource, VerifiedToken } from "./token-source.ts";

/** How far the clocks of the issuer and this machine may differ. */
const CLOCK_TOLERANCE_SECONDS = 30;

const TEXT = { type: "string", minLength: 1 };
const TEXT_OR_LIST = { anyOf: [TEXT, { type: "array", items: TEXT, minItems: 1 }] };

/** JSON Schema of the provider's keys beside `use` and `mapUser`. */
export const JWT_CONFIG = {
  type: "object",
  properties: {
    secret: { type: "string" },
    jwks: { type: "string" },
    algorithms: { type: "array", items: { type: "string" }, minItems: 1 },
    audience: TEXT_OR_LIST,
    issuer: TEXT_OR_LIST,
    requireExp: { type: "boolean", default: true },
    publicRoutes: { type: "array", items: { type: "string", pattern: "^([A-Z]+ )?/\\S*$" }, default: [] },
  },
  additionalProperties: false,
};

type Jose = typeof import("jose");
type Check = (token: string) => Promise<{ payload: JWTPayload }>;

/** Loads the library that verifies signatures. */
export async function jwtSource(config: JwtConfig, key: TokenKey, logger: Logger): Promise<TokenSource> {
  const jose = await import("jose");
  const check = compileCheck(jose, key, verifyOptions(config, key.algorithms), logger);
  return {
    publicRoutes: config.publicRoutes,
    toleranceMs: CLOCK_TOLERANCE_SECONDS * 1000,
    // Not longer than the keys themselves: a token whose key is no longer published must be refused.
    cacheMs: KEYS_MAX_AGE_MS,
    async check(token): Promise<VerifiedToken | null> {
      try {
        const { payload } = await check(token);
        const { exp } = payload;
        return { claims: payload, expires: exp === undefined ? null : exp * 1000 };
      } catch (error) {
        if (error instanceof ServiceError) throw error;
        logger.debug(`token refused: ${messageOf(error)}`);
        return null;
      }
    },
  };
}

function verifyOptions({ audience, issuer, requireExp }: JwtConfig, algorithms: readonly string[]): JWTVerifyOptions {
  const options: JWTVerifyOptions = { algorithms: [...algorithms], clockTolerance: CLOCK_TOLERANCE_SECONDS };
  if (audience !== undefined) options.audience = audience;
  if (issuer !== undefined) options.issuer = issuer;
  if (requireExp) options.requiredClaims = ["exp"];
  return options;
}

function compileCheck(jose: Jose, { source }: TokenKey, options: JWTVerifyOptions, logger: Logger): Check {
  const { jwtVerify } = jose;
  if (!(source instanceof URL)) return (token) => jwtVerify(token, source, options);
  const { findKey } = new PublishedKeys(source, logger, jose);
  return async (token) => {
    try {
      return await jwtVerify(token, findKey, options);
    } catch (error) {
      // The token does not name its key, and several published keys are possible: try each.
      if (!(error instanceof jose.errors.JWKSMultipleMatchingKeys)) throw error;
      for await (const key of error) {
        try {
          return await jwtVerify(token, key, options);
        } catch (failure) {
          if (!(failure instanceof jose.errors.JWSSignatureVerificationFailed)) throw failure;
        }
      }
      throw error;
    }
  };
}
