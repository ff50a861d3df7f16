/** The key with which the provider `jwt` verifies tokens, and the algorithms that its kind of key allows. */
import { createPublicKey, createSecretKey, type KeyObject } from "node:crypto";
import { messageOf, type Problem } from "../lib/errors.ts";

export interface JwtConfig {
  /** A shared secret (HS256), or a public key or certificate in PEM. */
  secret?: string;
  /** URL where the provider publishes its keys. */
  jwks?: string;
  algorithms?: string[];
  audience?: string | string[];
  issuer?: string | string[];
  requireExp: boolean;
  publicRoutes: string[];
}

/** The algorithms come from the configuration and the key; a token can only choose among them. */
export interface TokenKey {
  readonly source: KeyObject | URL;
  readonly algorithms: readonly string[];
}

/** Shortest key; shorter ones can be guessed. */
const MIN_SECRET_BYTES = 32;
const MIN_RSA_BITS = 2048;

const HMAC_ALGORITHMS = ["HS256", "HS384", "HS512"];
const RSA_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
const EDWARDS_ALGORITHMS = ["EdDSA", "Ed25519"];
const ALGORITHMS_BY_CURVE: Readonly<Record<string, readonly string[]>> = {
  prime256v1: ["ES256"],
  secp384r1: ["ES384"],
  secp521r1: ["ES512"],
};
const PUBLIC_KEY_ALGORITHMS = [...RSA_ALGORITHMS, "ES256", "ES384", "ES512", ...EDWARDS_ALGORITHMS];

/** The algorithms that a key supports, and those that are used when the manifest names none. */
interface KeyWithAlgorithms {
  readonly source: KeyObject | URL;
  readonly possible: readonly string[];
  readonly defaults: readonly string[];
}

export function compileTokenKey(config: JwtConfig): TokenKey | { problems: Problem[] } {
  const kind = readKey(config);
  if ("message" in kind) return { problems: [kind] };
  const { source, possible, defaults } = kind;
  const { algorithms } = config;
  if (algorithms === undefined) return { source, algorithms: defaults };
  const problems = algorithms.flatMap((name, index): Problem[] => {
    if (possible.includes(name)) return [];
    const message = `"${name}" is not an algorithm for this kind of key; possible: ${possible.join(", ")}`;
    return [{ path: ["algorithms", index], message }];
  });
  return problems.length > 0 ? { problems } : { source, algorithms };
}

function readKey({ secret = "", jwks = "" }: JwtConfig): KeyWithAlgorithms | Problem {
  if (secret !== "" && jwks !== "")
    return { path: ["jwks"], message: "cannot be combined with secret: set only one of them" };
  if (jwks !== "") return readKeySetAddress(jwks);
  // In an environment variable the line breaks of a key are often written as \n.
  if (secret.includes("-----BEGIN ")) return readPemKey(secret.replaceAll("\\n", "\n"));
  const bytes = Buffer.byteLength(secret);
  if (bytes >= MIN_SECRET_BYTES)
    return { source: createSecretKey(secret, "utf8"), possible: HMAC_ALGORITHMS, defaults: ["HS256"] };
  if (bytes === 0) return { path: ["secret"], message: "is needed, or jwks: without a key no token can be checked" };
  return {
    path: ["secret"],
    message: `must have at least ${MIN_SECRET_BYTES} bytes, not ${bytes}: shorter ones can be guessed`,
  };
}

function readKeySetAddress(jwks: string): KeyWithAlgorithms | Problem {
  const url = URL.canParse(jwks) ? new URL(jwks) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    return { path: ["jwks"], message: "must be an address such as https://login.example/.well-known/jwks.json" };
  }
  return { source: url, possible: PUBLIC_KEY_ALGORITHMS, defaults: PUBLIC_KEY_ALGORITHMS };
}

function readPemKey(pem: string): KeyWithAlgorithms | Problem {
  const problem = (message: string): Problem => ({ path: ["secret"], message });
  if (pem.includes("PRIVATE KEY-----")) return problem("is a private key: tokens are checked with the public one");
  let source: KeyObject;
  try {
    source = createPublicKey(pem);
  } catch (error) {
    return problem(`is not a readable public key in PEM: ${messageOf(error)}`);
  }
  const { asymmetricKeyType: type = "", asymmetricKeyDetails: details = {} } = source;
  if (type === "rsa") {
    const { modulusLength = 0 } = details;
    if (modulusLength < MIN_RSA_BITS) return problem(`must have at least ${MIN_RSA_BITS} bits, not ${modulusLength}`);
    return { source, possible: RSA_ALGORITHMS, defaults: ["RS256"] };
  }
  const possible = type === "ed25519" ? EDWARDS_ALGORITHMS : ALGORITHMS_BY_CURVE[details.namedCurve ?? ""];
  if (possible === undefined) return problem(`is a kind of key that cannot sign tokens: ${type}`);
  return { source, possible, defaults: possible };
}
