/** One POST to the provider: its time limits, its abort, its size, and the back-pressure of its reader. */

import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import undici, { type buildConnector, type Client, type Dispatcher } from "undici";
import type { AbortListener, Aborts } from "../../lib/aborts.ts";
import { decoderOf } from "../../outbound/body.ts";
import { isClosed } from "../../outbound/closed.ts";
import { createOutboundAgent, hasProxy } from "../../outbound/proxy.ts";
import { AnswerTooLarge, MAX_ANSWER_BYTES } from "../../plugin/model-errors.ts";
import { ModelTimeout, type ModelTimeouts, ProviderQueueFull } from "../../plugin/plugin.ts";

// Connections to one origin, each with one call at a time. If their number is limited, calls wait in a queue.

/** A call that needs a connection. It gets one in `begin`, and must return it with `release` or `drop`. */
interface PooledCall {
  begin(connection: Connection): void;
  fail(reason: Error): void;
}

interface Limits {
  /** Most simultaneous connections; default: one per call. */
  readonly connections?: number | undefined;
  /** How many calls may wait for a connection. */
  readonly queue: number;
  /** Sits between a call and its connection, to record or replay. */
  readonly intercept?: Dispatcher.DispatcherComposeInterceptor | undefined;
}

/** undici's own time-outs are inexact, and cannot tell the wait for a connection from connecting: `UpstreamCall` has its own. */
const CLIENT_OPTIONS = { pipelining: 1, headersTimeout: 0, bodyTimeout: 0 } as const;

type Connections = ReturnType<typeof createConnections>;

export function createConnections(origin: string, limits: Limits) {
  /** Shared by all clients, so that they reuse TLS sessions. */
  const connector = undici.buildConnector({ timeout: 0 });
  /** A stack: the connection that was used last is used next, so that superfluous ones time out. */
  const idleOnes: Connection[] = [];
  const open = new Set<Connection>();
  const waiting = new Set<PooledCall>();
  /** Has the sockets of all connections where there is a proxy. */
  const proxied = hasProxy() ? createOutboundAgent(undici, CLIENT_OPTIONS) : null;
  let closed = false;

  /** Starts the call at once, or as soon as a connection is free. Throws ProviderQueueFull when too many wait already. */
  function take(call: PooledCall): void {
    if (closed) throw new Error("the service stops");
    const idle = idleOnes.pop();
    if (idle !== undefined) {
      call.begin(idle);
      return;
    }
    const { connections = Number.POSITIVE_INFINITY, queue } = limits;
    if (open.size < connections) {
      call.begin(create());
      return;
    }
    if (waiting.size >= queue) throw new ProviderQueueFull(connections, queue);
    waiting.add(call);
  }

  /** Removes a call from the queue. */
  function leave(call: PooledCall): void {
    waiting.delete(call);
  }

  /** Returns the connection after a complete answer: it may be used again. */
  function release(connection: Connection): void {
    if (!open.has(connection)) return;
    connection.isKept = true;
    const next = nextWaiting();
    if (next === null) idleOnes.push(connection);
    else next.begin(connection);
  }

  /** Closes the connection at once, after anything but a complete answer. */
  function drop(connection: Connection, reason: Error, call?: Dispatcher.DispatchController | null): void {
    forget(connection);
    connection.destroy(reason, call);
    if (closed) return;
    const next = nextWaiting();
    if (next !== null) next.begin(create());
  }

  /** Closes every connection at once. */
  async function close(): Promise<void> {
    closed = true;
    const reason = new Error("the service stops");
    for (const call of waiting) call.fail(reason);
    for (const connection of [...open]) drop(connection, reason);
    await proxied?.destroy();
  }

  function create(): Connection {
    const connection = new Connection(
      origin,
      connector,
      () => {
        const index = idleOnes.indexOf(connection);
        if (index === -1) return;
        idleOnes.splice(index, 1);
        forget(connection);
        connection.destroy(new Error("no longer connected"));
      },
      limits.intercept,
      proxied,
    );
    open.add(connection);
    return connection;
  }

  function forget(connection: Connection): void {
    open.delete(connection);
  }

  function nextWaiting(): PooledCall | null {
    for (const call of waiting) {
      waiting.delete(call);
      return call;
    }
    return null;
  }

  return { take, leave, release, drop, close };
}

