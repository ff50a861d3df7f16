/** The credentials that the rows on authentication send, and the secrets of their server, which are used only here. */
import { createHmac } from "node:crypto";

const KEY = "console-key-of-the-bench-0123456789";
const SECRET = "secret-of-the-bench-0123456789-0123456789";
/** In seconds. */
const TOKEN_LIVES = 24 * 3600;

/** The environment of a server with `auth.yaml`. */
export const AUTH_ENV: Readonly<Record<string, string>> = { SERVICE_CONSOLE_ACCESS_KEY: KEY, JWT_SECRET: SECRET };

export const keyHeaders = () => ({ "x-console-access-key": KEY });

const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** A token as an identity provider issues it, HS256, valid for one day. */
export function tokenHeaders() {
  const now = Math.floor(Date.now() / 1000);
  const claims = { sub: "ada", aud: "bench", iss: "https://login.example", iat: now, exp: now + TOKEN_LIVES };
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  const signature = createHmac("sha256", SECRET).update(text).digest("base64url");
  return { authorization: `Bearer ${text}.${signature}` };
}
