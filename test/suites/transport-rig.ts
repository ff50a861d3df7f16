/** A small service behind a transport: the path chooses what it does; what it receives is recorded. */
import type { BodyProblem, Exchange, Listening, ListenOptions, Transport } from "../../core/http/exchange.ts";
import { RawClient, sleep } from "../support/raw-http.ts";

export interface Subject {
  name: "uws" | "node";
  /** `timeout`: milliseconds for a head or a body to arrive, and between two pings, where the transport allows to set it. */
  create(timeout?: number): Transport | Promise<Transport>;
}

export const BODY_LIMIT = 1024 * 1024;
export const HEAD_LIMIT = 16 * 1024;
const TEXT = ["content-type", "text/plain"];
const EVENTS = ["content-type", "text/event-stream"];

export interface Rig {
  port: number;
  listening: Listening;
  /** `GET /path` of each request that was dispatched. */
  log: string[];
  /** `METHOD /path` of each exchange whose peer left. */
  aborted: string[];
  problems: BodyProblem[];
  /** The exchange dispatched last. */
  last: Exchange;
  connect(): Promise<RawClient>;
  /** Opens, sends one request, waits for its reply, closes. */
  ask(...pieces: (string | Uint8Array)[]): Promise<{ status: number; headers: Record<string, string>; body: string }>;
  stop(): Promise<void>;
}

type Behaviour = (exchange: Exchange, rig: Rig) => void;

const echo = (exchange: Exchange, body: Uint8Array) => ({
  method: exchange.method,
  path: exchange.path,
  query: exchange.query,
  length: body.length,
  text: body.length > 1000 ? "" : Buffer.from(body).toString("utf8"),
});

const BEHAVIOURS: Record<string, Behaviour> = {
  "/hello": (exchange) => exchange.reply(200, TEXT, "hello"),
  "/bytes": (exchange) => exchange.reply(200, TEXT, new Uint8Array([104, 105])),
  "/empty": (exchange) => exchange.reply(204, [], null),
  "/nothing": (exchange) => exchange.reply(200, [], null),
  "/missing": (exchange) => exchange.reply(404, TEXT, "missing"),
  "/named": (exchange) => {
    exchange.requestId = "id-1";
    exchange.reply(200, [...TEXT, "set-cookie", "a=1", "set-cookie", "b=2"], "named");
  },
  "/last": (exchange) => exchange.reply(200, TEXT, "last", true),
  "/headers": (exchange) => exchange.reply(200, TEXT, JSON.stringify([exchange.headers(), exchange.header("x-one")])),
  "/address": (exchange) => exchange.reply(200, TEXT, exchange.remoteAddress()),
  "/later": (exchange) => {
    setImmediate(() => exchange.reply(200, TEXT, "later"));
  },
  "/hang": () => {},
  "/break": (exchange) => exchange.destroy(),
  "/break-corked": (exchange) => {
    setImmediate(() =>
      exchange.cork(() => {
        exchange.begin(200, TEXT);
        exchange.write("some");
        exchange.destroy();
      }),
    );
  },
  "/stream": (exchange) => {
    exchange.requestId = "id-2";
    exchange.cork(() => {
      exchange.begin(200, EVENTS);
      exchange.write("one,");
      exchange.write(new Uint8Array([116, 119, 111, 44]));
    });
    setImmediate(() =>
      exchange.cork(() => {
        exchange.write("three");
        exchange.end();
      }),
    );
  },
  "/silent": (exchange) => exchange.begin(200, EVENTS),
  "/silent-corked": (exchange) => {
    setImmediate(() => exchange.cork(() => exchange.begin(200, EVENTS)));
  },
  "/begun-empty": (exchange) => {
    exchange.begin(200, TEXT);
    exchange.end();
  },
};

function dispatchTo(rig: Rig): (exchange: Exchange) => void {
  return (exchange) => {
    const label = `${exchange.method} ${exchange.path}`;
    rig.log.push(label);
    rig.last = exchange;
    exchange.onAbort(() => rig.aborted.push(label));
    const behaviour = BEHAVIOURS[exchange.path];
    if (behaviour !== undefined) return behaviour(exchange, rig);
    exchange.readBody(
      BODY_LIMIT,
      (body) => exchange.reply(200, TEXT, JSON.stringify(echo(exchange, body))),
      (problem) => {
        rig.problems.push(problem);
        exchange.reply(problem === "too_large" ? 413 : 400, TEXT, problem);
      },
    );
  };
}

/** Listens on a free port of 127.0.0.1. */
export async function startRig(transport: Transport, options: Partial<ListenOptions> = {}): Promise<Rig> {
  const clients: RawClient[] = [];
  const rig: Rig = {
    port: 0,
    listening: undefined as never,
    log: [],
    aborted: [],
    problems: [],
    last: undefined as never,
    async connect() {
      const client = await RawClient.open(rig.port);
      clients.push(client);
      return client;
    },
    async ask(...pieces) {
      const client = await rig.connect();
      await client.send(...pieces);
      const reply = await client.reply();
      client.close();
      return reply;
    },
    async stop() {
      for (const client of clients) client.close();
      await rig.listening.close();
    },
  };
  const given = { host: "127.0.0.1", port: 0, connections: 2_000, headLimit: HEAD_LIMIT, stall: 120_000, ...options };
  rig.listening = await transport.listen(dispatchTo(rig), given);
  rig.port = rig.listening.port;
  return rig;
}

/** A request with a Host header. */
export function request(method: string, target: string, headers: string[] = [], body = ""): string {
  const lines = [`${method} ${target} HTTP/1.1`, "Host: test", ...headers];
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

/** Waits until `holds`; fails with `what` when it does not. */
export async function eventually(holds: () => boolean, what: string): Promise<void> {
  for (let tries = 0; tries < 6_000; tries++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`did not happen: ${what}`);
}

/** A piece of a reply, far larger than what a transport buffers of its own. */
export const CHUNK = Buffer.alloc(256 * 1024, "x");
/** More than the kernel takes for a reader that does not read. */
const MANY = 200;

/** Writes until the peer is truly behind: `drained` has not settled for a while. */
export async function fill(exchange: Exchange): Promise<{ sent: number; waiting: Promise<void> }> {
  for (let sent = 1; sent <= MANY; sent++) {
    if (exchange.write(CHUNK)) continue;
    let drained = false;
    const waiting = exchange.drained().then(() => {
      drained = true;
    });
    await sleep(60);
    if (!drained) return { sent, waiting };
  }
  throw new Error("write never said that the peer is behind");
}
