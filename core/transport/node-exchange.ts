/** One request and its reply over node:http. */
import type { IncomingMessage, OutgoingHttpHeader, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { BodyProblem, Exchange, HeaderList, OnBody, OnBodyFailed, Uploads } from "../http/exchange.ts";
import { BodyBuffer, MAX_DISCARDED_BODY_BYTES } from "./body.ts";
import { normalizeAddress } from "./target.ts";

const EMPTY = new Uint8Array(0);
/** Longest delay that Node's timers support. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The part of the server and the connection that an exchange uses. */
export interface NodeConnection {
  /** Exchanges of this connection whose reply has not ended, in order. */
  readonly open: Set<NodeExchange>;
  /** True once a reply has announced that the connection will be closed. */
  closing: boolean;
  /** True once the server is stopping: every reply then ends its connection. */
  isStopping(): boolean;
  /** Milliseconds without progress after which a reader that has a reply waiting is disconnected. */
  readonly stall: number;
}

export class NodeExchange implements Exchange {
  path: string;
  readonly query: string;
  closed = false;
  requestId = "";
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #connection: NodeConnection;
  #listener: (() => void) | null = null;
  #bodyFailed: OnBodyFailed | null = null;
  #body: BodyBuffer | null = null;
  #drained: Promise<void> | null = null;
  #resolveDrained: (() => void) | null = null;
  #expectsContinue: boolean;
  #mustClose: boolean;

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    target: { path: string; query: string },
    connection: NodeConnection,
    expectsContinue: boolean,
  ) {
    this.#request = request;
    this.#response = response;
    this.#connection = connection;
    this.#expectsContinue = expectsContinue;
    this.path = target.path;
    this.query = target.query;
    this.#mustClose = isChunked(request) || contentLength(request) > MAX_DISCARDED_BODY_BYTES;
    connection.open.add(this);
  }

  get method(): string {
    return this.#request.method!;
  }

  header(name: string): string {
    const value = this.#request.headers[name];
    return value === undefined ? "" : typeof value === "string" ? value : value.join(", ");
  }

  headers(): Record<string, string> {
    const copy: Record<string, string> = Object.create(null);
    for (const name in this.#request.headers) copy[name] = this.header(name);
    return copy;
  }

  remoteAddress(): string {
    return normalizeAddress(this.#request.socket.remoteAddress ?? "");
  }

  readBody(limit: number, done: OnBody, failed: OnBodyFailed, uploads?: Uploads): void {
    const request = this.#request;
    const chunked = isChunked(request);
    const length = contentLength(request);
    if (length === 0 && !chunked) {
      done(EMPTY);
      return;
    }
    // A chunked body may never end: unless it is read to its end, the connection must be closed.
    this.#mustClose = chunked || length > limit;
    const body = new BodyBuffer(limit, uploads);
    const refused = body.refusalFor(length);
    if (refused !== null) {
      this.#refuseBody(failed, refused);
      return;
    }
    if (this.#expectsContinue) this.#response.writeContinue();
    this.#expectsContinue = false;
    this.#body = body;
    this.#bodyFailed = failed;
    request.on("data", (chunk: Buffer) => {
      if (this.#bodyFailed === null) return;
      const problem = body.add(chunk);
      if (problem === null) return;
      this.#bodyFailed = null;
      this.#refuseBody(failed, problem);
    });
    request.once("end", () => {
      if (this.#bodyFailed === null) return;
      this.#bodyFailed = null;
      this.#body = null;
      this.#mustClose = false;
      done(body.takeAll());
    });
  }

  #refuseBody(failed: OnBodyFailed, problem: BodyProblem): void {
    this.#mustClose = true;
    this.#request.pause();
    failed(problem);
  }

  onAbort(listener: () => void): void {
    this.#listener = listener;
  }

  /** The socket has closed. Called by the server, so that a request needs no listener of its own. */
  abort(problem: BodyProblem = "aborted"): void {
    if (this.closed) return;
    const failed = this.#bodyFailed;
    this.release();
    failed?.(problem);
    this.#listener?.();
  }

  /** True while the request's body is still arriving and no part of the reply was sent: then a raw error may be written. */
  get refusable(): boolean {
    return !this.#request.complete && !this.#response.headersSent;
  }

  reply(status: number, headers: HeaderList, body: string | Uint8Array | null, close = false): void {
    if (this.closed || this.#response.headersSent) return;
    const length = body === null ? 0 : typeof body === "string" ? Buffer.byteLength(body) : body.length;
    this.#writeHead(status, headers, close, status === 204 || status === 304 ? -1 : length);
    this.#finish(body);
  }

  begin(status: number, headers: HeaderList): void {
    if (this.closed || this.#response.headersSent) return;
    this.#writeHead(status, headers, false, -1);
    if (this.method === "HEAD") {
      this.#finish(null);
      return;
    }
    const { socket } = this.#request;
    socket.cork(); // what is written in this tick is sent with the head
    this.#response.flushHeaders();
    process.nextTick(uncork, socket);
  }

  #writeHead(status: number, headers: HeaderList, close: boolean, length: number): void {
    const request = this.#request;
    const list: OutgoingHttpHeader[] = headers.slice();
    if (this.requestId !== "") list.push("x-request-id", this.requestId);
    if (length >= 0) list.push("content-length", String(length));
    if (close || this.#mustClose || this.#connection.isStopping()) {
      list.push("connection", "close");
      this.#connection.closing = true;
    } else if (request.httpVersionMinor === 1) {
      this.#response.removeHeader("connection"); // HTTP/1.1 connections are persistent without it
    }
    this.#response.writeHead(status, list as OutgoingHttpHeader[]);
  }

  write(chunk: string | Uint8Array): boolean {
    if (this.closed || chunk.length === 0) return true;
    return this.#response.write(chunk);
  }

  drained(): Promise<void> {
    if (this.closed || !this.#response.writableNeedDrain) return Promise.resolve();
    this.#watchStall();
    this.#drained ??= new Promise((resolve) => {
      this.#resolveDrained = resolve;
      this.#response.once("drain", () => {
        this.#request.socket.setTimeout(0);
        this.#releaseDrained();
      });
    });
    return this.#drained;
  }

  cork(work: () => void): void {
    // The socket's cork, not the response's: Node 24 sends the end of a corked response before its last chunk.
    const { socket } = this.#request;
    socket.cork();
    try {
      work();
    } finally {
      socket.uncork();
    }
  }

  #releaseDrained(): void {
    const resolve = this.#resolveDrained;
    this.#drained = null;
    this.#resolveDrained = null;
    resolve?.();
  }

  get buffered(): number {
    return this.closed ? 0 : this.#response.writableLength;
  }

  end(): void {
    if (!this.closed) this.#finish(null);
  }

  #finish(body: string | Uint8Array | null): void {
    this.release();
    if (body === null || body.length === 0) this.#response.end();
    else this.#response.end(body);
    if (this.#response.writableLength > 0) this.#watchStall();
  }

  /** Node destroys a socket that makes no progress for this time; its timer restarts whenever the socket accepts data. */
  #watchStall(): void {
    this.#request.socket.setTimeout(Math.min(this.#connection.stall, MAX_TIMER_MS));
  }

  /** Closes the connection after the reply, whatever the reply is. */
  protected endsConnection(): void {
    this.#mustClose = true;
  }

  /** Ends the exchange: from now on it does not use the connection. */
  protected release(): void {
    this.closed = true;
    this.#bodyFailed = null;
    this.#body?.drop();
    this.#body = null;
    this.#connection.open.delete(this);
    this.#releaseDrained();
  }

  destroy(): void {
    if (this.closed) return;
    this.release();
    this.#request.socket.destroy();
  }
}

function uncork(socket: Socket): void {
  socket.uncork();
}

function isChunked(request: IncomingMessage): boolean {
  return request.headers["transfer-encoding"] !== undefined;
}

function contentLength(request: IncomingMessage): number {
  return Number(request.headers["content-length"] ?? 0);
}
