/** The WebSockets of one node:http listener, with the package `ws`. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { WebSocket, WebSocketServer } from "ws";
import type { OpenSocket, SocketEvents } from "../http/exchange.ts";
import type { CountRefusal } from "../observability/metrics/limit-meters.ts";

/** A code of errors of `ws`. */
const MESSAGE_TOO_LARGE = "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH";

class NodeSocket implements OpenSocket {
  /** False when nothing has arrived since the last ping. */
  alive = true;
  readonly #socket: WebSocket;
  readonly #stream: Socket;

  constructor(socket: WebSocket, stream: Socket) {
    this.#socket = socket;
    this.#stream = stream;
  }

  get buffered(): number {
    return this.#socket.bufferedAmount;
  }

  send(text: string | Uint8Array): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(text, { binary: false });
  }

  cork(work: () => void): void {
    this.#stream.cork();
    try {
      work();
    } finally {
      this.#stream.uncork();
    }
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason);
  }

  destroy(): void {
    this.#socket.terminate();
  }

  /** Sends a ping, or disconnects a peer that has not answered the last one. */
  check(): void {
    if (!this.alive) this.destroy();
    this.alive = false;
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.ping();
  }
}

/** A handshake to answer. */
interface Handshake {
  request: IncomingMessage;
  socket: Socket;
  /** Bytes that arrived after the head. */
  head: Buffer;
  requestId: string;
}

export class NodeSockets {
  readonly #limit: number;
  readonly #pingEvery: number;
  readonly #refused: CountRefusal | undefined;
  readonly #open = new Set<NodeSocket>();
  readonly #requestIds = new WeakMap<IncomingMessage, string>();
  #server: Promise<WebSocketServer> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;

  /**
   * @param limit largest message in bytes
   * @param pingEvery milliseconds; a peer that has not answered by the next ping is disconnected
   * @param refused called for messages that are too large
   */
  constructor(limit: number, pingEvery: number, refused?: CountRefusal) {
    this.#limit = limit;
    this.#pingEvery = pingEvery;
    this.#refused = refused;
  }

  async accept(handshake: Handshake, open: (socket: OpenSocket) => SocketEvents): Promise<void> {
    const { request, socket, head, requestId } = handshake;
    this.#server ??= this.#load();
    const server = await this.#server;
    if (this.#closed) {
      socket.destroy();
      return;
    }
    this.#requestIds.set(request, requestId);
    // Synchronous. The callback is not called when the peer has left in the meantime.
    server.handleUpgrade(request, socket, head, (accepted) => this.#keep(accepted, socket, open));
  }

  /** Loads the package with the first handshake: most services have none. */
  async #load(): Promise<WebSocketServer> {
    const { WebSocketServer } = await import("ws");
    const server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: this.#limit,
    });
    server.on("headers", (headers, request) => {
      const requestId = this.#requestIds.get(request);
      if (requestId) headers.push(`x-request-id: ${requestId}`);
    });
    return server;
  }

  #keep(accepted: WebSocket, stream: Socket, open: (socket: OpenSocket) => SocketEvents): void {
    const socket = new NodeSocket(accepted, stream);
    this.#open.add(socket);
    this.#timer ??= this.#startPings();
    // A malformed frame closes this socket with a matching code; the event `close` reports it.
    accepted.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === MESSAGE_TOO_LARGE) this.#refused?.("server.limits.socketMessage");
    });
    const events = open(socket);
    accepted.on("message", (data: Buffer, isBinary: boolean) => {
      socket.alive = true;
      if (isBinary) accepted.close(1003, "text messages only");
      else if (accepted.readyState === accepted.OPEN) events.message(data.toString("utf8"));
    });
    accepted.on("pong", () => {
      socket.alive = true;
    });
    stream.on("drain", () => events.drained());
    accepted.once("close", (code: number) => {
      this.#open.delete(socket);
      if (this.#open.size === 0) this.#stopPings();
      events.ended(code);
    });
  }

  #startPings(): NodeJS.Timeout {
    const timer = setInterval(() => {
      for (const socket of this.#open) socket.check();
    }, this.#pingEvery);
    timer.unref();
    return timer;
  }

  #stopPings(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Disconnects all sockets. */
  close(): void {
    this.#closed = true;
    this.#stopPings();
    for (const socket of [...this.#open]) socket.destroy();
  }
}
