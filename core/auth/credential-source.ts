/** Where an HTTP request and a WebSocket handshake carry their credentials, and how to ask a client for them. */
import { parseQuery } from "../http/decode.ts";
import { CREDENTIAL_PARAMETERS } from "../http/socket-pipeline.ts";
import { bearerToken, type CredentialHeaders, type Credentials, tokenRequest } from "./credentials.ts";
import type { TokenRequest } from "./provider-port.ts";

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
