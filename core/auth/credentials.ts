/** What a request carries to be let in by (contract, "Credentials"), read from its head. */
import { timingSafeEqual } from "node:crypto";
import { parseQuery } from "../http/decode.ts";
import type { Exchange } from "../http/exchange.ts";
import type { TokenRequest } from "./provider-port.ts";

/** The environment variable with the console's key. */
export const CONSOLE_KEY_VARIABLE = "SERVICE_CONSOLE_ACCESS_KEY";

/** Keys that the environment holds beside those that the manifest names. */
export const accessKeysOf = (env: Readonly<Record<string, string | undefined>>): string[] =>
  [env[CONSOLE_KEY_VARIABLE], env.SERVICE_SECRET_KEY].filter((key) => key !== undefined);

/** What of a request is looked at. */
export type CredentialHeaders = Pick<Exchange, "method" | "path" | "query" | "header" | "headers">;

export interface Credentials {
  /** Whether the bypass of development counts: anywhere but in production. */
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

/** Bytes that are compared at least. */
const MIN_COMPARED_BYTES = 128;
/** The most bytes that one character takes. */
const MAX_CHARACTER_BYTES = 4;

/**
 * Compares texts with a secret in a time that says neither how much of it was right nor how long it is: both stand in frames
 * of one size, which is filled up with zeros. That costs a third of comparing digests.
 */
function compileComparison(secret: string): (text: string) => boolean {
  const length = Buffer.byteLength(secret);
  // There is room for a character after the secret: what begins with it and goes on is longer, even where it is cut.
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

/** The token of the `Authorization` header; null where there is none. */
export function bearerToken(head: Pick<CredentialHeaders, "header">): string | null {
  const sent = head.header("authorization");
  const scheme = SCHEME.exec(sent);
  if (scheme === null) return null;
  const token = sent.slice(scheme[0].length);
  // One pattern for all of it would cost more, and so would the copy that it makes.
  return token === "" || token.includes(",") || token.includes(" ") || token.includes("\t") ? null : token;
}

/** A copy for the provider. */
export const tokenRequest = (head: CredentialHeaders): TokenRequest => ({
  method: head.method,
  path: head.path,
  headers: head.headers(),
  query: parseQuery(head.query) as Record<string, string>,
});
