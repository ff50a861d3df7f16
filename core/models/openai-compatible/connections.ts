/** Connections to one origin, each with one call at a time. If their number is limited, calls wait in a queue. */
import type { Socket } from "node:net";
import undici, { type buildConnector, type Client, type Dispatcher } from "undici";
import { createOutboundAgent, hasProxy } from "../../outbound/proxy.ts";
import { ProviderQueueFull } from "../../plugin/plugin.ts";

/** A call that needs a connection. It gets one in `begin`, and must return it with `release` or `drop`. */
export interface PooledCall {
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

export type Connections = ReturnType<typeof createConnections>;

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
export class Connection {
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
