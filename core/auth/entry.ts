/** The two ways in: where a request and a handshake carry their credentials (contract, "Credentials"). */
import { parseQuery } from "../http/decode.ts";
import { CREDENTIALS } from "../http/socket-pipeline.ts";
import { bearerOf, type Credentials, type Head, tokenRequest } from "./credentials.ts";
import type { TokenRequest } from "./provider-port.ts";

export interface Entry {
  /** As patterns of the lists name the request. */
  method(head: Head): string;
  /** Whether the bypass of development is asked for, and counts. */
  isDevelopment(head: Head, credentials: Credentials): boolean;
  /** The token of a user; null where there is none. */
  token(head: Head): string | null;
  /** What the provider is told beside the token. */
  request(head: Head): TokenRequest;
  /** How to send what is missing, for people. */
  readonly hints: { readonly token: string; readonly key: string; readonly development: string };
}

export const REQUEST: Entry = Object.freeze({
  method: (head: Head) => head.method,
  isDevelopment: (head: Head, credentials: Credentials) => credentials.isDevelopment(head),
  token: bearerOf,
  request: tokenRequest,
  hints: {
    token: "in the header Authorization: Bearer TOKEN",
    key: "in the header x-console-access-key, or as ?key=KEY",
    development: "the header x-service-dev: true is enough",
  },
});

/** A browser can send no header with a handshake: what headers say may stand in the query. */
export const HANDSHAKE: Entry = Object.freeze({
  method: () => "WS",
  isDevelopment: (head: Head, credentials: Credentials) =>
    credentials.isDevelopment(head) || (credentials.development && parameter(head, "dev") === "true"),
  token: (head: Head) => bearerOf(head) ?? parameter(head, "token"),
  request(head: Head) {
    const request = tokenRequest(head);
    for (const name of CREDENTIALS) delete request.query[name];
    return request;
  },
  hints: {
    token: "as ?token=TOKEN, or in the header Authorization: Bearer TOKEN",
    key: "as ?key=KEY, or in the header x-console-access-key",
    development: "?dev=true is enough",
  },
});

function parameter({ query }: Head, name: string): string | null {
  if (!query.includes(`${name}=`)) return null;
  const value = parseQuery(query)[name];
  return typeof value === "string" && value !== "" ? value : null;
}
