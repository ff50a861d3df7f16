/** Reads credentials from the head of a request: the console's key, the bearer token, the development bypass. */
import { timingSafeEqual } from "node:crypto";
import { parseQuery } from "../http/decode.ts";
import type { Exchange } from "../http/exchange.ts";
import type { TokenRequest } from "./provider-port.ts";

/** Name of the environment variable that holds the console's key. */
export const CONSOLE_KEY_VARIABLE = "SERVICE_CONSOLE_ACCESS_KEY";

/** The parts of a request from which credentials are read. */
export type CredentialHeaders = Pick<Exchange, "method" | "path" | "query" | "header" | "headers">;

export interface Credentials {
  /** Whether the development bypass is enabled, as it is everywhere but in production. */
  readonly development: boolean;
  readonly consoleKey: boolean;
  isDevelopment(head: Pick<CredentialHeaders, "header">): boolean;
  /** Whether the header or the query carries the console's key. */
  isConsole(head: Pick<CredentialHeaders, "header" | "query">): boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

export const isDevelopment = (env: Environment): boolean => env.NODE_ENV !== "production";

export function compileCredentials(env: Environment): Credentials {
  const development = isDevelopment(env);
  const key = env[CONSOLE_KEY_VARIABLE] ?? "";
  const isKey = key === "" ? null : compileComparison(key);
  return {
    development,
    consoleKey: isKey !== null,
    isDevelopment: (head) => development && head.header("x-service-dev") === "true",
    isConsole(head) {
      if (isKey === null) return false;
      const sent = head.header("x-console-access-key");
      if (sent !== "" && isKey(sent)) return true;
      const { query } = head;
      if (!query.includes("key=")) return false;
      const given = parseQuery(query).key;
      return typeof given === "string" && isKey(given);
    },
  };
}

/** Shorter texts are padded with zeros to this length. */
const MIN_COMPARED_BYTES = 128;
/** Most bytes of one character in UTF-8. */
const MAX_CHARACTER_BYTES = 4;

/**
 * Compares texts with a secret in constant time, so that the duration reveals neither how much of a text was right nor how long
 * the secret is: both are padded with zeros to one length. That costs a third of comparing digests.
 */
function compileComparison(secret: string): (text: string) => boolean {
  const length = Buffer.byteLength(secret);
  // Room for one more character: a text that only starts with the secret is recognised as longer even when it is cut off.
  const expected = Buffer.alloc(Math.max(MIN_COMPARED_BYTES, length + MAX_CHARACTER_BYTES));
  expected.write(secret);
  const padded = Buffer.alloc(expected.length);
  return (text) => {
    const written = padded.write(text);
    padded.fill(0, written);
    return timingSafeEqual(padded, expected) && written === length;
  };
}

const SCHEME = /^bearer +/i;

/** The token of the `Authorization` header; null when there is none. */
export function bearerToken(head: Pick<CredentialHeaders, "header">): string | null {
  const sent = head.header("authorization");
  const scheme = SCHEME.exec(sent);
  if (scheme === null) return null;
  const token = sent.slice(scheme[0].length);
  // Faster than one regular expression for the whole header, which would also copy the token.
  return token === "" || token.includes(",") || token.includes(" ") || token.includes("\t") ? null : token;
}

/** A copy of the request's head for the provider. */
export const tokenRequest = (head: CredentialHeaders): TokenRequest => ({
  method: head.method,
  path: head.path,
  headers: head.headers(),
  query: parseQuery(head.query) as Record<string, string>,
});
