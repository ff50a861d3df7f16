/** Chooses the network transport according to `server.transport`. */

import { connect } from "node:net";
import type { Logger } from "pino";
import type { Exchange, Transport } from "../http/exchange.ts";
import { messageOf } from "../lib/errors.ts";
import { createUwsTransport } from "./uws.ts";

/*
 * Probes a transport at boot, over a temporary listener, with valid requests that clients and proxies on a network may send and that some
 * binaries of uWebSockets.js do not handle.
 */

/** Long enough that the pieces arrive in separate reads, short enough not to delay the boot. */
const PIECE_GAP_MS = 20;
const REPLY_TIMEOUT_MS = 1_000;
const HEAD_LIMIT_BYTES = 4096;

interface Probe {
  /** How a transport misbehaves that fails the probe: part of a warning. */
  fault: string;
  /** The chunks in which the request is sent. */
  pieces: readonly string[];
}

const get = (...headers: string[]) => `GET /probe HTTP/1.1\r\n${["Host: probe", ...headers].join("\r\n")}\r\n\r\n`;

const PROBES: readonly Probe[] = [
  {
    fault: "refuses a request line that arrives in two network packets",
    pieces: ["GET /sp", "lit HTTP/1.1\r\nHost: probe\r\n\r\n"],
  },
  {
    fault: "never answers a header whose name has other characters than letters, digits and -",
    pieces: [get("X_Under.score: a")],
  },
  { fault: "never answers a request of a hundred headers or more", pieces: [get(...Array(120).fill("X-Many: a"))] },
];

/**
 * The first fault that is found, or null. Only the first, because some show only by a missing answer, which takes long to detect. A
 * listener that fails counts as a fault.
 */
export async function firstFault(transport: Transport): Promise<string | null> {
  const answer = (exchange: Exchange) => exchange.reply(200, [], null, true);
  try {
    const listening = await transport.listen(answer, {
      host: "127.0.0.1",
      port: 0,
      connections: 8,
      headLimit: HEAD_LIMIT_BYTES,
      stall: REPLY_TIMEOUT_MS,
    });
    const first = await Promise.any(PROBES.map((probe) => faultOf(listening.port, probe))).catch(() => null);
    await listening.close();
    return first;
  } catch {
    return "cannot listen on 127.0.0.1";
  }
}

/** Rejects when the request is answered with 200. */
function faultOf(port: number, { fault, pieces }: Probe): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let reply = "";
    socket.setNoDelay(true);
    socket.setEncoding("latin1");
    socket.setTimeout(REPLY_TIMEOUT_MS, () => socket.destroy());
    socket.once("connect", () => {
      for (const [index, piece] of pieces.entries()) setTimeout(() => socket.write(piece), PIECE_GAP_MS * index);
    });
    socket.on("data", (text: string) => {
      reply += text;
    });
    socket.on("error", () => {});
    socket.once("close", () => (reply.startsWith("HTTP/1.1 200") ? reject() : resolve(fault)));
  });
}

type TransportSetting = "auto" | "uws" | "node";

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|::ffff:127(\.\d{1,3}){3})$/i;

/** Loaded on demand, because it is rarely used. */
const createNodeTransport = async () => (await import("./node.ts")).createNodeTransport();

/**
 * `node` and `uws` are used as named: `uws` rejects when the addon does not load. `auto` uses uws if the addon loads and
 * either only this machine can connect or the addon passes the probes of request heads; otherwise node, with one warning that says
 * why and what to do. On loopback `auto` costs no more than loading the addon.
 */
export async function chooseTransport(setting: TransportSetting, host: string, logger: Logger): Promise<Transport> {
  if (setting === "node") return createNodeTransport();
  if (setting === "uws") return createUwsTransport();
  let transport: Transport;
  try {
    transport = await createUwsTransport();
  } catch (error) {
    // A missing package is the user's choice; one that is installed but does not load is a surprise.
    if ((error as { cause?: { code?: unknown } }).cause?.code === "ERR_MODULE_NOT_FOUND")
      logger.info("serving over node:http: the optional uWebSockets.js is not installed");
    else
      logger.warn(
        `serving over node:http, which is slower: ${messageOf(error)}. Set server.transport: node to accept that silently`,
      );
    return createNodeTransport();
  }
  const fault = LOOPBACK.test(host) ? null : await firstFault(transport);
  if (fault === null) return transport;
  logger.warn(
    `serving over node:http, which is slower: the uWebSockets.js of Node ${process.version} ${fault}, ` +
      `and ${host} is open to the network. Put a reverse proxy in front and listen on ` +
      "127.0.0.1, or set server.transport: uws if every client is near, or node to accept this silently",
  );
  return createNodeTransport();
}
