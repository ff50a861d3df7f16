/**
 * The fast transport: uWebSockets.js. This is the only file that imports the addon, and it does so on demand, so that the process also
 * runs where the addon does not load. The lifetimes of native objects are listed in uws-native.ts; the bugs of the binary for Node 20
 * are listed in test/suites/transport-known.ts.
 */
import { createServer } from "node:net";
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
import { Heads } from "./heads.ts";
import { listenError } from "./listen-error.ts";
import { refusalBody, refusalText } from "./refusal.ts";
import { UwsExchange, type UwsListener } from "./uws-exchange.ts";
import { UwsFlows } from "./uws-flow.ts";
import { type HeadProblem, UwsHead } from "./uws-head.ts";
import {
  type Native,
  type NativeApp,
  type NativeListenSocket,
  type NativeRequest,
  type NativeResponse,
  type NativeSocket,
  type NativeSocketBehavior,
  openUnanswered,
  type Unanswered,
} from "./uws-native.ts";

// One open WebSocket over uWebSockets.js, and the behaviour of all sockets of a listener.

/**
 * A peer that is silent for this time is disconnected. The addon sends a ping 16 s earlier, after 30 s; anything that arrives counts as
 * an answer.
 */
const IDLE_TIMEOUT_SECONDS = 46;
/**
 * The addon's own limit is higher by this factor, because it disconnects without a close frame: a message between the two limits
 * closes the socket with 1009.
 */
const NATIVE_LIMIT_FACTOR = 2;
/** The code of a socket that ends without a close frame, and the addon's reason for a message beyond its own limit. */
const ABNORMAL_CLOSE = 1006;
const NATIVE_TOO_LARGE = Buffer.from("Received too big message");
/** Pings that a peer may send while it reads nothing. The answers pile up, so a peer that sends more is disconnected. */
const MAX_UNREAD_PINGS = 60;

/** The callbacks that sockets need from their listener. */
interface UwsSocketHost {
  /** Called for every GET with a key of the right length. */
  upgrade(response: NativeResponse, request: NativeRequest, context: object): void;
  /** Called when a socket has closed: the addon does not report the end of connections that became sockets. */
  onClosed(): void;
  /** Called when a message was too large. */
  onTooLarge(): void;
  /** Reports an error of a callback: errors must not be thrown into native code. */
  report(error: unknown): void;
}

export class UwsSocket implements OpenSocket {
  readonly #open: (socket: OpenSocket) => SocketEvents;
  /** Null before the socket is open and after it has closed. */
  #native: NativeSocket | null = null;
  #events: SocketEvents | null = null;
  /** Pings that arrived since data has been waiting for the peer. */
  #pings = 0;

  constructor(open: (socket: OpenSocket) => SocketEvents) {
    this.#open = open;
  }

  opened(native: NativeSocket): void {
    this.#native = native;
    this.#events = this.#open(this);
  }

  message(text: string): void {
    this.#events?.message(text);
  }

  pinged(): void {
    if (this.buffered === 0) this.#pings = 0;
    else if (++this.#pings > MAX_UNREAD_PINGS) this.destroy();
  }

  drained(): void {
    // The socket may have closed since the addon reported this.
    if (this.#native !== null) this.#events?.drained();
  }

  ended(code: number): void {
    this.#native = null;
    this.#events?.ended(code);
  }

  get buffered(): number {
    return this.#native === null ? 0 : this.#native.getBufferedAmount();
  }

  send(text: string | Uint8Array): void {
    this.#native?.send(text, false);
  }

  cork(work: () => void): void {
    if (this.#native === null) {
      work();
      return;
    }
    let thrown: { error: unknown } | null = null;
    this.#native.cork(() => {
      try {
        work();
      } catch (error) {
        thrown = { error };
      }
    });
    if (thrown !== null) throw (thrown as { error: unknown }).error;
  }

  close(code: number, reason: string): void {
    this.#native?.end(code, reason);
  }

  destroy(): void {
    this.#native?.close();
  }
}

