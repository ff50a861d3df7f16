/** The row of an `Idempotency-Key`, and its changes. */
import type { KeptReply } from "../http/idempotency.ts";
import { ServiceError } from "../lib/errors.ts";
import type { Found } from "./collection.ts";

const MAX_BODY_BYTES = 1024 * 1024;

/** What a row holds. */
export interface KeyRow {
  readonly fingerprint: string;
  /** When it was claimed: milliseconds since 1970. */
  readonly at: number;
  readonly runId: string;
  /** Who works on it; empty: nobody. Absent once there is a reply. */
  readonly process?: string;
  readonly reply?: { readonly status: number; readonly headers: readonly string[]; readonly body: string | null };
}

/** A claim as it was written. */
export interface Claimed extends Pick<Found<KeyRow>, "id" | "record" | "revision"> {
  readonly isRepeated: boolean;
}

/**
 * What becomes of a claim: its reply, or undefined: the key is free again.
 *
 * @param mayGoOn whether what the request has started may go on without it: then the next one is told of it
 */
export function endOfClaim(record: KeyRow, kept: KeptReply | null, mayGoOn: boolean): KeyRow | undefined {
  if (kept === null) return mayGoOn ? { ...record, process: "" } : undefined;
  const { process: _, ...rest } = record;
  const { status, headers, body } = kept;
  return {
    ...rest,
    reply: { status, headers, body: body instanceof Uint8Array ? Buffer.from(body).toString() : body },
  };
}

export function bounded(reply: KeptReply): KeptReply {
  const { body } = reply;
  return body !== null && Buffer.byteLength(body) > MAX_BODY_BYTES ? { ...reply, body: null } : reply;
}

/** @throws ServiceError `conflict` for one that was too large: the request was carried out, and must not be again */
export function readable(reply: KeptReply): KeptReply {
  if (reply.body !== null) return reply;
  const what = `it was carried out with status ${reply.status}, and its reply is over the 1 MiB that is kept`;
  throw new ServiceError("conflict", `a request with this Idempotency-Key came before: ${what}`);
}

const REUSED = "this Idempotency-Key was used for another request: send a new key with a new request";
export const keyReused = () => new ServiceError("key_reused", REUSED);
