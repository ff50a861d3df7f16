/** The portable transport: node:http, for platforms where the native addon does not load. */
import type { Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type {
  Dispatch,
  Listening,
  ListenOptions,
  OpenSocket,
  SocketEvents,
  Transport,
  Upgrade,
} from "../http/exchange.ts";
import { chooseProtocol, isHandshake } from "./handshake.ts";
import { listenError } from "./listen-error.ts";
import { type NodeConnection, NodeExchange } from "./node-exchange.ts";
import { createServer, IncomingMessage, ServerResponse } from "./node-http.ts";
import { createNodeSockets, type NodeSockets } from "./node-sockets.ts";
import { rawRefusal, refusalBody, refusalText } from "./refusal.ts";
import { hostInTarget, splitTarget } from "./target.ts";

const UPGRADE = Symbol("upgrade");

/**
 * Once there is a listener for upgrades, node:http treats every request with an `Upgrade` header as one, even `h2c`, which some clients
 * send with every request. This class limits that to WebSocket handshakes: a server may ignore any other `Upgrade` (RFC 9110, 7.8).
 */
class UpgradableMessage extends IncomingMessage {
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

/** A WebSocket handshake over node:http. */
class NodeUpgrade extends NodeExchange implements Upgrade {
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

interface NodeOptions {
  /** Milliseconds within which a whole head must arrive. Default 10,000. */
  headTimeout?: number;
  /** Milliseconds within which a whole request, body included, must arrive. Default 60,000. */
  requestTimeout?: number;
  /** Milliseconds that a connection may be idle between requests. Default 75,000, longer than proxies keep idle upstreams. */
  idleTimeout?: number;
  /** Milliseconds between two pings of a WebSocket: a peer that has not answered by the next one is disconnected. Default 30,000. */
  pingEvery?: number;
}

/** HTTP status for errors of Node's parser; 400 for all others. */
const PARSER_STATUS: Record<string, number | undefined> = {
  HPE_HEADER_OVERFLOW: 431,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

function createNodeListening(
  server: Server,
  sockets: Map<Socket, NodeConnection>,
  webSockets: NodeSockets,
  markStopping: () => void,
) {
  let ended: Promise<void> | null = null;
  const port = (server.address() as AddressInfo).port;

  function stop(): void {
    if (ended !== null) return;
    markStopping();
    ended = new Promise((resolve) => server.close(() => resolve()));
    for (const [socket, connection] of sockets) {
      // A connection that never sent a byte is idle too, but closeIdleConnections misses it.
      if (connection.open.size === 0 && socket.bytesRead === 0) socket.destroy();
    }
  }

  function close(): Promise<void> {
    stop();
    webSockets.close();
    for (const socket of sockets.keys()) socket.destroy();
    return ended!;
  }

  return {
    port,
    get connections(): number {
      return sockets.size;
    },
    stop,
    close,
  };
}

/** A transport over node:http. `listen` rejects with a message that names host and port when it cannot bind. */
export function createNodeTransport(timeouts: NodeOptions = {}): Transport {
  return { name: "node", listen: (dispatch, options) => listen(dispatch, options, timeouts) };
}

function listen(dispatch: Dispatch, options: ListenOptions, timeouts: NodeOptions): Promise<Listening> {
  const sockets = new Map<Socket, NodeConnection>();
  let stopping = false;
  const isStopping = () => stopping;
  const headersTimeout = timeouts.headTimeout ?? 10_000;
  const requestTimeout = Math.max(headersTimeout, timeouts.requestTimeout ?? 60_000);
  const webSockets = createNodeSockets(options.sockets?.message ?? 0, timeouts.pingEvery ?? 30_000, options.refused);
  const server = createServer({
    IncomingMessage: options.sockets === undefined ? IncomingMessage : UpgradableMessage,
    insecureHTTPParser: false,
    requireHostHeader: false, // isWellFramed requires it, and closes the connection
    joinDuplicateHeaders: true,
    maxHeaderSize: options.headLimit,
    headersTimeout,
    requestTimeout,
    keepAliveTimeout: timeouts.idleTimeout ?? 75_000,
    connectionsCheckingInterval: Math.max(100, Math.min(1_000, headersTimeout / 4)),
  });
  server.on("drop", () => options.refused?.("server.limits.connections"));
  Object.defineProperty(server, "maxConnections", { get: () => options.connections });
  server.on("connection", (socket: Socket) => {
    const connection: NodeConnection = { open: new Set(), closing: false, isStopping, stall: options.stall };
    sockets.set(socket, connection);
    // Runs before Node destroys the socket. An idle connection has a time limit too, but no data waits for its peer.
    socket.prependListener("timeout", () => {
      if (socket.writableLength > 0) options.refused?.("server.limits.stall");
    });
    socket.once("close", () => {
      sockets.delete(socket);
      for (const exchange of [...connection.open]) exchange.abort();
    });
  });
  const receive = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean) => {
    const connection = sockets.get(request.socket);
    // After a reply that closes the connection no request is answered any more, although the parser continues.
    if (connection === undefined || connection.closing) return;
    request.on("error", ignore); // handled by the socket's close
    response.on("error", ignore);
    const target = isWellFramed(request) ? splitRequestTarget(request) : null;
    if (target === null) return refuseRequest(connection, response, 400);
    dispatch(new NodeExchange(request, response, target, connection, expectsContinue));
    // While stopping, a reply closes its connection; a reply that had started before the stop is closed here.
    if (stopping) response.once("finish", () => server.closeIdleConnections());
  };
  server.on("request", (request, response) => receive(request, response, false));
  server.on("checkContinue", (request, response) => receive(request, response, true));
  server.on("checkExpectation", (request, response) => {
    const connection = sockets.get(request.socket);
    if (connection !== undefined && !connection.closing) refuseRequest(connection, response, 417);
  });
  if (options.sockets !== undefined) {
    const { dispatch: dispatchUpgrade } = options.sockets;
    server.on("upgrade", (request, stream, head) => {
      const socket = stream as Socket;
      socket.on("error", ignore); // handled by its close
      const connection = sockets.get(socket);
      const target = isWellFramed(request) ? splitRequestTarget(request) : null;
      if (connection === undefined || connection.closing || connection.open.size > 0) socket.destroy();
      else if (target === null) socket.end(rawRefusal(400), () => socket.destroy());
      else dispatchUpgrade(new NodeUpgrade(request, head, target, connection, webSockets));
    });
  }
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => refuse(error, socket as Socket, sockets));
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(listenError(options, error.code, error)));
    server.listen(options.port, options.host, () => {
      resolve(createNodeListening(server, sockets, webSockets, () => (stopping = true)));
    });
  });
}