/** @param limit largest message in bytes */
export function socketBehavior(limit: number, host: UwsSocketHost): NativeSocketBehavior {
  const guard = (work: () => void): void => {
    try {
      work();
    } catch (error) {
      host.report(error);
    }
  };
  return {
    maxPayloadLength: Math.min(limit * NATIVE_LIMIT_FACTOR, 2 ** 31 - 1),
    idleTimeout: IDLE_TIMEOUT_SECONDS,
    sendPingsAutomatically: true,
    maxBackpressure: 0, // the sender bounds `buffered`
    compression: 0,
    upgrade: (response, request, context) => host.upgrade(response, request, context),
    open: (native) => guard(() => socketOf(native).opened(native)),
    message(native, bytes, isBinary) {
      if (isBinary) native.end(1003, "text messages only");
      else if (bytes.byteLength > limit) {
        host.onTooLarge();
        native.end(1009, `a message is larger than ${limit} bytes`);
      } else guard(() => socketOf(native).message(Buffer.from(bytes).toString("utf8")));
    },
    drain(native) {
      const socket = socketOf(native);
      // Not within this callback: part of what is sent here would wait until the next ping.
      setImmediate(guard, () => socket.drained());
    },
    ping: (native) => guard(() => socketOf(native).pinged()),
    close(native, code, reason) {
      host.onClosed();
      if (code === ABNORMAL_CLOSE && Buffer.from(reason).equals(NATIVE_TOO_LARGE)) host.onTooLarge();
      guard(() => socketOf(native).ended(code));
    },
  };
}

const socketOf = (native: NativeSocket): UwsSocket => (native.getUserData() as { readonly socket: UwsSocket }).socket;

/** A WebSocket handshake over uWebSockets.js. */
class UwsUpgrade extends UwsExchange implements Upgrade {
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

const REFUSAL_HEADERS = ["content-type", "application/json"];
/** Largest head that may arrive in more than one piece; the addon's default is 4 KiB. */
const SPLIT_HEAD_BYTES = 16 * 1024;
const SPLIT_HEAD_VARIABLE = "UWS_HTTP_MAX_HEADERS_SIZE";

/** How to install the addon. It contains binaries for all platforms, 257 MB, so it is optional. */
const INSTALL = "npm install uWebSockets.js@npm:uwebsockets@3.0.6";

/** Loads the addon. Rejects with a message that says why it does not load here. */
export async function createUwsTransport(): Promise<Transport> {
  const native = await loadNative();
  native._cfg("silent"); // no server header
  return { name: "uws", listen: (dispatch, options) => listen(native, dispatch, options) };
}

async function loadNative(): Promise<Native> {
  const before = process.env[SPLIT_HEAD_VARIABLE];
  // The addon reads the variable once, while it loads; afterwards the environment is restored.
  if (before === undefined) process.env[SPLIT_HEAD_VARIABLE] = String(SPLIT_HEAD_BYTES);
  try {
    return ((await import("uWebSockets.js")) as unknown as { default: Native }).default;
  } catch (cause) {
    const { version, platform, arch } = process;
    if ((cause as { code?: unknown } | null)?.code === "ERR_MODULE_NOT_FOUND")
      throw new Error(`uWebSockets.js is not installed: ${INSTALL}`, { cause });
    throw new Error(`uWebSockets.js does not load on Node ${version} (${platform} ${arch}): ${firstLine(cause)}`, {
      cause,
    });
  } finally {
    if (before === undefined) delete process.env[SPLIT_HEAD_VARIABLE];
  }
}

/** The line of the loader that says what is missing: the addon's own message is general. */
function firstLine(cause: unknown): string {
  const lines = String(cause instanceof Error ? cause.message : cause).split("\n");
  return (lines.find((line) => line.startsWith("Error: ")) ?? lines[0]!).replace(/^Error: /, "");
}

class UwsServer implements UwsListener, UwsSocketHost, Listening {
  readonly head = new UwsHead();
  readonly heads = new Heads();
  readonly flows: UwsFlows;
  reading: UwsExchange | null = null;
  corked: UwsExchange | null = null;
  corkedBytes = 0;
  stopping = false;
  unanswered: Unanswered | null = null;
  port = 0;
  readonly #native: Native;
  readonly #app: NativeApp;
  readonly #dispatch: Dispatch;
  readonly #options: ListenOptions;
  #socket: NativeListenSocket | null = null;
  #connections = 0;

