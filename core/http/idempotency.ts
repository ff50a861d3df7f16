/** Requests with an `Idempotency-Key`: how they are identified, and the interface of what keeps their replies. */
import { createHash } from "node:crypto";
import { type Requester, userIdOf } from "../identity/principal.ts";
import { invalid } from "../lib/errors.ts";
import { factHeaders } from "./encode.ts";
import type { HeaderList } from "./exchange.ts";

const KEY = /^[!-~]{1,255}$/;

/** What identifies a request with a key. Both fields are digests, so that neither key nor body is stored. */
export interface KeyedRequest {
  /** Digest of caller and key: the id under which the reply is kept. */
  readonly id: string;
  /** Digest of method, target and body, which a repeated request must share with the first. */
  readonly fingerprint: string;
}

export interface KeptReply {
  readonly status: number;
  /** The headers without those of CORS, which depend on who reads the reply. */
  readonly headers: HeaderList;
  /** Null when the body is too large to be kept. */
  readonly body: string | Uint8Array | null;
}

/** What the handler of an idempotent route sees of the request's key. */
export interface KeyedWork {
  /** Id of the run that the request starts, the same for every try with this key. */
  readonly runId: string;
  /** When the key was first used, in milliseconds since 1970. */
  readonly at: number;
  /** Whether an earlier try may have started the run: that try was cut short, or its process has died. */
  readonly isRepeated: boolean;
  /** Frees the key: the run was not started, or failed before a client was notified of it. */
  free(): Promise<void>;
}

/** The claim of the first request with a key, whose reply is kept. */
export interface KeyClaim extends KeyedWork {
  /** Keeps the reply if it is final, and frees the key otherwise. Must be called once. Never rejects. */
  settle(reply: KeptReply): Promise<void>;
}

export interface ReplyKeeper {
  /**
   * Returns the reply to the first request with the key, waiting for it if necessary; or a claim, if this is the first request.
   *
   * @throws ServiceError `key_reused` for a different request with the same key, `conflict` when the reply was too large to be kept
   */
  take(request: KeyedRequest, signal: AbortSignal): Promise<KeptReply | KeyClaim>;
  /**
   * Claims a key for a request that starts something which is kept elsewhere: all its tries get the same `runId`, and none waits.
   *
   * @throws ServiceError `key_reused` for a different request with the same key
   */
  name(request: KeyedRequest, signal: AbortSignal): Promise<KeyClaim>;
}

/** True: the reply is kept and sent to repeated requests. `stream`: the handler attaches repeated requests to what the first has started. */
export type Idempotence = true | "stream";

/** The parts of a request that identify it. */
interface SentRequest {
  readonly key: string;
  /** Method, path and query of the request. */
  readonly target: string;
  readonly body: Uint8Array;
}

/** The part of a call that this file needs. */
interface KeyedCall extends Requester {
  readonly signal: AbortSignal;
  readonly finished: boolean;
  readonly cors: HeaderList;
  keyed: KeyClaim | undefined;
  reply(status: number, headers: HeaderList, body: KeptReply["body"]): void;
}

type KeyTaker = (replies: ReplyKeeper, call: KeyedCall, sent: SentRequest) => Promise<boolean>;

/** How the requests of a route take their keys, by their bodies. */
export function compileKeyTaker<B>(
  idempotent: Idempotence | ((body: B) => Idempotence) | undefined,
): (body: unknown) => KeyTaker {
  const takerOf = (how: Idempotence | undefined) => (how === "stream" ? attachToFirst : carryOutOnce);
  if (typeof idempotent === "function") return (body) => takerOf(idempotent(body as B));
  const taker = takerOf(idempotent);
  return () => taker;
}

/**
 * Resolves to whether the request is the first with its key and must be carried out. Otherwise it has been answered.
 *
 * @throws ServiceError `invalid_input` for an invalid key; else like `ReplyKeeper.take`
 */
async function carryOutOnce(replies: ReplyKeeper, call: KeyedCall, sent: SentRequest): Promise<boolean> {
  const taken = await replies.take(keyedRequest(call, sent), call.signal);
  if (!("settle" in taken)) {
    const { status, headers, body } = taken;
    call.reply(status, [...headers, ...REPLAYED, ...call.cors], body);
    return false;
  }
  if (call.finished) await taken.free();
  else call.keyed = taken;
  return !call.finished;
}

/**
 * The variant for routes that stream: every request is carried out, and the handler attaches repeated ones to what the first has
 * started.
 */
async function attachToFirst(replies: ReplyKeeper, call: KeyedCall, sent: SentRequest): Promise<boolean> {
  const claim = await replies.name(keyedRequest(call, sent), call.signal);
  // Not freed when the client has left: another try may have started a run with this id by now.
  if (!call.finished) call.keyed = claim;
  return !call.finished;
}

/** The header of a reply that was kept from an earlier request. */
const REPLAYED = factHeaders({ isReplayed: true });

function keyedRequest({ caller, user }: Requester, { key, target, body }: SentRequest): KeyedRequest {
  if (!KEY.test(key)) throw invalid("Idempotency-Key must be 1 to 255 visible ASCII characters, without spaces");
  return {
    id: createHash("sha256")
      .update(JSON.stringify([caller.kind, userIdOf(user), key]))
      .digest("base64url"),
    fingerprint: createHash("sha256").update(target).update("\0").update(body).digest("base64url"),
  };
}

/** Whether a reply may be kept: not after a failure of the service, nor when the reply asks the client to repeat the request. */
export const isFinal = ({ status, headers }: KeptReply): boolean =>
  status < 500 &&
  // Later, or once a person has approved it: that which was carried out goes on by itself then.
  !headers.some(
    (name, index) => index % 2 === 0 && (name === "retry-after" || (name === "x-approval-id" && status === 409)),
  );
