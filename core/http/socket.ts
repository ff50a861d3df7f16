/** A row of the table of WebSockets, and what its handlers get: types only. Generic in the service, as routes are. */
import type { Logger } from "pino";
import type { Caller } from "../identity/caller.ts";
import type { User } from "../identity/user.ts";
import type { Text } from "../lib/serialized.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { Client } from "./client.ts";
import type { ErrorForm } from "./encode.ts";
import type { AccessGroup } from "./route.ts";
import type { Charge } from "./uploads.ts";

/** One open WebSocket. All methods are synchronous, and do nothing once it is closed. */
export interface Peer {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  /** Where the handshake came from. */
  readonly client: Client;
  readonly logger: Logger;
  /** Parent of the spans of requests over this socket; undefined when tracing is off. */
  readonly trace?: SpanOrigin | undefined;
  /** Created when it is first read; aborts when the socket is closed. */
  readonly signal: AbortSignal;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Parsed query, without credentials; one value each. */
  readonly query: Readonly<Record<string, string>>;
  readonly closed: boolean;
  /** Bytes that the peer has not taken yet. */
  readonly buffered: number;
  /**
   * Sends one text message; bytes must be UTF-8. False: the message was dropped, because the peer is too far behind. As soon as
   * it has caught up it is sent `{type:"DROPPED", count}` with the number of dropped messages.
   */
  send(text: Text): boolean;
  /** Sends one text message that must not be dropped. Callers must wait while `buffered` is high. */
  deliver(text: Text): void;
  /** Adds messages that the caller dropped to the number of dropped messages. */
  drop(count: number): void;
  /** Runs `work`; what it sends goes out in one write, if the transport can do that. */
  cork(work: () => void): void;
  /**
   * @param code 1000 (default), another that may be sent (RFC 6455, 7.4), or one of 3000 to 4999
   * @param reason cut off after 123 bytes
   */
  close(code?: number, reason?: string): void;
}

/** What happens on one open socket. A throw, or a promise that rejects, closes it (1011), and is logged. */
export interface SocketHandlers {
  /** Asynchronous work of opening. Messages are handled without waiting for it. */
  ready?: Promise<void> | undefined;
  /** The messages of a peer do not wait for each other: with too many unfinished promises it is closed (1013). */
  message?: ((text: string, charge: Charge) => void | Promise<void>) | undefined;
  /** A message is not handled, because too many bytes are in memory. Default: the peer is closed (1013). */
  refuse?: ((error: unknown) => void | Promise<void>) | undefined;
  /** The peer has read some of what was buffered. */
  drained?: (() => void) | undefined;
  /** The socket is closed, for whatever reason; called once. */
  close?: (() => void | Promise<void>) | undefined;
}

export interface SocketRoute<S> {
  /** Such as `sockets.logs`: the label in logs and metrics. */
  readonly operation: string;
  /** Such as `/ws/logs`. A parameter is one segment. A last segment `**` stands for the path itself and everything below it. */
  readonly path: string;
  readonly group: AccessGroup;
  readonly summary: string;
  /** Descriptions of the query parameters, for the documentation. */
  readonly query?: Readonly<Record<string, string>>;
  /** The format in which a handshake is refused; default: the JSON envelope. */
  readonly errors?: ErrorForm;
  /** Called before the handshake is answered: a ServiceError refuses it (a query that does not parse is `invalid_input`, 400). */
  check?(asked: Pick<Peer, "query" | "params" | "user" | "caller">, service: S): void;
  /** Called once the socket is open. */
  open(peer: Peer, service: S): SocketHandlers;
}
