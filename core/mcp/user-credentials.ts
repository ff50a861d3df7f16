/** What a foreign MCP server is sent on behalf of a user: the user's own token, or one that is issued in exchange for it. */
import { hash } from "node:crypto";
import { tokenOf, type User } from "../identity/principal.ts";
import { isObject } from "../lib/is-object.ts";
import { RecentMap } from "../lib/recent-map.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import { maskText } from "../manifest/environment.ts";
import type { McpClientManifest, TokenExchangeManifest } from "../manifest/manifest.ts";
import { readBytes } from "../outbound/body.ts";
import { outboundFetch } from "../outbound/proxy.ts";
import { ToolUnavailable } from "../tools/tool.ts";

/* Exchanges the tokens of users for tokens that another service takes (RFC 8693). */

const GRANT = "urn:ietf:params:oauth:grant-type:token-exchange";
const TOKEN_TYPE = "urn:ietf:params:oauth:token-type:";
/** What may be sent as a bearer token. */
const USABLE_TYPES: readonly unknown[] = [undefined, `${TOKEN_TYPE}access_token`, `${TOKEN_TYPE}jwt`];

/** At least so many tokens are kept, and at most twice as many. */
const MAX_TOKENS = 1_000;
/** A token is not used in its last seconds, or the last tenth of a short life. */
const EXPIRY_MARGIN_MS = 30_000;
/** For a token that does not say how long it lives. */
const DEFAULT_LIFETIME_MS = 60_000;
/** However long it lives: the issuer may no longer give one to this user. */
const MAX_KEPT_MS = 3_600_000;
const RESPONSE_TIMEOUT_MS = 10_000;
const MAX_RESPONSE_BYTES = 64 * 1024;
const MAX_REASON_CHARACTERS = 200;

interface Exchanged {
  readonly token: string;
  /** Milliseconds since 1970. */
  readonly until: number;
  /** The one that was issued before. */
  readonly previous?: string | undefined;
}

class TokenExchange {
  readonly #settings: TokenExchangeManifest;
  /** By the digest of the token that each was issued for: whoever has a token of fewer rights gets none of more. */
  readonly #tokens = new RecentMap<Exchanged>(MAX_TOKENS);
  readonly #running = new Map<string, Promise<Exchanged>>();

  constructor(settings: TokenExchangeManifest) {
    this.#settings = settings;
  }

  /** @throws Error when the exchange is refused; ToolUnavailable when the token endpoint cannot be asked */
  async tokenFor(subject: string): Promise<string> {
    const key = digest(subject);
    const known = this.#tokens.get(key);
    if (known !== undefined && Date.now() < known.until) return known.token;
    const running = this.#running.get(key) ?? this.#exchange(key, subject).finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return (await running).token;
  }

  /** The token was refused before its time: the next one is exchanged anew. */
  forget(subject: string): void {
    const key = digest(subject);
    const known = this.#tokens.get(key);
    if (known !== undefined) this.#tokens.set(key, { ...known, until: 0 });
  }

  /** The tokens that servers may have got in exchange for this one of late. */
  issuedFor(subject: string): string[] {
    const { token, previous } = this.#tokens.get(digest(subject)) ?? {};
    return [token, previous].filter((issued) => issued !== undefined);
  }

  async #exchange(key: string, subject: string): Promise<Exchanged> {
    const exchanged = await exchange(this.#settings, subject);
    this.#tokens.set(key, { ...exchanged, previous: this.#tokens.get(key)?.token });
    return exchanged;
  }
}

const digest = (token: string): string => hash("sha256", token, "base64");

async function exchange(settings: TokenExchangeManifest, subject: string): Promise<Exchanged> {
  const asked = Date.now();
  const { status, text } = await post(settings, subject);
  const answer = parseObject(text);
  if (status >= 500) throw unreachable(`it answered ${status}`);
  const { clientSecret = subject } = settings;
  if (status !== 200)
    throw new Error(`the token exchange was refused: ${refusal(status, answer, [subject, clientSecret])}`);
  const { access_token: token, token_type: scheme, issued_token_type: type, expires_in: seconds } = answer;
  const isBearer = typeof scheme === "string" && scheme.toLowerCase() === "bearer";
  if (typeof token !== "string" || token === "" || !isBearer || !USABLE_TYPES.includes(type))
    throw new Error("the token exchange gave no bearer token");
  return { token, until: asked + keptFor(Number(seconds ?? Number.NaN) * 1000) };
}

function keptFor(lifetime: number): number {
  const lasts = Number.isFinite(lifetime) ? lifetime : DEFAULT_LIFETIME_MS;
  return Math.min(MAX_KEPT_MS, lasts - Math.min(EXPIRY_MARGIN_MS, lasts / 10));
}

async function post(settings: TokenExchangeManifest, subject: string): Promise<{ status: number; text: string }> {
  const { url, clientId, clientSecret, audience, resource, scope, subjectTokenType } = settings;
  const form = new URLSearchParams({
    grant_type: GRANT,
    subject_token: subject,
    subject_token_type: TOKEN_TYPE + subjectTokenType,
    requested_token_type: `${TOKEN_TYPE}access_token`,
  });
  for (const [name, value] of Object.entries({ audience, resource, scope }))
    if (value !== undefined) form.set(name, value);
  const headers: Record<string, string> = { accept: "application/json" };
  if (clientSecret === undefined) form.set("client_id", clientId);
  else headers.authorization = `Basic ${btoa(`${formEncoded(clientId)}:${formEncoded(clientSecret)}`)}`;
  try {
    // A redirect would take the secret and the token elsewhere.
    const signal = AbortSignal.timeout(RESPONSE_TIMEOUT_MS);
    const response = await outboundFetch(url, { method: "POST", headers, body: form, redirect: "error", signal });
    return {
      status: response.status,
      text: String(
        await readBytes(
          response.body,
          { bytes: MAX_RESPONSE_BYTES },
          () => new Error(`it sent more than ${MAX_RESPONSE_BYTES / 1024} KiB`),
        ),
      ),
    };
  } catch (error) {
    throw unreachable(reasonOf(error));
  }
}

/** As RFC 6749, section 2.3.1, has it for both parts of the credentials. */
const formEncoded = (text: string): string => new URLSearchParams({ "": text }).toString().slice(1);

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

/**
 * The code and the description of RFC 6749, section 5.2.
 *
 * @param secrets are hidden before the text is cut: a part of a token would not be found any more
 */
function refusal(
  status: number,
  { error, error_description: description }: Record<string, unknown>,
  secrets: readonly string[],
): string {
  if (typeof error !== "string") return `the token endpoint answered ${status}`;
  const text = typeof description === "string" ? `${error} (${description})` : error;
  return withoutSecrets(maskText(text, secrets))
    .replace(/[^\x20-\x7e]+/g, " ")
    .slice(0, MAX_REASON_CHARACTERS);
}

const unreachable = (reason: string) => new ToolUnavailable(`the token endpoint cannot be used: ${reason}`);

function reasonOf(error: unknown): string {
  const { name, message, cause } = error as Error;
  if (name === "TimeoutError") return `no answer within ${RESPONSE_TIMEOUT_MS / 1000} s`;
  const { code, message: why } = (cause ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === "string") return code;
  return typeof why === "string" ? why : message;
}

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
    if (subject === null)
      throw new Error(
        `MCP server ${JSON.stringify(server)} is called with the token of the user who asks, and there is none here: tokens come with requests and are not stored, so that what runs without a request, or goes on after a restart, has none`,
      );
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
