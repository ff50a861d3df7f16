/** One row of the sockets table, and what its handlers see: leaf types, no behaviour. Generic in the service, as routes are. */
import type { Logger } from "pino";
import type { Caller, Group, User } from "./route.ts";

/** One open WebSocket. All of it is synchronous; after the end everything does nothing. */
export interface Peer {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  readonly logger: Logger;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Parsed query, without credentials; one value each. */
  readonly query: Readonly<Record<string, string>>;
  readonly closed: boolean;
  /** Bytes that the peer has not taken yet. */
  readonly buffered: number;
  /**
   * Sends one text message. False: the peer is so far behind that it was not sent. How many were not is told with
   * `{type:"DROPPED", count}` as soon as the peer has caught up.
   */
  send(text: string): boolean;
  close(code?: number, reason?: string): void;
}

/** What happens on one open socket. A throw closes it, and is logged. */
export interface SocketHandlers {
  message?(text: string): void;
  close?(): void;
}

export interface SocketRoute<S> {
  /** `sockets.logs`: label of logs and metrics, test title. */
  readonly operation: string;
  /** `/ws/logs`. A last segment `**` stands for the path itself and everything below it. */
  readonly path: string;
  readonly group: Group;
  readonly summary: string;
  /** Called before the handshake is answered: a ServiceError refuses it (a query that does not parse is `invalid_input`, 400). */
  check?(query: Readonly<Record<string, string>>, params: Readonly<Record<string, string>>, service: S): void;
  /** Called once the socket is open. */
  open(peer: Peer, service: S): SocketHandlers;
}