/** Refuses a request that the parser accepted, and closes the connection. */
function refuseRequest(connection: NodeConnection, response: ServerResponse, status: number): void {
  const body = refusalBody(refusalText(status));
  connection.closing = true;
  const length = String(Buffer.byteLength(body));
  response.writeHead(status, ["content-type", "application/json", "content-length", length, "connection", "close"]);
  response.end(body);
}

/** Answers a request that the parser refused. If a reply is in progress on the connection, it is only closed. */
function refuse(error: NodeJS.ErrnoException, socket: Socket, sockets: Map<Socket, NodeConnection>): void {
  const connection = sockets.get(socket);
  const open = [...(connection?.open ?? [])];
  const answerable = open.length === 0 || (open.length === 1 && open[0]!.refusable);
  for (const exchange of open) exchange.abort("malformed");
  if (connection?.closing)
    socket.destroySoon(); // the last reply is still being sent
  else if (!socket.writable || !answerable || error.code === "ECONNRESET") socket.destroy();
  else {
    const headOnly = open.length === 0 ? isHead(error) : open[0]!.method === "HEAD";
    socket.end(rawRefusal(PARSER_STATUS[error.code ?? ""] ?? 400, headOnly), () => socket.destroy());
  }
}

/** An error of Node's parser, with the packet in which it stopped. */
interface ParserError extends NodeJS.ErrnoException {
  rawPacket?: Buffer;
  bytesParsed?: number;
}

const LAST_REQUEST_LINE = /^(?:[\s\S]*\r\n\r\n)?([A-Z]+) /;

/**
 * Whether the refused request is a HEAD, whose reply has no body. The parser does not report the method of an incomplete head, so
 * it is taken from the last request line before the place where the parser stopped.
 */
function isHead({ rawPacket, bytesParsed = 0 }: ParserError): boolean {
  if (rawPacket === undefined) return false;
  return LAST_REQUEST_LINE.exec(rawPacket.toString("latin1", 0, bytesParsed))?.[1] === "HEAD";
}

/** Rejects framing that violates HTTP/1.1 but passes Node's parser: a proxy may read such a request differently (request smuggling). */
function isWellFramed(request: IncomingMessage): boolean {
  const { host, "transfer-encoding": encoding, "content-length": length } = request.headers;
  if (request.httpVersionMajor !== 1) return false;
  if (host === undefined ? request.httpVersionMinor > 0 : host.includes(",")) return false;
  if (encoding === undefined) return true;
  return length === undefined && request.httpVersionMinor > 0 && encoding.toLowerCase() === "chunked";
}

function splitRequestTarget(request: IncomingMessage): ReturnType<typeof splitTarget> {
  const host = hostInTarget(request.url!);
  if (host !== null) request.headers.host = host;
  return splitTarget(request.url!);
}

function ignore(): void {}
