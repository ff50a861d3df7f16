/** One open WebSocket between transport and handlers: bounds what may wait in both directions, and closes it exactly once. */
import type { Logger } from "pino";
import { type Caller, type User, userIdOf } from "../identity/principal.ts";
import { messageOf } from "../lib/errors.ts";
import type { Text } from "../lib/serialized.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { Client } from "./client.ts";
import { bodyFailure } from "./decode.ts";
import { type Charge, type OpenSocket, type SocketEvents, TOO_MUCH_AT_WORK, type Uploads } from "./exchange.ts";
import type { Peer, SocketHandlers } from "./route.ts";

/** Bytes that may wait for a slow peer. While nothing waits, a message of any length is sent. */
const MAX_BUFFERED_BYTES = 256 * 1024;
/** Message handlers of one peer that may run at the same time. */
const MAX_BUSY_HANDLERS = 256;
const CROWDED = "too many messages at once";
/** Longest reason that a close frame can hold. */
const MAX_REASON_BYTES = 123;

/** What is known about a peer before its socket is open. */
interface PeerInfo
  extends Pick<Peer, "user" | "caller" | "requestId" | "client" | "params" | "query" | "logger" | "trace"> {
  readonly operation: string;
  /** Milliseconds since 1970 at which its credentials expire; null when they do not. */
  readonly expires: number | null;
  /** The budget of bytes that all requests share. */
  readonly uploads: Uploads;
}

export class SocketPeer implements Peer, SocketEvents {
  readonly #socket: OpenSocket;
  readonly #info: PeerInfo;
  readonly #onGone: (peer: SocketPeer, code: number) => void;
  #handlers: SocketHandlers = NO_HANDLERS;
  #controller: AbortController | null = null;
  #logger: Logger | null = null;
  #dropped = 0;
  #busy = 0;
  closed = false;

  /** @param onGone called once the connection has ended. When this side closes it, that is later than `closed`. */
  constructor(socket: OpenSocket, info: PeerInfo, onGone: (peer: SocketPeer, code: number) => void) {
    this.#socket = socket;
    this.#info = info;
    this.#onGone = onGone;
  }

  get user(): User | null {
    return this.#info.user;
  }

  get caller(): Caller {
    return this.#info.caller;
  }

  get expires(): number | null {
    return this.#info.expires;
  }

  get requestId(): string {
    return this.#info.requestId;
  }

  get client(): Client {
    return this.#info.client;
  }

  get params(): Readonly<Record<string, string>> {
    return this.#info.params;
  }

  get query(): Readonly<Record<string, string>> {
    return this.#info.query;
  }

  get logger(): Logger {
    if (this.#logger === null) {
      const { logger, requestId, operation, user } = this.#info;
      this.#logger = logger.child({ requestId, operation, userId: userIdOf(user) ?? undefined });
    }
    return this.#logger;
  }

  get trace(): SpanOrigin | undefined {
    return this.#info.trace;
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.closed) this.#controller.abort(new Error("the socket is closed"));
    }
    return this.#controller.signal;
  }

  get buffered(): number {
    return this.closed ? 0 : this.#socket.buffered;
  }

  /** Calls `open`, which returns the route's handlers: once, right after the socket has opened. */
  start(open: () => SocketHandlers): void {
    this.#guard(() => {
      this.#handlers = open();
      this.#handlers.ready?.catch((error) => this.#fail(error));
    });
    // The socket was closed while `open` ran, before there was a handler to call.
    if (this.closed) this.#tellClose();
  }

  send(text: Text): boolean {
    if (this.closed) return false;
    const waiting = this.#socket.buffered;
    if (waiting > 0 && waiting + text.length > MAX_BUFFERED_BYTES) {
      this.#dropped++;
      return false;
    }
    if (this.#dropped > 0) this.#tellDropped();
    this.#socket.send(text);
    return true;
  }

  deliver(text: Text): void {
    if (!this.closed) this.#socket.send(text);
  }

  drop(count: number): void {
    if (this.closed) return;
    this.#dropped += count;
    if (this.#socket.buffered === 0) this.#tellDropped();
  }

  #tellDropped(): void {
    const count = this.#dropped;
    this.#dropped = 0;
    this.#socket.send(`{"type":"DROPPED","count":${count}}`);
  }

  cork(work: () => void): void {
    if (this.closed) work();
    else this.#socket.cork(work);
  }

  close(code = 1000, reason = ""): void {
    if (!isSendable(code))
      throw new TypeError(`close: ${code} is not a code that may be sent: use 1000 or 3000 to 4999`);
    if (!this.closed) this.#end(code, reason);
  }

  #end(code: number, reason: string): void {
    this.#markClosed();
    this.#socket.close(code, truncateReason(reason));
  }

  /** Closes the connection without a close frame. */
  destroy(): void {
    this.#socket.destroy();
  }

  message(text: string): void {
    if (this.closed || this.#handlers.message === undefined) return;
    if (this.#busy >= MAX_BUSY_HANDLERS) {
      this.#end(1013, CROWDED);
      return;
    }
    this.#guard(() => {
      const charge = this.#charge(text.length);
      try {
        if (charge !== null) this.#during(this.#handlers.message!(text, charge), charge);
      } finally {
        charge?.leave();
      }
    });
  }

  /** The bytes of a message are counted until it has been handled. Null, and the message is refused, when there is no room for them. */
  #charge(bytes: number): Charge | null {
    const { uploads } = this.#info;
    const isReserved = uploads.reserve(bytes);
    const charge = isReserved ? uploads.charge(bytes, this.user) : null;
    if (charge !== null) return charge;
    const { refuse } = this.#handlers;
    if (refuse === undefined) this.#end(1013, CROWDED);
    else this.#during(refuse(isReserved ? TOO_MUCH_AT_WORK : bodyFailure("crowded", bytes)), null);
    return null;
  }

  #during(working: void | Promise<void>, charge: Charge | null): void {
    if (working === undefined) return;
    this.#busy++;
    charge?.enter();
    const over = () => {
      this.#busy--;
      charge?.leave();
    };
    working.then(over, (error) => {
      over();
      this.#fail(error);
    });
  }

  drained(): void {
    if (this.closed) return;
    if (this.#dropped > 0 && this.#socket.buffered === 0) this.#tellDropped();
    if (this.#handlers.drained !== undefined) this.#guard(() => this.#handlers.drained!());
  }

  /** Called by the transport when the connection has ended. */
  ended(code: number): void {
    if (!this.closed) this.#markClosed();
    this.#onGone(this, code);
  }

  #markClosed(): void {
    this.closed = true;
    this.#controller?.abort(new Error("the socket is closed"));
    this.#tellClose();
  }

  #tellClose(): void {
    const handlers = this.#handlers;
    this.#handlers = NO_HANDLERS;
    this.#guard(() => {
      handlers.close?.()?.catch((error) => this.#fail(error));
    });
  }

  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.logger.error({ err: error }, `socket handler failed: ${messageOf(error)}`);
    if (!this.closed) this.#end(1011, "internal error");
  }
}

const NO_HANDLERS: SocketHandlers = Object.freeze({});

/** RFC 6455, 7.4: 1004 to 1006 and 1015 are never sent. */
const isSendable = (code: number): boolean =>
  Number.isInteger(code) &&
  ((code >= 1000 && code <= 1014 && !(code >= 1004 && code <= 1006)) || (code >= 3000 && code <= 4999));

function truncateReason(reason: string): string {
  let text = reason.slice(0, MAX_REASON_BYTES);
  while (Buffer.byteLength(text) > MAX_REASON_BYTES) text = text.slice(0, -1);
  return text;
}
