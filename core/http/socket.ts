/** One row of the sockets table, and what its handlers see: leaf types, no behaviour. Generic in the service, as routes are. */
import type { Logger } from "pino";
import type { Caller } from "../identity/caller.ts";
import type { User } from "../identity/user.ts";
import type { Text } from "../lib/serialized.ts";
import type { Client } from "./client.ts";
import type { AccessGroup } from "./route.ts";

/** One open WebSocket. All of it is synchronous; after the end everything does nothing. */
export interface Peer {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  /** Where the handshake came from. */
  readonly client: Client;
  readonly logger: Logger;
  /** Made when first asked for; aborts when the socket is over. */
  readonly signal: AbortSignal;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Parsed query, without credentials; one value each. */
  readonly query: Readonly<Record<string, string>>;
  readonly closed: boolean;
  /** Bytes that the peer has not taken yet. */
  readonly buffered: number;
  /**
   * Sends one text message; bytes are its UTF-8. False: the peer is so far behind that it was not sent. How many were not
   * is told with `{type:"DROPPED", count}` as soon as the peer has caught up.
   */
  send(text: Text): boolean;
  /** Counts messages that somebody else has not sent, to be told with those that `send` has not. */
  drop(count: number): void;
  /** Runs `work`; what it sends leaves in one write where the transport can do that. */
  cork(work: () => void): void;
  /**
   * @param code 1000 (default), another that may be sent (RFC 6455, 7.4), or one of 3000 to 4999
   * @param reason cut off after 123 bytes
   */
  close(code?: number, reason?: string): void;
}

/** What happens on one open socket. A throw, or a promise that rejects, closes it (1011), and is logged. */
export interface SocketHandlers {
  /** What opening it still waits for. Messages do not. */
  ready?: Promise<void> | undefined;
  /** The messages of a peer do not wait for each other: it is closed (1013) when too many promises are open. */
  message?: ((text: string) => void | Promise<void>) | undefined;
  /** The peer has taken some of what waited for it. */
  drained?: (() => void) | undefined;
  /** It is over, whatever ended it; called once. */
  close?: (() => void | Promise<void>) | undefined;
}

export interface SocketRoute<S> {
  /** `sockets.logs`: label of logs and metrics, test title. */
  readonly operation: string;
  /** `/ws/logs`. A parameter is one segment. A last segment `**` stands for the path itself and everything below it. */
  readonly path: string;
  readonly group: AccessGroup;
  readonly summary: string;
  /** Names of the query's parameters with what they mean, for the documentation. */
  readonly query?: Readonly<Record<string, string>>;
  /** Called before the handshake is answered: a ServiceError refuses it (a query that does not parse is `invalid_input`, 400). */
  check?(asked: Pick<Peer, "query" | "params" | "user" | "caller">, service: S): void;
  /** Called once the socket is open. */
  open(peer: Peer, service: S): SocketHandlers;
}
