/** With what the built-in provider `jwt` checks tokens: which key, and which algorithms go with a key of its kind. */
import { createPublicKey, createSecretKey, type KeyObject } from "node:crypto";
import { messageOf } from "../lib/errors.ts";
import type { Problem } from "../lib/problem.ts";

export interface JwtConfig {
  /** A shared secret (HS256), or a public key or certificate in PEM. */
  secret?: string;
  /** Where the provider publishes its keys. */
  jwks?: string;
  algorithms?: string[];
  audience?: string | string[];
  issuer?: string | string[];
  requireExp: boolean;
  publicRoutes: string[];
}

/** Algorithms are those of the configuration and of the key: what a token says about itself chooses among them alone. */
export interface TokenKey {
  readonly source: KeyObject | URL;
  readonly algorithms: readonly string[];
}

/** Bytes of a shared secret, and bits of an RSA key, at least. */
const SECRET = 32;
const MODULUS = 2048;

const HMAC = ["HS256", "HS384", "HS512"];
const RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
const EDWARDS = ["EdDSA", "Ed25519"];
const CURVES: Readonly<Record<string, readonly string[]>> = {
  prime256v1: ["ES256"],
  secp384r1: ["ES384"],
  secp521r1: ["ES512"],
};
const PUBLIC = [...RSA, "ES256", "ES384", "ES512", ...EDWARDS];

/** What a key can check, and what of it counts when the manifest does not say. */
interface Kind {
  readonly source: KeyObject | URL;
  readonly possible: readonly string[];
  readonly usual: readonly string[];
}

/** Paths of problems begin below `auth.provider`. */
export function tokenKeyOf(config: JwtConfig): TokenKey | { problems: Problem[] } {
  const kind = kindOf(config);
  if ("message" in kind) return { problems: [kind] };
  const { source, possible, usual } = kind;
  const { algorithms } = config;
  if (algorithms === undefined) return { source, algorithms: usual };
  const problems = algorithms.flatMap((name, index): Problem[] => {
    if (possible.includes(name)) return [];
    const message = `"${name}" is no algorithm for this kind of key; possible: ${possible.join(", ")}`;
    return [{ path: ["algorithms", index], message }];
  });
  return problems.length > 0 ? { problems } : { source, algorithms };
}

function kindOf({ secret = "", jwks = "" }: JwtConfig): Kind | Problem {
  if (secret !== "" && jwks !== "") return { path: ["jwks"], message: "stands beside secret: only one of them can be" };
  if (jwks !== "") return published(jwks);
  // A key in an environment variable often has its line ends written out.
  if (secret.includes("-----BEGIN ")) return ofPem(secret.replaceAll("\\n", "\n"));
  const bytes = Buffer.byteLength(secret);
  if (bytes >= SECRET) return { source: createSecretKey(secret, "utf8"), possible: HMAC, usual: ["HS256"] };
  if (bytes === 0) return { path: ["secret"], message: "is needed, or jwks: without a key no token can be checked" };
  return { path: ["secret"], message: `must have at least ${SECRET} bytes, not ${bytes}: shorter ones can be guessed` };
}

function published(jwks: string): Kind | Problem {
  const url = URL.canParse(jwks) ? new URL(jwks) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return { path: ["jwks"], message: "must be an address such as https://login.example/.well-known/jwks.json" };
  }
  return { source: url, possible: PUBLIC, usual: PUBLIC };
}

function ofPem(pem: string): Kind | Problem {
  const problem = (message: string): Problem => ({ path: ["secret"], message });
  if (pem.includes("PRIVATE KEY-----")) return problem("is a private key: tokens are checked with the public one");
  let source: KeyObject;
  try {
    source = createPublicKey(pem);
  } catch (error) {
    return problem(`is no public key in PEM that can be read: ${messageOf(error)}`);
  }
  const { asymmetricKeyType: type = "", asymmetricKeyDetails: details = {} } = source;
  if (type === "rsa") {
    const { modulusLength = 0 } = details;
    if (modulusLength < MODULUS) return problem(`must have at least ${MODULUS} bits, not ${modulusLength}`);
    return { source, possible: RSA, usual: ["RS256"] };
  }
  const possible = type === "ed25519" ? EDWARDS : CURVES[details.namedCurve ?? ""];
  if (possible === undefined) return problem(`is a key of a kind that signs no tokens: ${type}`);
  return { source, possible, usual: possible };
}
