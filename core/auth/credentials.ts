/** Reads credentials from the head of a request: the console's key, the bearer token, the development bypass. */
import { timingSafeEqual } from "node:crypto";
import { parseQuery } from "../http/decode.ts";
import type { Exchange } from "../http/exchange.ts";
import { CREDENTIAL_PARAMETERS } from "../http/socket-pipeline.ts";
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
const tokenRequest = (head: CredentialHeaders): TokenRequest => ({
  method: head.method,
  path: head.path,
  headers: head.headers(),
  query: parseQuery(head.query) as Record<string, string>,
});

// Where an HTTP request and a WebSocket handshake carry their credentials, and how to ask a client for them.

export interface CredentialSource {
  /** The method under which access patterns match the request. */
  method(head: CredentialHeaders): string;
  /** Whether the request asks for the development bypass, and the bypass is enabled. */
  isDevelopment(head: CredentialHeaders, credentials: Credentials): boolean;
  /** The token of a user; null when there is none. */
  token(head: CredentialHeaders): string | null;
  /** The data of the request that the provider gets beside the token. */
  request(head: CredentialHeaders): TokenRequest;
  /** How to send missing credentials, as text for error messages. */
  readonly hints: { readonly token: string; readonly key: string; readonly development: string };
}

export const REQUEST_CREDENTIALS: CredentialSource = Object.freeze({
  method: (head: CredentialHeaders) => head.method,
  isDevelopment: (head: CredentialHeaders, credentials: Credentials) => credentials.isDevelopment(head),
  token: bearerToken,
  request: tokenRequest,
  hints: {
    token: "in the header Authorization: Bearer TOKEN",
    key: "in the header x-console-access-key, or as ?key=KEY",
    development: "the header x-service-dev: true is enough",
  },
});

/** Browsers cannot send headers with a handshake, so the query may carry the credentials instead. */
export const HANDSHAKE_CREDENTIALS: CredentialSource = Object.freeze({
  method: () => "WS",
  isDevelopment: (head: CredentialHeaders, credentials: Credentials) =>
    credentials.isDevelopment(head) || (credentials.development && parameter(head, "dev") === "true"),
  token: (head: CredentialHeaders) => bearerToken(head) ?? parameter(head, "token"),
  request(head: CredentialHeaders) {
    const request = tokenRequest(head);
    for (const name of CREDENTIAL_PARAMETERS) delete request.query[name];
    return request;
  },
  hints: {
    token: "as ?token=TOKEN, or in the header Authorization: Bearer TOKEN",
    key: "as ?key=KEY, or in the header x-console-access-key",
    development: "?dev=true is enough",
  },
});

function parameter({ query }: CredentialHeaders, name: string): string | null {
  if (!query.includes(`${name}=`)) return null;
  const value = parseQuery(query)[name];
  return typeof value === "string" && value !== "" ? value : null;
}
