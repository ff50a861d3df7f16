/** What a plugin of kind `socket` sees of its peers. */
import type { Logger } from "pino";
import type { User } from "../../identity/user.ts";
import type { RouteCall } from "./route-services.ts";

/** One open WebSocket. Once it is closed, methods do nothing. */
export interface PluginSocketPeer {
  /** The user of the handshake's token; null when no token was required. */
  readonly user: User | null;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** The query without `key`, `token` and `dev`; of a repeated name the last value. */
  readonly query: Readonly<Record<string, string>>;
  readonly logger: Logger;
  /** Aborts when the socket is closed. */
  readonly signal: AbortSignal;
  /** Agents, tools, workflows and memories, on behalf of this peer: as in a route. */
  readonly call: RouteCall;
  readonly closed: boolean;
  /**
   * Sends a value as JSON. False: the peer is more than 256 KiB behind, and the message was dropped. Once it has caught up, it gets
   * the number of dropped messages: `{"type":"DROPPED","count":n}`.
   */
  send(data: unknown): boolean;
  /** @param code default 1000; codes of your own are 3000 to 4999 */
  close(code?: number, reason?: string): void;
}
