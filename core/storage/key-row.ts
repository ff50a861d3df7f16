/** The row of an `Idempotency-Key`, and its changes. */
import type { KeptReply } from "../http/idempotency.ts";
import { ServiceError } from "../lib/errors.ts";
import { keptReplyKey, keptReplyTime } from "./keys.ts";
import type { Commit } from "./store.ts";

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
export interface Claimed {
  readonly id: string;
  readonly row: KeyRow;
  readonly revision: number;
  readonly isRepeated: boolean;
}

export const keyRows = (id: string, row: KeyRow) =>
  [
    [keptReplyKey(id), JSON.stringify(row)],
    [keptReplyTime(row.at, id), ""],
  ] as const;

/**
 * The last change of a claim: its reply, or the key is free again.
 *
 * @param mayGoOn whether what the request has started may go on without it: then the next one is told of it
 */
export function settling({ id, row, revision }: Claimed, kept: KeptReply | null, mayGoOn: boolean): Commit {
  const key = keptReplyKey(id);
  const expect = [[key, revision]] as const;
  const { process: _, ...rest } = row;
  if (kept !== null) {
    const { status, headers, body } = kept;
    const text = body instanceof Uint8Array ? Buffer.from(body).toString() : body;
    return {
      put: [[key, JSON.stringify({ ...rest, reply: { status, headers, body: text } } satisfies KeyRow)]],
      expect,
    };
  }
  if (mayGoOn) return { put: [[key, JSON.stringify({ ...row, process: "" } satisfies KeyRow)]], expect };
  return { delete: [key, keptReplyTime(row.at, id)], expect };
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
