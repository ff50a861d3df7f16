/** Tokens as an identity provider makes them, and as an attacker does: signed here, without the library that checks them. */
import { constants, createHmac, generateKeyPairSync, type KeyObject, sign as signWith } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export const SECRET = "a shared secret of at least 32 bytes";

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Seconds since 1970. */
export const now = (): number => Math.floor(Date.now() / 1000);

export type Claims = Record<string, unknown>;

/** With these claims, and an hour to live unless `exp` is among them; undefined leaves it out. */
export const token = (
  claims: Claims = {},
  header: object = { alg: "HS256" },
  key: KeyObject | string = SECRET,
): string => {
  const head = `${encode(header)}.${encode({ exp: now() + 3600, ...claims })}`;
  return `${head}.${signature((header as { alg: string }).alg, head, key).toString("base64url")}`;
};

function signature(alg: string, text: string, key: KeyObject | string): Buffer {
  const bits = /\d{3}$/.exec(alg)?.[0];
  const data = Buffer.from(text);
  if (alg.startsWith("HS")) return createHmac(`sha${bits}`, key).update(text).digest();
  if (typeof key === "string") return Buffer.alloc(0);
  if (alg.startsWith("RS")) return signWith(`sha${bits}`, data, key);
  if (alg.startsWith("ES")) return signWith(`sha${bits}`, data, { key, dsaEncoding: "ieee-p1363" });
  if (alg.startsWith("PS")) {
    const padding = constants.RSA_PKCS1_PSS_PADDING;
    return signWith(`sha${bits}`, data, { key, padding, saltLength: Number(bits) / 8 });
  }
  return signWith(null, data, key);
}

export interface Pair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
  /** In PEM. */
  readonly pem: string;
}

const pair = ({ publicKey, privateKey }: Omit<Pair, "pem">): Pair => ({
  publicKey,
  privateKey,
  pem: publicKey.export({ type: "spki", format: "pem" }) as string,
});

export const rsaPair = (bits = 2048): Pair => pair(generateKeyPairSync("rsa", { modulusLength: bits }));
export const ecPair = (namedCurve = "P-256"): Pair => pair(generateKeyPairSync("ec", { namedCurve }));
export const edPair = (): Pair => pair(generateKeyPairSync("ed25519"));

interface Publisher {
  readonly url: string;
  /** How often the keys were read. */
  reads: number;
  /** Published keys by their `kid`; an empty one is left out. */
  keys: Record<string, Pair>;
  /** What it answers instead. */
  failing: { status: number; body?: string } | null;
}

/** An identity provider that publishes its keys. */
export async function publisher(test: Pick<TestContext, "after">, keys: Record<string, Pair>): Promise<Publisher> {
  const state: Publisher = { url: "", reads: 0, keys, failing: null };
  const server = createServer((_request, response) => {
    state.reads++;
    const list = Object.entries(state.keys).map(([kid, { publicKey }]) => ({
      ...publicKey.export({ format: "jwk" }),
      ...(kid.startsWith("unnamed") ? {} : { kid }),
    }));
    const { status, body = JSON.stringify({ keys: list }) } = state.failing ?? { status: 200 };
    response.writeHead(status, { "content-type": "application/json" }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => server.close());
  return Object.assign(state, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys` });
}
