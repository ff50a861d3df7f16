/** Requests with an `Idempotency-Key`: what identifies them, and what keeps their replies. */
import { createHash } from "node:crypto";
import type { Requester } from "../identity/principal.ts";
import { userIdOf } from "../identity/user.ts";
import { invalid } from "../lib/errors.ts";
import type { HeaderList } from "./exchange.ts";

const KEY = /^[!-~]{1,255}$/;

/** A request as it is compared with another one. Both are digests, so that nothing of key or body is stored. */
export interface KeyedRequest {
  /** Of the caller and the key: what it is found by. */
  readonly id: string;
  /** Of method, target and body: what a repeated request must have in common with the first. */
  readonly fingerprint: string;
}

export interface KeptReply {
  readonly status: number;
  /** Without those of CORS, which depend on who reads it. */
  readonly headers: HeaderList;
  /** Null: it is too large to be kept. */
  readonly body: string | Uint8Array | null;
}

/** What a handler is told of the key of its request. */
export interface KeyedWork {
  /** Names what the request starts, the same for all tries under one key. */
  readonly runId: string;
  /** When the key was first used, in milliseconds since 1970. */
  readonly at: number;
  /** Whether an earlier try may have started it: one that was cut short, or whose process has died. */
  readonly isRepeated: boolean;
  /** Frees the key: what it names was not begun, or failed before anybody was told of it. */
  free(): Promise<void>;
}

/** The first request with a key: its reply is kept. */
export interface KeyClaim extends KeyedWork {
  /** Keeps a final reply, and frees the key after any other. To be called once. Never rejects. */
  settle(reply: KeptReply): Promise<void>;
}

export interface ReplyKeeper {
  /**
   * The reply to an earlier request with the key, once that has one; or the claim of the first request, which is to be carried out.
   *
   * @throws ServiceError `key_reused` for a request that is not the same, `conflict` for one whose reply was too large to be kept
   */
  take(request: KeyedRequest, signal: AbortSignal): Promise<KeptReply | KeyClaim>;
  /**
   * Names what a request starts that is kept elsewhere: all requests with its key get the same name, and nobody waits.
   *
   * @throws ServiceError `key_reused` for a request that is not the same
   */
  name(request: KeyedRequest, signal: AbortSignal): Promise<KeyClaim>;
}

/** `true`: the reply is kept, and repeated requests get that. `stream`: the handler attaches them to what the first has started. */
export type Idempotence = true | "stream";

/** A request as it arrived. */
interface SentRequest {
  readonly key: string;
  /** Method, path and query. */
  readonly target: string;
  readonly body: Uint8Array;
}

/** The part of a call that this file needs. */
interface KeyedCall extends Requester {
  readonly signal: AbortSignal;
  readonly finished: boolean;
  keyed: KeyClaim | undefined;
  reply(status: number, headers: HeaderList, body: KeptReply["body"]): void;
}

type KeyTaker = (replies: ReplyKeeper, call: KeyedCall, sent: SentRequest, cors: HeaderList) => Promise<boolean>;

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
 * Resolves to whether the request is the first with its key, and is to be carried out. Otherwise it has been answered.
 *
 * @throws ServiceError `invalid_input` for a key that is none; else like `ReplyKeeper.take`
 */
async function carryOutOnce(
  replies: ReplyKeeper,
  call: KeyedCall,
  sent: SentRequest,
  cors: HeaderList,
): Promise<boolean> {
  const taken = await replies.take(keyedRequest(call, sent), call.signal);
  if (!("settle" in taken)) {
    const { status, headers, body } = taken;
    call.reply(status, [...headers, ...REPLAYED, ...cors], body);
    return false;
  }
  if (call.finished) await taken.free();
  else call.keyed = taken;
  return !call.finished;
}

/**
 * The same for routes that stream: each request is carried out, and its handler attaches those that are not the first to what that one
 * has started.
 */
async function attachToFirst(replies: ReplyKeeper, call: KeyedCall, sent: SentRequest): Promise<boolean> {
  const claim = await replies.name(keyedRequest(call, sent), call.signal);
  // Not freed when the client has left: another request may have begun something under this name by now.
  if (!call.finished) call.keyed = claim;
  return !call.finished;
}

/** Of a reply to a request that was made before. */
export const REPLAYED: HeaderList = ["idempotency-replayed", "true"];

function keyedRequest({ caller, user }: Requester, { key, target, body }: SentRequest): KeyedRequest {
  if (!KEY.test(key)) throw invalid("Idempotency-Key must be 1 to 255 visible ASCII characters, without spaces");
  return {
    id: digest(JSON.stringify([caller.kind, userIdOf(user), key])),
    fingerprint: createHash("sha256").update(target).update("\0").update(body).digest("base64url"),
  };
}

const digest = (text: string): string => createHash("sha256").update(text).digest("base64url");

/** Headers of replies that ask for the same request again: later, or once a person has approved it. */
const TRY_AGAIN = ["retry-after", "x-approval-id"];

/** Whether a repeated request would get the same: not after a failure of the service, nor where the reply asks for it again. */
export const isFinal = ({ status, headers }: KeptReply): boolean =>
  status < 500 && !headers.some((name, index) => index % 2 === 0 && TRY_AGAIN.includes(name));