/** A client with one socket, which it opens for the first call, and again if it was closed in between. */
class Connection {
  /** Null with a proxy: then a call is ended by its controller. */
  readonly #client: Client | null;
  readonly dispatcher: Dispatcher;
  /** Whether it has carried a call: its server may close it at the moment when it is used again. */
  isKept = false;
  #connecting: Socket | null = null;

  constructor(
    origin: string,
    connector: buildConnector.connector,
    disconnected: () => void,
    intercept: Limits["intercept"],
    proxied: Dispatcher | null,
  ) {
    this.#client = proxied === null ? this.#connect(origin, connector, disconnected) : null;
    const plain =
      this.#client ?? proxied!.compose((dispatch) => (call, handler) => dispatch({ ...call, origin }, handler));
    this.dispatcher = intercept === undefined ? plain : plain.compose(intercept);
  }

  #connect(origin: string, connector: buildConnector.connector, disconnected: () => void): Client {
    const client = new undici.Client(origin, {
      ...CLIENT_OPTIONS,
      connect: (options, callback) => {
        // The connector returns its socket, which its type does not mention: destroying it is the only way to give up an attempt.
        this.#connecting = connector(options, (...result) => {
          this.#connecting = null;
          callback(...result);
        }) as unknown as Socket;
      },
    });
    client.on("disconnect", disconnected);
    return client;
  }

  destroy(reason: Error, call?: Dispatcher.DispatchController | null): void {
    if (this.#client === null) call?.abort(reason);
    this.#client?.destroy(reason).catch(() => undefined);
    this.#connecting?.destroy(reason);
  }
}

interface UpstreamRequest {
  readonly path: string;
  /** Alternating names and values. */
  readonly headers: string[];
  readonly body: string;
}

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Receives the answer. After `completed` or `failed` no method is called. */
export interface Receiver {
  started(status: number, headers: ResponseHeaders): void;
  /** Returns false when its reader is behind: then more comes only after `resume`. An exception ends the call. */
  received(chunk: Buffer): boolean;
  completed(): void;
  failed(thrown: unknown): void;
}

export class UpstreamCall implements Dispatcher.DispatchHandler, PooledCall, AbortListener {
  readonly #connections: Connections;
  readonly #timeouts: ModelTimeouts;
  readonly #request: UpstreamRequest;
  readonly #receiver: Receiver;
  readonly #aborts: Aborts | undefined;
  #connection: Connection | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  /** The limit that applies beside the total one, and when it started. */
  #limit: Exclude<keyof ModelTimeouts, "total"> = "connect";
  #limitStart = 0;
  /** When the first byte arrived; 0 before. */
  #firstByteAt = 0;
  #bytes = 0;
  /** Whether anything of the answer has come. */
  #hasBegun = false;
  #timer: NodeJS.Timeout | undefined;
  /** Of a compressed answer. */
  #decoder: Duplex | null = null;
  ended = false;

  constructor(
    connections: Connections,
    timeouts: ModelTimeouts,
    request: UpstreamRequest,
    receiver: Receiver,
    aborts: Aborts | undefined,
  ) {
    this.#connections = connections;
    this.#timeouts = timeouts;
    this.#request = request;
    this.#receiver = receiver;
    this.#aborts = aborts;
  }

  start(): void {
    this.#aborts?.add(this);
    if (!this.ended) this.#connect();
  }

