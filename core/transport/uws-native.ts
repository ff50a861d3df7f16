/**
 * The part of uWebSockets.js that is used here, as shapes of our own, and how long each object lives:
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
 * No exception may leave a native callback. A response must be ended, or have an abort callback, when the route callback
 * returns: otherwise the process ends. One `onWritable` callback per response. Ten seconds, give or take two, after a write that
 * failed the response is closed, unless a writable event or a resume comes before; a cork that fails at its end tells nobody. Writes outside of a native callback must
 * be corked. `write` that returns false has taken the chunk. The last argument of `end` closes after the reply, but what
 * was pipelined in the same segment is still dispatched, unless the response is ended later than the callback.
 */
import type { UwsSocket } from "./uws-socket.ts";

export interface NativeRequest {
  forEach(take: (name: string, value: string) => void): void;
  getUrl(): string;
  /** Undefined without a `?`. */
  getQuery(): string | undefined;
  getCaseSensitiveMethod(): string;
}

export interface NativeResponse {
  /** Also takes the header lines, joined by line breaks: one native call for a whole head. */
  writeStatus(status: string): unknown;
  writeHeader(name: string, value: string): unknown;
  write(chunk: string | Uint8Array): boolean;
  end(body?: string | Uint8Array, close?: boolean): unknown;
  /** Takes what can be sent at once of a body of `total` bytes. Gives whether all of the chunk was, and whether it is over. */
  tryEnd(chunk: Uint8Array, total: number): [ok: boolean, done: boolean];
  /** Bytes of the body that were sent. */
  getWriteOffset(): number;
  /** Always both, one after the other: they set the clock of the response back to ten seconds. One that stays paused hears nothing. */
  pause(): unknown;
  resume(): unknown;
  /** Without arguments: with a length the Node 20 binary takes the reply for unfinished. */
  endWithoutBody(): unknown;
  close(): unknown;
  onWritable(listener: (offset: number) => boolean): unknown;
  onAborted(listener: () => void): unknown;
  onData(listener: (chunk: ArrayBuffer, last: boolean) => void): unknown;
  getRemoteAddressAsText(): ArrayBuffer;
  cork(work: () => void): unknown;
  /** Calls `open` of the behaviour before it returns. The context is the one that came with the request. */
  upgrade(data: SocketData, key: string, protocol: string, extensions: string, context: object): void;
}

/** Its properties are copied into an object of the addon's: of an instance nothing else would arrive. */
interface SocketData {
  readonly socket: UwsSocket;
}

export interface NativeSocket {
  getUserData(): SocketData;
  getBufferedAmount(): number;
  send(text: string | Uint8Array, isBinary: boolean): number;
  cork(work: () => void): unknown;
  /** Sends a close frame; calls `close` of the behaviour before it returns. */
  end(code: number, reason: string): void;
  /** The same without a close frame. */
  close(): void;
}

/** Numbers are bytes and seconds. */
export interface NativeSocketBehavior {
  maxPayloadLength: number;
  idleTimeout: number;
  sendPingsAutomatically: boolean;
  /** 0: none. */
  maxBackpressure: number;
  /** 0: none. */
  compression: number;
  upgrade(response: NativeResponse, request: NativeRequest, context: object): void;
  open(socket: NativeSocket): void;
  message(socket: NativeSocket, bytes: ArrayBuffer, isBinary: boolean): void;
  drain(socket: NativeSocket): void;
  /** The addon answers by itself, however much waits for the peer. */
  ping(socket: NativeSocket): void;
  close(socket: NativeSocket, code: number): void;
}

export type NativeListenSocket = object;

export interface NativeApp {
  /** Takes every GET with a key of 24 characters, before `any` does. */
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
