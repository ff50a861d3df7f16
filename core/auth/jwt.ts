/** The built-in provider `jwt` (contract, "Providers"). */
import type { JWTPayload, JWTVerifyOptions } from "jose";
import type { Logger } from "pino";
import { messageOf, ServiceError } from "../lib/errors.ts";
import type { JwtConfig, TokenKey } from "./jwt-key.ts";
import { FRESH, PublishedKeys } from "./jwt-keys.ts";
import type { TokenSource, Verified } from "./token-source.ts";

/** Seconds that clocks may differ. */
const TOLERANCE = 30;

const text = { type: "string", minLength: 1 };
const texts = { anyOf: [text, { type: "array", items: text, minItems: 1 }] };

/** JSON Schema of the keys beside `use` and `mapUser`. */
export const JWT_CONFIG = {
  type: "object",
  properties: {
    secret: { type: "string" },
    jwks: { type: "string" },
    algorithms: { type: "array", items: { type: "string" }, minItems: 1 },
    audience: texts,
    issuer: texts,
    requireExp: { type: "boolean", default: true },
    publicRoutes: { type: "array", items: { type: "string", pattern: "^([A-Z]+ )?/\\S*$" }, default: [] },
  },
  additionalProperties: false,
};

type Jose = typeof import("jose");
type Check = (token: string) => Promise<{ payload: JWTPayload }>;

/** Loads what checks signatures. */
export async function jwtSource(config: JwtConfig, key: TokenKey, logger: Logger): Promise<TokenSource> {
  const jose = await import("jose");
  const check = checkOf(jose, key, optionsOf(config, key.algorithms), logger);
  return {
    publicRoutes: config.publicRoutes,
    tolerance: TOLERANCE * 1000,
    // A key that is not published any more is good for nothing.
    memory: FRESH,
    async check(token): Promise<Verified | null> {
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

function optionsOf({ audience, issuer, requireExp }: JwtConfig, algorithms: readonly string[]): JWTVerifyOptions {
  const options: JWTVerifyOptions = { algorithms: [...algorithms], clockTolerance: TOLERANCE };
  if (audience !== undefined) options.audience = audience;
  if (issuer !== undefined) options.issuer = issuer;
  if (requireExp) options.requiredClaims = ["exp"];
  return options;
}

function checkOf(jose: Jose, { source }: TokenKey, options: JWTVerifyOptions, logger: Logger): Check {
  const { jwtVerify } = jose;
  if (!(source instanceof URL)) return (token) => jwtVerify(token, source, options);
  const { keyOf } = new PublishedKeys(source, logger, jose);
  return async (token) => {
    try {
      return await jwtVerify(token, keyOf, options);
    } catch (error) {
      // A token that does not name its key, where several may be meant.
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