  #connect(): void {
    try {
      this.#connections.take(this);
    } catch (error) {
      this.fail(error);
    }
  }

  begin(connection: Connection): void {
    this.#connection = connection;
    this.#limitStart = performance.now();
    const { path, headers, body } = this.#request;
    connection.dispatcher.dispatch({ method: "POST", path, headers, body }, this);
    if (!this.ended) this.#watch();
  }

  /** Continues after `received` has returned false. */
  resume(): void {
    if (this.ended) return;
    this.#decoder?.resume();
    if (this.#controller?.paused !== true || this.#decoder?.writableNeedDrain) return;
    // The provider is not responsible for the pause.
    this.#limitStart = performance.now();
    this.#controller.resume();
  }

  /** Ends the call, and closes its connection at once. */
  fail(thrown: unknown): void {
    if (this.ended) return;
    this.#end();
    const connection = this.#connection;
    if (connection === null) this.#connections.leave(this);
    else this.#connections.drop(connection, thrown instanceof Error ? thrown : new Error("aborted"), this.#controller);
    this.#receiver.failed(thrown);
  }

  aborted(reason: unknown): void {
    this.fail(reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.ended) {
      controller.abort(new Error("aborted"));
      return;
    }
    this.#limit = "firstByte";
    this.#limitStart = performance.now();
  }

  onResponseStart(_controller: unknown, status: number, headers: ResponseHeaders): void {
    this.#hasBegun = true;
    if (status < 200 || this.ended) return;
    const encoding = headers["content-encoding"];
    try {
      if (encoding !== undefined) this.#decode(String(encoding));
      this.#receiver.started(status, headers);
    } catch (error) {
      this.fail(error);
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.ended) return;
    this.#limitStart = performance.now();
    if (this.#firstByteAt === 0) {
      this.#firstByteAt = this.#limitStart;
      this.#limit = "idle";
    }
    if (!(this.#decoder === null ? this.#receive(chunk) : this.#decoder.write(chunk))) controller.pause();
  }

  /** @returns false when the reader is behind */
  #receive(chunk: Buffer): boolean {
    this.#bytes += chunk.length;
    try {
      if (this.#bytes > MAX_ANSWER_BYTES) throw new AnswerTooLarge();
      return this.#receiver.received(chunk);
    } catch (error) {
      this.fail(error);
      return true;
    }
  }

  #decode(encoding: string): void {
    const decoder = decoderOf(encoding);
    this.#decoder = decoder;
    decoder?.on("data", (chunk: Buffer) => {
      if (!this.ended && !this.#receive(chunk)) decoder.pause();
    });
    decoder?.on("drain", () => decoder.isPaused() || this.resume());
    decoder?.on("end", () => this.#complete());
    decoder?.on("error", (error) => this.fail(error));
  }

  onResponseEnd(): void {
    if (this.#decoder === null) this.#complete();
    else this.#decoder.end();
  }

  #complete(): void {
    if (this.ended) return;
    this.#end();
    this.#connections.release(this.#connection!);
    this.#receiver.completed();
  }

  onResponseError(_controller: unknown, error: Error): void {
    const connection = this.#connection;
    if (this.ended || this.#hasBegun || connection?.isKept !== true || !isClosed(error, this.#limitStart)) {
      this.fail(error);
      return;
    }
    // The server has closed the kept connection as it was used again: that is no failure of the call.
    clearTimeout(this.#timer);
    this.#connection = null;
    this.#controller = null;
    this.#limit = "connect";
    this.#connections.drop(connection, error);
    this.#connect();
  }

  /**
   * One timer for all limits, set for the shortest of those that apply now or later: so it is never late, and need not be reset
   * when a limit starts or a chunk arrives.
   */
  #watch(): void {
    const now = performance.now();
    const limits = this.#timeouts;
    if (this.#controller?.paused || this.#decoder?.isPaused()) this.#limitStart = now;
    const { total = Number.POSITIVE_INFINITY } = limits;
    const phaseLeft = this.#limitStart + limits[this.#limit] - now;
    const totalLeft = this.#firstByteAt === 0 ? total : this.#firstByteAt + total - now;
    const left = Math.min(phaseLeft, totalLeft);
    if (left <= 0) {
      const limit = totalLeft <= phaseLeft ? "total" : this.#limit;
      this.fail(new ModelTimeout(limit, limits[limit] ?? 0));
      return;
    }
    const later = this.#limit === "connect" ? Math.min(limits.firstByte, limits.idle) : limits.idle;
    const wait = Math.min(Math.ceil(Math.min(left, later)), MAX_TIMER_MS);
    this.#timer = setTimeout(UpstreamCall.#timerFired, wait, this);
  }

  static #timerFired(call: UpstreamCall): void {
    call.#watch();
  }

  #end(): void {
    this.ended = true;
    clearTimeout(this.#timer);
    this.#decoder?.destroy();
    this.#aborts?.remove(this);
  }
}

/** Longest delay that `setTimeout` supports. */
const MAX_TIMER_MS = 2 ** 31 - 1;
