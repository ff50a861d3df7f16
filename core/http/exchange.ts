/**
 * The interface between the transports and the rest: types only, no behaviour.
 *
 * A transport calls `Dispatch` synchronously, once per request, inside its native callback. Only during that call may the head be read
 * (`header`, `headers`), because a native request object dies when the callback returns; `readBody` must be called during it as well,
 * or not at all.
 */

import { type User, userIdOf } from "../identity/principal.ts";
import { rateLimited, unavailable } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { Uses } from "../lib/uses.ts";
import type { CountRefusal } from "../observability/metrics/meters.ts";

/*
 * The budget of bytes that the bodies of all requests and the messages on sockets together may take up in memory: while they arrive, and
 * until the work that they ask for has ended.
 */

/** This part of the budget is left to users who have less than as much at work, so that one user cannot keep all others out. */
const LAST_PART = 8;

export const TOO_MUCH_AT_WORK = rateLimited("too many bytes of this user are worked on: try again");

export const CROWDED = unavailable("too many bytes are being uploaded at once, or worked on: try again");

/**
 * The bytes of one body or message, and of what it has copied. They are counted until the last work on them has ended, beginning with
 * that of whoever got this.
 */
export class Charge extends Uses {
  readonly #uploads: Uploads;
  readonly #user: string | null;
  #bytes: number;
  #copies = 0;

  constructor(uploads: Uploads, user: string | null, bytes: number) {
    super();
    this.#uploads = uploads;
    this.#user = user;
    this.#bytes = bytes;
    this.enter();
  }

