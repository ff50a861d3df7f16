/** Notifies one receiver of a task: the body in its version of the protocol, the signature, and one request. */

import { createHash } from "node:crypto";
import { StreamResponse } from "@a2a-js/sdk";
import { V03PushNotificationSerializer } from "@a2a-js/sdk/compat/v0_3/server";
import { V1PushNotificationSerializer } from "@a2a-js/sdk/server";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, type JWK, SignJWT } from "jose";
import type { AllowedAddresses } from "../outbound/allowed-addresses.ts";
import { leave } from "../outbound/body.ts";
import { GuardedClient } from "../outbound/guarded-client.ts";
import { type Store, unlessConflict } from "../storage/store.ts";
import type { PushConfig } from "./push-config.ts";
import type { Task } from "./task.ts";

/*  * Signs notifications: a JWT for each one, over a digest of its body. The key is created once and kept in the store, so that all
   processes on it sign with the same key, which receivers find at one place.
 */

const SIGNING_KEY = "a2k/";
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

class PushSigner {
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
    const row = await this.#store.get(SIGNING_KEY);
    if (row !== undefined) return JSON.parse(row.value);
    const { privateKey } = await generateKeyPair(ALGORITHM, { extractable: true });
    const jwk = await exportJWK(privateKey);
    const key = { ...jwk, kid: await calculateJwkThumbprint(jwk) };
    const put = [[SIGNING_KEY, JSON.stringify(key)]] as const;
    const isFirst = await unlessConflict(this.#store.commit({ put, expect: [[SIGNING_KEY, null]] }));
    // If another process was first, its key is used.
    return isFirst ? key : this.#load();
  }
}

const SERIALIZERS = { "1.0": new V1PushNotificationSerializer(), "0.3": new V03PushNotificationSerializer() };

interface Notification {
  readonly config: PushConfig;
  readonly task: Task;
  /** Most bytes of the body. */
  readonly max: number;
}

export class PushDelivery {
  readonly signer: PushSigner;
  readonly #client: GuardedClient;

  /** @param addresses the addresses that the current manifest allows */
  constructor(store: Store, addresses: () => AllowedAddresses) {
    this.signer = new PushSigner(store);
    this.#client = new GuardedClient(addresses);
  }

  /** Resolves when the receiver has accepted the notification; rejects with the reason if it has not. */
  async send({ config, task, max }: Notification, signal: AbortSignal): Promise<void> {
    const { body, contentType } = serialize(task, config, max);
    const jwt = await this.signer.sign({ config, task, body });
    const { scheme, credentials } = config.authentication ?? {};
    const headers = {
      "content-type": contentType,
      "user-agent": "penstock",
      "x-a2a-notification-jwt": jwt,
      authorization: scheme && credentials ? `${scheme} ${credentials}` : `Bearer ${jwt}`,
      ...(config.token !== undefined && { "x-a2a-notification-token": config.token }),
    };
    // Redirects are not followed: one could lead to an address that is not allowed. The connection is not reused: otherwise receivers could
    // make us keep any number of connections open, and the address of a name would not be checked again.
    const url = new URL(config.url);
    const answer = await this.#client.request(url, { method: "POST", headers, body, signal, reset: true });
    leave(answer.body);
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`it answers ${answer.statusCode}`);
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}

/** The task as JSON; only its status if it is too large, and without the status message if that is still too large. */
function serialize(task: Task, { version }: PushConfig, max: number) {
  const { id, contextId, status, metadata } = task;
  const { message: _, ...bare } = status;
  const statusUpdate = { taskId: id, contextId, status, metadata };
  const forms = [{ task }, { statusUpdate }, { statusUpdate: { ...statusUpdate, status: bare, metadata: undefined } }];
  const written = forms.map((form) => () => SERIALIZERS[version].serialize(StreamResponse.fromJSON(form)));
  const last = written.pop()!;
  for (const write of written) {
    const text = write();
    if (Buffer.byteLength(text.body) <= max) return text;
  }
  return last();
}
