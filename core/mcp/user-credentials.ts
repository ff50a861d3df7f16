/** What a foreign MCP server is sent on behalf of a user: the user's own token, or one that is issued in exchange for it. */
import { hash } from "node:crypto";
import { tokenOf, type User } from "../identity/principal.ts";
import { isObject } from "../lib/is-object.ts";
import { maskText } from "../manifest/environment.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { TokenExchange } from "./token-exchange.ts";

export interface UserCredentials {
  /** Tells those of different tokens apart, and says nothing of them. */
  readonly key: string;
  /** The bearer token for the next request. */
  token(): Promise<string>;
  /** The server has refused it, and may be asked again with another. Absent where there is no other. */
  readonly refused?: () => Promise<void>;
  /** A JSON value without the tokens, which a server may repeat. */
  hide<T>(value: T): T;
}

/** @throws Error for a user without a token */
export type CredentialsOf = (user: User | null) => UserCredentials;

export function compileUserCredentials(server: string, auth: NonNullable<McpClientManifest["auth"]>): CredentialsOf {
  const exchange = auth === "forward" ? null : new TokenExchange(auth.tokenExchange);
  return (user) => {
    const subject = tokenOf(user);
    if (subject === null) throw withoutToken(server);
    const secrets = new Set([subject]);
    return {
      key: hash("sha256", subject, "base64"),
      async token() {
        if (exchange === null) return subject;
        const token = await exchange.tokenFor(subject);
        secrets.add(token);
        return token;
      },
      ...(exchange !== null && { refused: async () => exchange.forget(subject) }),
      hide(value) {
        // The connection may have exchanged the token anew during the call, for another call of the same user too.
        const all = [...secrets, ...(exchange?.issuedFor(subject) ?? [])];
        return mapTexts(value, (text) => maskText(text, all)) as typeof value;
      },
    };
  };
}

/** A copy of a JSON value with every text in it changed, keys too. */
function mapTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, change));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), mapTexts(item, change)]));
}

const withoutToken = (server: string) =>
  new Error(
    `MCP server ${JSON.stringify(server)} is called with the token of the user who asks, and there is none here: tokens come with requests and are not stored, so that what runs without a request, or goes on after a restart, has none`,
  );