  /**
   * The work holds copies of what is stored, of at most so many bytes at once. Those above half of the budget are not counted, or they
   * could never be made.
   *
   * @throws ServiceError `unavailable` or `rate_limited` when they do not fit
   */
  copies(bytes: number): void {
    const more = Math.min(bytes, this.#uploads.maxBytes / 2) - this.#copies;
    // Work that a plugin begins after the end is not counted any more.
    if (more <= 0 || this.count === 0) return;
    if (!this.#uploads.reserve(more)) throw CROWDED;
    if (!this.#uploads.begin(more, this.#user)) throw TOO_MUCH_AT_WORK;
    this.#copies += more;
    this.#bytes += more;
  }

  override leave(): void {
    super.leave();
    if (this.count > 0) return;
    this.#uploads.end(this.#bytes, this.#user);
    this.#bytes = 0;
  }
}

export class Uploads {
  readonly maxBytes: number;
  readonly #refused: CountRefusal | undefined;
  #bytes = 0;
  /** Bytes at work, by user. */
  readonly #ofUsers = new KeyCounts();

  constructor(maxBytes: number, refused?: CountRefusal) {
    this.maxBytes = maxBytes;
    this.#refused = refused;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether that many bytes fit now; if not, that is a refusal. An announced length is not reserved: it is merely a claim. */
  fits(bytes: number): boolean {
    const isRefused = this.#bytes + bytes > this.maxBytes;
    if (isRefused) this.#refused?.("server.limits.uploads");
    return !isRefused;
  }

  /** Reserves the bytes. False, and nothing is reserved, when they do not fit. */
  reserve(bytes: number): boolean {
    if (!this.fits(bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }

  /** The work on reserved bytes begins. Null, and they are released, when this user has too many: the answer is TOO_MUCH_AT_WORK. */
  charge(bytes: number, user: User | null): Charge | null {
    const id = userIdOf(user);
    return this.begin(bytes, id) ? new Charge(this, id, bytes) : null;
  }

  /** False, and reserved bytes are released, when this user has too many at work. */
  begin(bytes: number, user: string | null): boolean {
    const part = this.maxBytes / LAST_PART;
    const isWithin = user === null || this.#ofUsers.add(user, bytes) <= part || this.#bytes <= this.maxBytes - part;
    if (isWithin) return true;
    this.end(bytes, user);
    this.#refused?.("server.limits.uploads");
    return false;
  }

  end(bytes: number, user: string | null): void {
    if (user !== null) this.#ofUsers.add(user, -bytes);
    this.release(bytes);
  }
}

/**
 * A flat list of names (lower case) and values: `["content-type", "text/html", ...]`, without content-length and date. A list
 * must not change once it was used: a transport may cache the text it made of it.
 */
export type HeaderList = readonly string[];

/** Why a body could not be read. `crowded`: it is within its own limit, but the bodies of all requests together exceed theirs. */
export type BodyProblem = "too_large" | "crowded" | "aborted" | "malformed";

export type OnBody = (body: Uint8Array) => void;
export type OnBodyFailed = (problem: BodyProblem) => void;

export interface Exchange {
  /** The method in upper case. */
  readonly method: string;
  /** The raw target without the query: still percent-encoded. Always begins with `/`. The router removes a trailing slash. */
  path: string;
  /** The raw query without `?`; an empty string when there is none. */
  readonly query: string;
  /** One header by its lower-case name; an empty string when absent. Only during `Dispatch`. */
  header(name: string): string;
  /** A copy of all headers, names in lower case, repeated ones joined by `, `. Only during `Dispatch`. */
  headers(): Record<string, string>;
  /** The peer's address as text. May be read only while the exchange is open. */
  remoteAddress(): string;

  /**
   * Collects the body, at most `limit` bytes. Calls exactly one of the callbacks, once, perhaps synchronously. The bytes
   * belong to the caller. After `too_large` and `crowded` nothing more is read, and `reply` closes the connection.
   *
   * @param uploads the budget that the bodies of all requests share: the caller releases the bytes that `done` received
   */
  readBody(limit: number, done: OnBody, failed: OnBodyFailed, uploads?: Uploads): void;

  /** True once the peer is gone or the reply has ended. Everything below is then a no-op. */
  readonly closed: boolean;
  /** Sent by the transport as the header `x-request-id` of the reply, unless it is empty. */
  requestId: string;
  /** Sets the only listener: called once if the peer leaves before the reply has ended. */
  onAbort(listener: () => void): void;

  /** Sends a whole reply. On HEAD the transport sends the same head (content-length too) and no body. */
  reply(status: number, headers: HeaderList, body: string | Uint8Array | null, close?: boolean): void;

  /**
   * Starts a reply of unknown length: sends status and headers at once. On HEAD it ends the reply. uws cannot send a head
   * alone: an event stream then starts with a comment line, any other stream waits for its first chunk.
   */
  begin(status: number, headers: HeaderList): void;
  /** Sends a chunk. False: the chunk was accepted, but the peer is behind: wait for `drained` before the next one. */
  write(chunk: string | Uint8Array): boolean;
  /** Resolves when the socket has drained, or when the exchange has closed. */
  drained(): Promise<void>;
  /** Bytes accepted by `write` that the socket has not taken yet. */
  readonly buffered: number;
  end(): void;
  /** Runs `work`; everything it sends (begin, write, end) goes out in one write, if the transport can do that. */
  cork(work: () => void): void;
  /** Closes the connection without an answer. */
  destroy(): void;
}

export type Dispatch = (exchange: Exchange) => void;

/** One open WebSocket. All methods are synchronous, and do nothing once it is closed. */
export interface OpenSocket {
  /** Bytes that the peer has not taken yet. */
  readonly buffered: number;
  /** Sends one text message; bytes must be UTF-8. It is accepted whatever `buffered` is: the caller keeps the bound. */
  send(text: string | Uint8Array): void;
  /** Runs `work`; what it sends goes out in one write, if the transport can do that. */
  cork(work: () => void): void;
  /** Closes with a close frame. The code must be one that may be sent, the reason at most 123 bytes long. */
  close(code: number, reason: string): void;
  /** Cuts the connection without a close frame. */
  destroy(): void;
}

/** What a transport reports about one open WebSocket. None of these may throw. */
export interface SocketEvents {
  /** A whole text message. Binary messages close the socket (1003), and so do messages that are too large (1009). */
  message(text: string): void;
  /** The peer has read some of what was buffered. */
  drained(): void;
  /** The socket is closed, for whatever reason; called once. Code 1006 means that there was no close frame. */
  ended(code: number): void;
}

/**
 * A well-formed WebSocket handshake (RFC 6455, 4.2.1). It is refused like any request: by `reply`. A malformed handshake is an
 * ordinary request.
 */
export interface Upgrade extends Exchange {
  /**
   * Answers 101, with the first subprotocol that the client offers, if any. `open` is called once the socket is open, perhaps
   * later, or never if the peer has left. The exchange is then over.
   */
  accept(open: (socket: OpenSocket) => SocketEvents): void;
}

export interface SocketOptions {
  /** Called for each handshake, under the same rules as `Dispatch`. */
  dispatch(upgrade: Upgrade): void;
  /** Largest accepted message, in bytes. */
  message: number;
}

/** `connections` and `stall` are read whenever they are needed: they may change while the transport listens. */
export interface ListenOptions {
  host: string;
  port: number;
  /** Maximum number of open connections, WebSockets among them; more are refused. */
  connections: number;
  /** Largest head (request line and headers) in bytes. */
  headLimit: number;
  /** Milliseconds without progress after which a reader that has a reply waiting is disconnected; it may take up to twice as long. */
  stall: number;
  /** Without it, handshakes are ordinary requests. */
  sockets?: SocketOptions;
  /** Called for each connection above the limit, reader that is disconnected, and message that is too large. */
  refused?: CountRefusal | undefined;
}

export interface Listening {
  /** The bound port, which differs from the requested one for `port: 0`. */
  readonly port: number;
  /** How many connections are open, WebSockets among them. */
  readonly connections: number;
  /** Stops accepting connections. Idle keep-alive connections are closed at once, busy ones after their reply. */
  stop(): void;
  /** Closes every connection that is left, without an answer. */
  close(): Promise<void>;
}

/** The port that `transport/uws.ts` and `transport/node.ts` implement. */
export interface Transport {
  readonly name: "uws" | "node";
  listen(dispatch: Dispatch, options: ListenOptions): Promise<Listening>;
}
