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
import type { Native, NativeApp, NativeListenSocket, NativeRequest, NativeResponse } from "./uws-native.ts";
import { socketBehavior, UwsSocket, type UwsSocketHost } from "./uws-socket.ts";
import { openUnanswered, type Unanswered } from "./uws-unanswered.ts";

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
