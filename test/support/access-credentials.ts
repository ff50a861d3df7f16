/** Everything that a request may carry to be let in, and what each is worth (contract, "Credentials" and "Providers"). */
import { createHmac, type KeyObject } from "node:crypto";
import type { Worth } from "./access-table.ts";
import { ecPair, now, type Pair, SECRET, token } from "./tokens.ts";

export const CONSOLE_KEY = "console-key-0123456789 +&=";
export const ISSUER = "https://login.example";
export const AUDIENCE = "penstock";

export interface Credential {
  readonly name: string;
  readonly worth: Worth;
  /** With its `?`. */
  readonly query?: string;
  readonly headers?: Record<string, string>;
}

/** How an identity provider signs, and how somebody who is none tries to. */
export interface Signer {
  sign(claims?: object, header?: object): string;
  readonly forged: Readonly<Record<string, string>>;
}

const GOOD = { sub: "ada", iss: ISSUER, aud: AUDIENCE };
const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** A token whose `exp` is not set for it. */
function bare(claims: object, header: { alg: string }, sign: (text: string) => Buffer): string {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${sign(text).toString("base64url")}`;
}

const ALIVE = () => ({ ...GOOD, exp: now() + 3600 });
const hmac = (key: string | KeyObject) => (text: string) => createHmac("sha256", key).update(text).digest();

/** Tokens that no signer made, whatever his key is. */
function unsigned(good: string): Record<string, string> {
  const [head, claims, signature] = good.split(".") as [string, string, string];
  const other = encode({ ...ALIVE(), sub: "mallory" });
  const none = Object.fromEntries(
    ["none", "None", "NONE", "nOnE", ""].map((alg) => [`alg ${alg}`, bare(ALIVE(), { alg }, () => Buffer.alloc(0))]),
  );
  return {
    ...none,
    "alg none with the signature of another": `${encode({ alg: "none" })}.${claims}.${signature}`,
    "no alg": `${encode({})}.${claims}.${signature}`,
    "no signature": `${head}.${claims}.`,
    "two parts": `${head}.${claims}`,
    "four parts": `${good}.${signature}`,
    "other claims under its signature": `${head}.${other}.${signature}`,
    "claims that are no JSON": `${head}.${Buffer.from("ada").toString("base64url")}.${signature}`,
    "a critical header that nobody knows": `${encode({ alg: "HS256", crit: ["b64"], b64: false })}.${claims}.${signature}`,
  };
}

export function secretSigner(): Signer {
  const mallory = ecPair();
  const sign = (claims: object = {}, header: object = {}) =>
    token({ ...GOOD, ...claims }, { alg: "HS256", typ: "JWT", ...header }, SECRET);
  return {
    sign,
    forged: {
      "another secret": token(ALIVE(), { alg: "HS256" }, `${SECRET}?`),
      "an empty secret": token(ALIVE(), { alg: "HS256" }, ""),
      "HS512 where HS256 is configured": token(ALIVE(), { alg: "HS512" }, SECRET),
      "ES256 by a key of one's own": token(ALIVE(), { alg: "ES256" }, mallory.privateKey),
      "a key in the token": token(ALIVE(), { alg: "ES256", jwk: jwk(mallory) }, mallory.privateKey),
    },
  };
}

const jwk = ({ publicKey }: Pair) => publicKey.export({ format: "jwk" });

/** @param kid of a published key; a key in PEM has none */
export function keySigner(pair: Pair, mallory: Pair, kid?: string): Signer {
  const named = kid === undefined ? {} : { kid };
  const sign = (claims: object = {}, header: object = {}) =>
    token({ ...GOOD, ...claims }, { alg: "RS256", ...named, ...header }, pair.privateKey);
  const header = { alg: "HS256", ...named };
  const unknown = { alg: "RS256", kid: "unknown" };
  return {
    sign,
    forged: {
      "HS256 by the public key in PEM": bare(ALIVE(), header, hmac(pair.pem)),
      "HS256 by the same without its last line end": bare(ALIVE(), header, hmac(pair.pem.trim())),
      "HS256 by the modulus": bare(ALIVE(), header, hmac(String(jwk(pair).n))),
      "another's key under the name of the right one": token(ALIVE(), { alg: "RS256", ...named }, mallory.privateKey),
      "another's key under another name": token(ALIVE(), unknown, mallory.privateKey),
      ...(kid === undefined ? {} : { "the right key under a name that is not published": sign({}, unknown) }),
      "another's key in the token": token(ALIVE(), { alg: "RS256", jwk: jwk(mallory) }, mallory.privateKey),
      "ES256 by a key of one's own": token(ALIVE(), { alg: "ES256", ...named }, ecPair().privateKey),
      ...(kid === undefined ? { "RS512 where RS256 is configured": sign({}, { alg: "RS512" }) } : {}),
    },
  };
}

const bearer = (value: string, scheme = "Bearer") => ({ authorization: `${scheme} ${value}` });

/** A token that means the same however long its use goes on: one that is some seconds old is made anew. */
function timed(name: string, worth: Credential["worth"], make: () => string): Credential {
  let [value, until] = ["", 0];
  return {
    name,
    worth,
    get headers() {
      if (now() > until) [value, until] = [make(), now() + 3];
      return bearer(value);
    },
  };
}

function tokens({ sign, forged }: Signer): Credential[] {
  const good = sign();
  const rows: Record<string, string> = {
    expired: sign({ exp: now() - 60 }),
    "expired long ago": sign({ exp: 1 }),
    "without an end": sign({ exp: undefined }),
    "with an end that is no number": sign({ exp: "tomorrow" }),
    "of another issuer": sign({ iss: "https://login.example.evil" }),
    "without an issuer": sign({ iss: undefined }),
    "for another audience": sign({ aud: "other" }),
    "for other audiences": sign({ aud: ["other", "penstock2"] }),
    "without an audience": sign({ aud: undefined }),
    ...forged,
    ...unsigned(good),
    garbage: "garbage",
    "three dots": "...",
    "bytes behind it": `${good}A`,
    "the console's key": encodeURIComponent(CONSOLE_KEY),
    null: "null",
  };
  const bad = Object.entries(rows).map(
    ([name, value]): Credential => ({ name: `token: ${name}`, worth: "nothing", headers: bearer(value) }),
  );
  return [
    { name: "token", worth: "user", headers: bearer(good) },
    { name: "token of another user", worth: "user", headers: bearer(sign({ sub: "bob" })) },
    { name: "token for several audiences", worth: "user", headers: bearer(sign({ aud: ["x", AUDIENCE] })) },
    timed("token that ended within the tolerance", "user", () => sign({ exp: now() - 5 })),
    timed("token that begins within the tolerance", "user", () => sign({ nbf: now() + 20 })),
    timed("token: not good yet", "nothing", () => sign({ nbf: now() + 60 })),
    { name: "token under a scheme in small letters", worth: "user", headers: bearer(good, "bearer") },
    { name: "token under no scheme", worth: "nothing", headers: { authorization: good } },
    { name: "token under another scheme", worth: "nothing", headers: bearer(good, "Basic") },
    { name: "two tokens", worth: "nothing", headers: bearer(`${good}, Bearer ${good}`) },
    { name: "a scheme alone", worth: "nothing", headers: { authorization: "Bearer" } },
    { name: "token in the query", worth: "nothing", query: `?token=${good}` },
    { name: "token in a cookie", worth: "nothing", headers: { cookie: `token=${good}; authorization=Bearer ${good}` } },
    { name: "token as the console's key", worth: "nothing", headers: { "x-console-access-key": good } },
    ...bad,
    { name: "token and a wrong key", worth: "user", headers: { ...bearer(good), "x-console-access-key": "wrong" } },
    { name: "token and key", worth: "both", headers: { ...bearer(good), ...KEY } },
    { name: "bad token and key", worth: "console", headers: { ...bearer("garbage"), ...KEY } },
    { name: "token in the header, key in the query", worth: "both", headers: bearer(good), query: KEY_QUERY },
  ];
}

const KEY = { "x-console-access-key": CONSOLE_KEY };
const KEY_QUERY = `?key=${encodeURIComponent(CONSOLE_KEY)}`;
const consoleKey = (name: string, value: string): Credential => ({
  name: `key: ${name}`,
  worth: "nothing",
  headers: { "x-console-access-key": value },
});

const OTHERS: readonly Credential[] = [
  { name: "nothing", worth: "nothing" },
  { name: "key", worth: "console", headers: KEY },
  { name: "key in the query", worth: "console", query: KEY_QUERY },
  { name: "key in the query among others", worth: "console", query: `?limit=1&${KEY_QUERY.slice(1)}&x` },
  {
    name: "a wrong key in the header, the right one in the query",
    worth: "console",
    query: KEY_QUERY,
    headers: { "x-console-access-key": "wrong" },
  },
  consoleKey("wrong", "wrong"),
  consoleKey("its beginning", CONSOLE_KEY.slice(0, -1)),
  consoleKey("more than it", `${CONSOLE_KEY}0`),
  consoleKey("in capitals", CONSOLE_KEY.toUpperCase()),
  consoleKey("twice", `${CONSOLE_KEY}, ${CONSOLE_KEY}`),
  consoleKey("undefined", "undefined"),
  consoleKey("its variable", "SERVICE_CONSOLE_ACCESS_KEY"),
  { name: "key in the query: wrong", worth: "nothing", query: "?key=wrong" },
  { name: "key in the query: empty", worth: "nothing", query: "?key=" },
  { name: "key in the query: without a value", worth: "nothing", query: "?key" },
  { name: "key in the query: under another name", worth: "nothing", query: KEY_QUERY.replace("key", "monkey") },
  { name: "key in the query: in a list", worth: "nothing", query: KEY_QUERY.replace("key", "key[]") },
  {
    name: "key in the query: under the name of the header",
    worth: "nothing",
    query: KEY_QUERY.replace("key", "x-console-access-key"),
  },
  { name: "development", worth: "development", headers: { "x-service-dev": "true" } },
  { name: "development and a bad token", worth: "development", headers: { "x-service-dev": "true", ...bearer("x") } },
  { name: "development: 1", worth: "nothing", headers: { "x-service-dev": "1" } },
  { name: "development: TRUE", worth: "nothing", headers: { "x-service-dev": "TRUE" } },
  { name: "development in the query", worth: "nothing", query: "?dev=true" },
  { name: "development in the query, by its header's name", worth: "nothing", query: "?x-service-dev=true" },
];

export const credentials = (signer: Signer): Credential[] => [...OTHERS, ...tokens(signer)];
