/** The state that a listener of uWebSockets.js and its exchanges share. */
import type { Heads } from "./heads.ts";
import type { UwsExchange } from "./uws-exchange.ts";
import type { UwsFlows } from "./uws-flow.ts";
import type { UwsHead } from "./uws-head.ts";
import type { Unanswered } from "./uws-unanswered.ts";

export interface UwsListener {
  /** The head of the request being dispatched. */
  readonly head: UwsHead;
  readonly heads: Heads;
  readonly flows: UwsFlows;
  /** The exchange whose head may be read now. */
  reading: UwsExchange | null;
  /** The exchange whose socket is corked now: it writes without a cork of its own. */
  corked: UwsExchange | null;
  /** Null when there are no sockets. */
  readonly unanswered: Unanswered | null;
  /** True once the listener is stopping: every reply then closes its connection. */
  stopping: boolean;
  /** Reports an error of a callback: errors must not be thrown into native code. */
  report(error: unknown): void;
}