  constructor(native: Native, dispatch: Dispatch, options: ListenOptions) {
    this.#native = native;
    this.#dispatch = dispatch;
    this.#options = options;
    this.flows = new UwsFlows(options);
    this.#app = native.App();
    this.#app.filter((response, change) => this.#count(response, change));
    if (options.sockets !== undefined) this.#app.ws("/*", socketBehavior(options.sockets.message, this));
    this.#app.any("/*", (response, request) => this.#receive(response, request));
  }

  async bind(): Promise<boolean> {
    const { host, port, sockets } = this.#options;
    if (sockets !== undefined) this.unanswered = await openUnanswered(this.#native).catch(() => null);
    return new Promise((resolve) => {
      // Without it a second process could bind the same port, and the kernel would distribute clients between the two.
      this.#app.listen(host, port, this.#native.LIBUS_LISTEN_EXCLUSIVE_PORT, (socket) => {
        if (socket === false) return resolve(false);
        this.#socket = socket;
        this.port = this.#native.us_socket_local_port(socket);
        resolve(true);
      });
    });
  }

  #count(response: NativeResponse, change: number): void {
    this.#connections += change;
    if (change <= 0 || this.#connections <= this.#options.connections) return;
    this.#options.refused?.("server.limits.connections");
    response.close();
  }

  get connections(): number {
    return this.#connections;
  }

  onClosed(): void {
    this.#connections--;
  }

  onTooLarge(): void {
    this.#options.refused?.("server.limits.socketMessage");
  }

  /** The hot path: no closure, and no native call beyond those of a bare server, except for reading the head. */
  #receive(response: NativeResponse, request: NativeRequest): void {
    const path = request.getUrl();
    const query = request.getQuery() ?? "";
    const problem = this.head.read(request, path, query, this.#options.headLimit);
    this.#run(this.#dispatch, new UwsExchange(this, response, request.getCaseSensitiveMethod(), path, query), problem);
  }

  upgrade(response: NativeResponse, request: NativeRequest, context: object): void {
    const path = request.getUrl();
    const query = request.getQuery() ?? "";
    const problem = this.head.read(request, path, query, this.#options.headLimit);
    if (isHandshake("GET", (name) => this.head.get(name)))
      this.#run(this.#options.sockets!.dispatch, new UwsUpgrade(this, response, path, query, context), problem);
    else this.#run(this.#dispatch, new UwsExchange(this, response, "GET", path, query), problem);
  }

  #run<E extends UwsExchange>(dispatch: (exchange: E) => void, exchange: E, problem: HeadProblem): void {
    this.corked = exchange;
    if (problem === 0) {
      this.reading = exchange;
      try {
        dispatch(exchange);
      } catch (error) {
        this.#fail(exchange, error);
      }
      this.reading = null;
    } else {
      exchange.reply(problem, REFUSAL_HEADERS, refusalBody(refusalText(problem)), true);
    }
    this.corked = null;
    if (!exchange.over) exchange.watch();
  }

  #fail(exchange: UwsExchange, error: unknown): void {
    this.report(error);
    exchange.reply(500, REFUSAL_HEADERS, refusalBody("internal error"), true);
  }

  report(error: unknown): void {
    // Thrown in the next turn of the event loop, as an ordinary uncaught exception: here it would reach native code.
    setImmediate(() => {
      throw error;
    });
  }

  stop(): void {
    if (this.stopping) return;
    this.stopping = true;
    if (this.#socket !== null) this.#native.us_listen_socket_close(this.#socket);
    this.#socket = null;
  }

  /** Waits for replies that were delayed until no native callback is on the stack. */
  close(): Promise<void> {
    this.stop();
    return new Promise((resolve) => {
      setImmediate(() => {
        this.#app.close();
        this.unanswered?.close();
        this.flows.close();
        resolve();
      });
    });
  }
}

async function listen(native: Native, dispatch: Dispatch, options: ListenOptions): Promise<Listening> {
  const server = new UwsServer(native, dispatch, options);
  if (await server.bind()) return server;
  await server.close();
  throw listenError(options, await bindFailure(options));
}

/** The addon reports only that binding failed: trying again with node:net tells why. */
function bindFailure({ host, port }: ListenOptions): Promise<string | undefined> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", (error: NodeJS.ErrnoException) => resolve(error.code));
    probe.listen(port, host, () => probe.close(() => resolve(undefined)));
  });
}
