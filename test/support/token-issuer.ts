/** An authorization server that exchanges tokens as RFC 8693 has it, and a check of bearer tokens for the servers that take them. */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { jwtVerify, SignJWT } from "jose";
import { SECRET } from "./tokens.ts";

const USERS_KEY = Buffer.from(SECRET);
const ISSUER_KEY = Buffer.from("the key of the issuer, at least 32 bytes");
const TOKEN_TYPE = "urn:ietf:params:oauth:token-type:";
const CLIENT = { id: "penstock:desk", secret: "s3cret of/the desk+" };

export interface TokenIssuer {
  readonly url: string;
  readonly client: typeof CLIENT;
  /** The users for whom tokens were exchanged, in order. */
  readonly exchanged: string[];
  /** Every token that was issued. */
  readonly issued: string[];
  /** Users for whom it exchanges nothing. */
  readonly refused: Set<string>;
  /** Seconds for which its tokens are good. */
  lifetime: number;
  /** Tokens that are no longer taken, before their time. */
  readonly revoked: Set<string>;
  /** Answers 401 to a request that does not bring a token of this issuer for `audience`. */
  guard(request: Request): Promise<Response | null>;
  stop(): Promise<void>;
}

/** @param audience for whom it issues tokens, and for what */
export async function startTokenIssuer(
  test: Pick<TestContext, "after">,
  audience: string,
  scope = "docs.read",
): Promise<TokenIssuer> {
  const server = createServer(async (request, response) => {
    const { status, body } = await answer(request);
    response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" });
    response.end(JSON.stringify(body));
  });
  const refusal = (error: string, description: string, status = 400) => ({
    status,
    body: { error, error_description: description },
  });
  async function answer(request: IncomingMessage) {
    let text = "";
    for await (const chunk of request.setEncoding("utf8")) text += chunk;
    if (
      request.method !== "POST" ||
      request.headers["content-type"]?.split(";")[0] !== "application/x-www-form-urlencoded"
    )
      return refusal("invalid_request", "a form is needed");
    const decoded = (part: string | undefined) => new URLSearchParams(`x=${part}`).get("x");
    const [id, secret] = Buffer.from(request.headers.authorization?.slice("Basic ".length) ?? "", "base64")
      .toString()
      .split(":");
    if (decoded(id) !== CLIENT.id || decoded(secret) !== CLIENT.secret)
      return refusal("invalid_client", "unknown client", 401);
    const form = new URLSearchParams(text);
    if (form.get("grant_type") !== "urn:ietf:params:oauth:grant-type:token-exchange")
      return refusal("unsupported_grant_type", "token exchange alone");
    if (form.get("subject_token_type") !== `${TOKEN_TYPE}access_token`)
      return refusal("invalid_request", "subject_token_type");
    if (![null, `${TOKEN_TYPE}access_token`].includes(form.get("requested_token_type")))
      return refusal("invalid_request", "requested_token_type");
    if (form.get("audience") !== audience) return refusal("invalid_target", "no such audience");
    if (form.get("scope") !== scope) return refusal("invalid_scope", `${scope} alone`);
    const subject = form.get("subject_token") ?? "";
    const verified = await jwtVerify(subject, USERS_KEY).catch(() => null);
    const user = verified?.payload.sub;
    // As some do, it repeats what it was sent.
    if (user === undefined || state.refused.has(user)) return refusal("invalid_grant", `not for ${subject}`);
    state.exchanged.push(user);
    const token = await new SignJWT({ sub: user, act: { sub: CLIENT.id }, n: state.issued.length })
      .setProtectedHeader({ alg: "HS256" })
      .setAudience(audience)
      .setExpirationTime(`${state.lifetime}s`)
      .sign(ISSUER_KEY);
    state.issued.push(token);
    const types = { issued_token_type: `${TOKEN_TYPE}access_token`, token_type: "Bearer" };
    return { status: 200, body: { access_token: token, ...types, expires_in: state.lifetime } };
  }
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  test.after(stop);
  const state: TokenIssuer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/token`,
    client: CLIENT,
    exchanged: [],
    issued: [],
    refused: new Set(),
    lifetime: 300,
    revoked: new Set(),
    guard: (request) => bearerGuard(request, ISSUER_KEY, { audience }, state.revoked),
    stop,
  };
  return state;
}

/** Answers 401 to a request that does not bring a user's own token. */
export const userGuard = (request: Request): Promise<Response | null> => bearerGuard(request, USERS_KEY, {});

async function bearerGuard(
  request: Request,
  key: Uint8Array,
  options: { audience?: string },
  revoked: ReadonlySet<string> = new Set(),
): Promise<Response | null> {
  const token = /^Bearer (\S+)$/.exec(request.headers.get("authorization") ?? "")?.[1] ?? "";
  const verified = revoked.has(token) ? null : await jwtVerify(token, key, options).catch(() => null);
  return verified === null
    ? new Response("no token", { status: 401, headers: { "www-authenticate": "Bearer" } })
    : null;
}
