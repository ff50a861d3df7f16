/**
 * Signs notifications: a JWT for each one, over a digest of its body. The key is created once and kept in the store, so that all
 * processes on it sign with the same key, which receivers find at one place.
 */
import { createHash } from "node:crypto";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, type JWK, SignJWT } from "jose";
import { PUSH_SIGNING_KEY } from "../storage/keys.ts";
import { type Store, unlessConflict } from "../storage/store.ts";
import type { PushConfig } from "./push-config.ts";
import type { Task } from "./task.ts";

const ALGORITHM = "ES256";
/** How long a notification is valid: receivers reject an older one as a replay. */
const LIFETIME_SECONDS = 300;

/** A key with its private part. */
type SigningKey = JWK & { readonly kid: string };

interface Signed {
  readonly config: PushConfig;
  /** The notified task. A retry of the same notification has the same `jti`. */
  readonly task: Task;
  readonly body: string;
}

const digest = (text: string, encoding: "hex" | "base64url") => createHash("sha256").update(text).digest(encoding);

export class PushSigner {
  readonly #store: Store;
  #key: Promise<SigningKey> | null = null;

  constructor(store: Store) {
    this.#store = store;
  }

  async sign({ config, task, body }: Signed): Promise<string> {
    const key = await this.#signingKey();
    return new SignJWT({ taskId: task.id, request_body_sha256: digest(body, "hex") })
      .setProtectedHeader({ alg: ALGORITHM, kid: key.kid, typ: "JWT" })
      .setIssuer(config.issuer)
      .setAudience(config.url)
      .setJti(digest(JSON.stringify([task.id, config.id, task.status]), "base64url"))
      .setIssuedAt()
      .setExpirationTime(`${LIFETIME_SECONDS}s`)
      .sign(await importJWK(key, ALGORITHM));
  }

  /** The keys with which receivers verify signatures, as a JSON Web Key Set. */
  async publicKeys(): Promise<{ keys: JWK[] }> {
    const { kty, crv, x, y, kid } = await this.#signingKey();
    return { keys: [{ kty, crv, x, y, kid, alg: ALGORITHM, use: "sig" } as JWK] };
  }

  #signingKey(): Promise<SigningKey> {
    this.#key ??= this.#load().catch((error) => {
      this.#key = null;
      throw error;
    });
    return this.#key;
  }

  async #load(): Promise<SigningKey> {
    const row = await this.#store.get(PUSH_SIGNING_KEY);
    if (row !== undefined) return JSON.parse(row.value);
    const { privateKey } = await generateKeyPair(ALGORITHM, { extractable: true });
    const jwk = await exportJWK(privateKey);
    const key = { ...jwk, kid: await calculateJwkThumbprint(jwk) };
    const put = [[PUSH_SIGNING_KEY, JSON.stringify(key)]] as const;
    const isFirst = await unlessConflict(this.#store.commit({ put, expect: [[PUSH_SIGNING_KEY, null]] }));
    // If another process was first, its key is used.
    return isFirst ? key : this.#load();
  }
}
