/** A WebSocket handshake over node:http. */
import { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { OpenSocket, SocketEvents, Upgrade } from "../http/exchange.ts";
import { chooseProtocol, isHandshake } from "./handshake.ts";
import { type NodeConnection, NodeExchange } from "./node-exchange.ts";
import type { NodeSockets } from "./node-sockets.ts";

const UPGRADE = Symbol("upgrade");

/**
 * Once there is a listener for upgrades, node:http treats every request with an `Upgrade` header as one, even `h2c`, which some clients
 * send with every request. This class limits that to WebSocket handshakes: a server may ignore any other `Upgrade` (RFC 9110, 7.8).
 */
export class UpgradableMessage extends IncomingMessage {
  declare private [UPGRADE]: boolean;

  get upgrade(): boolean {
    return this[UPGRADE] && isHandshake(this.method ?? "", (name) => singleHeader(this, name));
  }

  set upgrade(asked: boolean) {
    this[UPGRADE] = asked;
  }
}

function singleHeader({ headers }: IncomingMessage, name: string): string {
  const value = headers[name];
  return typeof value === "string" ? value : "";
}

export class NodeUpgrade extends NodeExchange implements Upgrade {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #socket: Socket;
  readonly #head: Buffer;
  readonly #sockets: NodeSockets;

  constructor(
    request: IncomingMessage,
    head: Buffer,
    target: { path: string; query: string },
    connection: NodeConnection,
    sockets: NodeSockets,
  ) {
    const { socket } = request;
    const response = new ServerResponse(request);
    response.assignSocket(socket);
    response.on("error", () => {}); // handled by the socket's close
    // No HTTP request can follow on this connection, whatever the answer is.
    response.once("finish", () => {
      response.detachSocket(socket);
      socket.destroySoon();
    });
    super(request, response, target, connection, false);
    this.#request = request;
    this.#response = response;
    this.#socket = socket;
    this.#head = head;
    this.#sockets = sockets;
    this.endsConnection();
  }

  accept(open: (socket: OpenSocket) => SocketEvents): void {
    if (this.closed) return;
    this.release();
    this.#response.detachSocket(this.#socket);
    offerOne(this.#request);
    const handshake = {
      request: this.#request,
      socket: this.#socket,
      head: this.#head,
      requestId: this.requestId,
    };
    this.#sockets.accept(handshake, open).catch(() => this.#socket.destroy());
  }
}

/** Leaves only the chosen subprotocol in the request, because `ws` replies by itself to a list that it cannot parse. */
function offerOne({ headers }: IncomingMessage): void {
  const name = "sec-websocket-protocol";
  const chosen = chooseProtocol(headers[name] ?? "");
  if (chosen === "") delete headers[name];
  else headers[name] = chosen;
}
