/**
 * Types of the part of uWebSockets.js that is used here, and how long each native object lives:
 *
 * | object                 | lives until                                        | rule here                                  |
 * |------------------------|----------------------------------------------------|--------------------------------------------|
 * | request                | the route callback returns                         | read in `UwsHead.read` and nowhere else    |
 * | response               | `end*`, `close`, or the abort callback             | the field is null from that moment         |
 * | body chunk             | its `onData` callback returns                      | copied before anything else sees it        |
 * | response of a filter   | the filter callback returns                        | used to refuse a connection, never kept    |
 * | socket (WebSocket)     | `end`, `close`, or the close callback              | the field of `UwsSocket` is null from then |
 * | bytes of a message     | their callback returns                             | made text before anything else sees them   |
 * | listen socket          | `us_listen_socket_close` or `app.close`            | closed once, by `stop`                     |
 * | app                    | the process (the addon keeps it)                   | one per listener, closed by `close`        |
 *
 * - No exception may leave a native callback.
 * - When the route callback returns, the response must be ended or have an abort callback; otherwise the process crashes.
 * - A response has one `onWritable` callback.
 * - Ten seconds (give or take two) after a failed write the response is closed, unless a writable event or a resume comes first. A
 *   write that fails at the end of a cork is not reported.
 * - Writes outside of a native callback must be corked.
 * - `write` accepts the chunk even when it returns false.
 * - Data that does not fit into the cork buffer may be lost: see `UwsStream`. Pipelined requests share a cork, so a client that pipelines
 *   and does not read may get a broken reply.
 * - The last argument of `end` closes the connection after the reply. Requests that were pipelined in the same segment are still
 *   dispatched, unless the response is ended after the callback has returned.
 */
import { connect } from "node:net";

export interface NativeRequest {
  forEach(take: (name: string, value: string) => void): void;
  getUrl(): string;
  /** Undefined when the target has no `?`. */
  getQuery(): string | undefined;
  getCaseSensitiveMethod(): string;
}

export interface NativeResponse {
  /** Accepts the header lines too, joined by line breaks: one native call for a whole head. */
  writeStatus(status: string): unknown;
  writeHeader(name: string, value: string): unknown;
  write(chunk: string | Uint8Array): boolean;
  end(body?: string | Uint8Array, close?: boolean): unknown;
  /** Sends as much as possible of a body of `total` bytes. Returns whether all of the chunk was sent, and whether the reply has ended. */
  tryEnd(chunk: Uint8Array, total: number): [ok: boolean, done: boolean];
  /** Number of body bytes that were sent. */
  getWriteOffset(): number;
  /** Call `resume` right after `pause`: that restarts the timeout of ten seconds. A response that stays paused gets no events. */
  pause(): unknown;
  resume(): unknown;
  /** Call it without arguments: with a length, the binary for Node 20 treats the reply as unfinished. */
  endWithoutBody(): unknown;
  close(): unknown;
  onWritable(listener: (offset: number) => boolean): unknown;
  onAborted(listener: () => void): unknown;
  onData(listener: (chunk: ArrayBuffer, last: boolean) => void): unknown;
  getRemoteAddressAsText(): ArrayBuffer;
  cork(work: () => void): unknown;
  /** Calls `open` of the behaviour before it returns. `context` is the one that came with the request. */
  upgrade(data: object, key: string, protocol: string, extensions: string, context: object): void;
}

export interface NativeSocket {
  /** Own properties of the object of `upgrade`, copied to a new one: an instance of a class would lose its methods. */
  getUserData(): unknown;
  getBufferedAmount(): number;
  send(text: string | Uint8Array, isBinary: boolean): number;
  cork(work: () => void): unknown;
  /** Sends a close frame; calls `close` of the behaviour before it returns. */
  end(code: number, reason: string): void;
  /** Closes without a close frame; calls `close` of the behaviour before it returns. */
  close(): void;
}

/** The behaviour of sockets. Numbers are bytes and seconds. */
export interface NativeSocketBehavior {
  maxPayloadLength: number;
  idleTimeout: number;
  sendPingsAutomatically: boolean;
  /** 0 for no limit. */
  maxBackpressure: number;
  /** 0 for none. */
  compression: number;
  upgrade(response: NativeResponse, request: NativeRequest, context: object): void;
  open(socket: NativeSocket): void;
  message(socket: NativeSocket, bytes: ArrayBuffer, isBinary: boolean): void;
  drain(socket: NativeSocket): void;
  /** The addon answers pings by itself, however much waits for the peer. */
  ping(socket: NativeSocket): void;
  /** @param reason from the peer or the addon */
  close(socket: NativeSocket, code: number, reason: ArrayBuffer): void;
}

export type NativeListenSocket = object;

export interface NativeApp {
  /** Receives every GET with a `sec-websocket-key` of 24 characters, before `any`. */
  ws(pattern: string, behavior: NativeSocketBehavior): unknown;
  any(pattern: string, handler: (response: NativeResponse, request: NativeRequest) => void): unknown;
  filter(visit: (response: NativeResponse, change: number) => void): unknown;
  listen(host: string, port: number, options: number, done: (socket: NativeListenSocket | false) => void): unknown;
  close(): unknown;
}

export interface Native {
  App(): NativeApp;
  _cfg(setting: "silent"): void;
  us_listen_socket_close(socket: NativeListenSocket): void;
  us_socket_local_port(socket: NativeListenSocket): number;
  LIBUS_LISTEN_EXCLUSIVE_PORT: number;
}

/*
 * A response that is never sent. Handshakes that had to wait for a check of credentials are accepted inside its cork.
 *
 * A response that becomes a socket inside its own cork keeps its address, and at the end of the cork the addon (3.0.6) reads the flags of
 * the response from memory that may have been reused by then: one new process in thirty closed a socket right after its 101.
 * Outside of any cork the addon writes a warning to standard error. The cork of another response avoids both, and this is that response.
 */

export interface Unanswered {
  /** Null when its connection is lost. */
  readonly response: NativeResponse | null;
  close(): void;
}

const REQUEST = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/** Opens the response over a connection of the process to itself. Rejects when there is no loopback. */
export async function openUnanswered(native: Native): Promise<Unanswered> {
  const app = native.App();
  const unanswered = { response: null as NativeResponse | null, close: () => app.close() };
  const arrived = new Promise<void>((resolve) => {
    app.any("/*", (response) => {
      unanswered.response = response;
      response.onAborted(() => {
        unanswered.response = null;
      });
      resolve();
    });
  });
  const listening = await new Promise<NativeListenSocket | false>((resolve) => {
    app.listen("127.0.0.1", 0, native.LIBUS_LISTEN_EXCLUSIVE_PORT, resolve);
  });
  if (listening === false) throw new Error("cannot listen on 127.0.0.1");
  const client = connect(native.us_socket_local_port(listening), "127.0.0.1");
  try {
    const failed = new Promise<never>((_resolve, reject) => client.once("error", reject));
    client.unref().write(REQUEST);
    await Promise.race([arrived, failed]);
  } finally {
    native.us_listen_socket_close(listening);
  }
  return unanswered;
}
