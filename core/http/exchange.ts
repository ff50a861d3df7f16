/**
 * What a transport gives and takes: leaf types, no behaviour.
 *
 * A transport calls `Dispatch` synchronously, once per request, inside its native callback. During that call, and only
 * then, the head may be read (`header`, `headers`): a native request object dies when the callback returns. `readBody`
 * must be called during it as well, or not at all.
 */
import type { Uploads } from "./uploads.ts";

/**
 * A flat list of names (lower case) and values: `["content-type", "text/html", ...]`. Never content-length, never date. A
 * list that is used again must not have changed: a transport may remember what it made of it.
 */
export type HeaderList = readonly string[];

/** `crowded`: it would fit, but for those of other requests. */
export type BodyProblem = "too_large" | "crowded" | "aborted" | "malformed";

export type OnBody = (body: Uint8Array) => void;
export type OnBodyFailed = (problem: BodyProblem) => void;

export interface Exchange {
  /** As sent, upper case. */
  readonly method: string;
  /** The raw target without the query: still percent-encoded. Always begins with `/`. */
  readonly path: string;
  /** The raw query without `?`; an empty string when there is none. */
  readonly query: string;
  /** One header by its lower-case name; an empty string when absent. Only during `Dispatch`. */
  header(name: string): string;
  /** A copy of all headers, names in lower case, repeated ones joined by `, `. Only during `Dispatch`. */
  headers(): Record<string, string>;
  /** The peer's address as text. Only while the exchange is open. */
  remoteAddress(): string;

  /**
   * Collects the body, at most `limit` bytes; exactly one of the callbacks is called, once, maybe synchronously. The
   * bytes belong to the caller. After `too_large` and `crowded` nothing more is read or kept and `reply` closes the connection.
   *
   * @param uploads what bodies of all requests share: those of `done` are the caller's to give back
   */
  readBody(limit: number, done: OnBody, failed: OnBodyFailed, uploads?: Uploads): void;

  /** True once the peer is gone or the reply has ended. Everything below is then a no-op. */
  readonly closed: boolean;
  /** Written by the transport as `x-request-id` of the reply, beside the headers given; empty = none. */
  requestId: string;
  /** At most one listener: called once when the peer leaves before the reply has ended. */
  onAbort(listener: () => void): void;

  /** A whole reply. On HEAD the transport sends the same head (content-length too) and no body. */
  reply(status: number, headers: HeaderList, body: string | Uint8Array | null, close?: boolean): void;

  /**
   * Starts a reply of unknown length: sends status and headers at once. On HEAD it ends the reply. Where a head cannot go
   * alone (uws), that of an event stream takes a comment line along, and another waits for its first chunk.
   */
  begin(status: number, headers: HeaderList): void;
  /** Sends a chunk. False says that the peer is behind: wait for `drained` before the next one. The chunk was taken. */
  write(chunk: string | Uint8Array): boolean;
  /** Settles when the socket has drained or the exchange has closed: it never hangs on a peer that left. */
  drained(): Promise<void>;
  /** Bytes accepted by `write` that the socket has not taken yet. */
  readonly buffered: number;
  end(): void;
  /** Runs `work`; all that it sends (begin, write, end) leaves in one write where the transport can do that. */
  cork(work: () => void): void;
  /** Cuts the connection without an answer. */
  destroy(): void;
}

export type Dispatch = (exchange: Exchange) => void;

/** One open WebSocket. All of it is synchronous; after the end everything does nothing. */
export interface OpenSocket {
  /** Bytes that the peer has not taken yet. */
  readonly buffered: number;
  /** Sends one text message; bytes are its UTF-8. It is taken whatever `buffered` is: the caller keeps within bounds. */
  send(text: string | Uint8Array): void;
  /** Runs `work`; what it sends leaves in one write where the transport can do that. */
  cork(work: () => void): void;
  /** Ends it with a close frame. The code is one that may be sent, the reason at most 123 bytes long. */
  close(code: number, reason: string): void;
  /** Cuts the connection without a close frame. */
  destroy(): void;
}

/** What a transport tells of one open WebSocket. None of it throws. */
export interface SocketEvents {
  /** A whole text message. Binary ones never come: they close the socket (1003), and so do those that are too large (1009). */
  message(text: string): void;
  /** The peer has taken some of what waited for it. */
  drained(): void;
  /** It is over, whatever ended it; called once. 1006: without a close frame. */
  ended(code: number): void;
}

/**
 * A well-formed request for a WebSocket (RFC 6455, 4.2.1). It is refused as any request is answered: by `reply`. What is
 * not well formed is an ordinary request.
 */
export interface Upgrade extends Exchange {
  /**
   * Answers 101, with the first subprotocol that the client offers, if any. `open` is called once the socket is open, maybe
   * later; never when the peer has left. The exchange is over.
   */
  accept(open: (socket: OpenSocket) => SocketEvents): void;
}

export interface SocketOptions {
  /** Called like `Dispatch`. */
  dispatch(upgrade: Upgrade): void;
  /** Largest message taken, in bytes. */
  message: number;
}

export interface ListenOptions {
  host: string;
  port: number;
  /** Connections at once, WebSockets among them; more are refused. */
  connections: number;
  /** Largest head (request line and headers) in bytes. */
  headLimit: number;
  /** Milliseconds that a reader may take nothing while a reply waits for it, give or take as much again: then it is cut. */
  stall: number;
  /** Left out: requests for a WebSocket are ordinary ones. */
  sockets?: SocketOptions;
}

export interface Listening {
  /** The port in fact bound (for `port: 0`). */
  readonly port: number;
  /** Stops accepting connections; open ones go on. Idle keep-alive connections are closed, busy ones after their reply. */
  stop(): void;
  /** Cuts every connection that is left. */
  close(): Promise<void>;
}

/** The port that `transport/uws.ts`, `transport/node.ts` and `transport/inject.ts` implement. */
export interface Transport {
  readonly name: "uws" | "node";
  listen(dispatch: Dispatch, options: ListenOptions): Promise<Listening>;
}
