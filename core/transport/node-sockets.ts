/** The WebSockets of one node:http listener, with the package `ws`. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { WebSocket, WebSocketServer } from "ws";
import type { OpenSocket, SocketEvents } from "../http/exchange.ts";
import type { CountRefusal } from "../observability/metrics/meters.ts";

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

export type NodeSockets = ReturnType<typeof createNodeSockets>;

/**
 * @param limit largest message in bytes
 * @param pingEvery milliseconds; a peer that has not answered by the next ping is disconnected
 * @param refused called for messages that are too large
 */
export function createNodeSockets(limit: number, pingEvery: number, refused?: CountRefusal) {
  const opened = new Set<NodeSocket>();
  const requestIds = new WeakMap<IncomingMessage, string>();
  let started: Promise<WebSocketServer> | null = null;
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  async function accept(handshake: Handshake, open: (socket: OpenSocket) => SocketEvents): Promise<void> {
    const { request, socket, head, requestId } = handshake;
    started ??= load();
    const server = await started;
    if (closed) {
      socket.destroy();
      return;
    }
    requestIds.set(request, requestId);
    // Synchronous. The callback is not called when the peer has left in the meantime.
    server.handleUpgrade(request, socket, head, (accepted) => keep(accepted, socket, open));
  }

  /** Loads the package with the first handshake: most services have none. */
  async function load(): Promise<WebSocketServer> {
    const { WebSocketServer } = await import("ws");
    const server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: limit,
    });
    server.on("headers", (headers, request) => {
      const requestId = requestIds.get(request);
      if (requestId) headers.push(`x-request-id: ${requestId}`);
    });
    return server;
  }

  function keep(accepted: WebSocket, stream: Socket, open: (socket: OpenSocket) => SocketEvents): void {
    const socket = new NodeSocket(accepted, stream);
    opened.add(socket);
    timer ??= startPings();
    // A malformed frame closes this socket with a matching code; the event `close` reports it.
    accepted.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === MESSAGE_TOO_LARGE) refused?.("server.limits.socketMessage");
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
      opened.delete(socket);
      if (opened.size === 0) stopPings();
      events.ended(code);
    });
  }

  function startPings(): NodeJS.Timeout {
    const timer = setInterval(() => {
      for (const socket of opened) socket.check();
    }, pingEvery);
    timer.unref();
    return timer;
  }

  function stopPings(): void {
    if (timer !== null) clearInterval(timer);
    timer = null;
  }

  /** Disconnects all sockets. */
  function close(): void {
    closed = true;
    stopPings();
    for (const socket of [...opened]) socket.destroy();
  }

  return { accept, close };
}
