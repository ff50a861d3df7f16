/** A WebSocket handshake over uWebSockets.js. */
import type { OpenSocket, SocketEvents, Upgrade } from "../http/exchange.ts";
import { chooseProtocol } from "./handshake.ts";
import { UwsExchange } from "./uws-exchange.ts";
import type { UwsListener } from "./uws-listener.ts";
import type { NativeResponse } from "./uws-native.ts";
import { UwsSocket } from "./uws-socket.ts";

export class UwsUpgrade extends UwsExchange implements Upgrade {
  readonly #context: object;
  // Copied now: the head can no longer be read when the credentials have been checked.
  readonly #key: string;
  readonly #protocol: string;

  constructor(listener: UwsListener, response: NativeResponse, path: string, query: string, context: object) {
    super(listener, response, "GET", path, query);
    this.#context = context;
    this.#key = listener.head.get("sec-websocket-key");
    this.#protocol = chooseProtocol(listener.head.get("sec-websocket-protocol"));
  }

  accept(open: (socket: OpenSocket) => SocketEvents): void {
    const response = this.release();
    if (response === null) return;
    const { requestId } = this;
    response.cork(() => {
      response.writeStatus("101 Switching Protocols");
      if (requestId !== "") response.writeHeader("x-request-id", requestId);
    });
    const { corked, unanswered } = this.listener;
    const corks = corked === this ? response : (unanswered?.response ?? response);
    // The socket is open when `upgrade` returns.
    corks.cork(() => response.upgrade({ socket: new UwsSocket(open) }, this.#key, this.#protocol, "", this.#context));
  }
}
