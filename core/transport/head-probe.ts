/**
 * Probes a transport at boot, over a temporary listener, with valid requests that clients and proxies on a network may send and that some
 * binaries of uWebSockets.js do not handle.
 */
import { connect } from "node:net";
import type { Exchange, Transport } from "../http/exchange.ts";

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
    const faults = PROBES.map(async ({ fault, pieces }) => ((await passes(listening.port, pieces)) ? null : fault));
    const first = await Promise.any(faults.map(rejectUnlessFault)).catch(() => null);
    await listening.close();
    return first;
  } catch {
    return "cannot listen on 127.0.0.1";
  }
}

async function rejectUnlessFault(fault: Promise<string | null>): Promise<string> {
  const found = await fault;
  if (found === null) throw new Error("no fault");
  return found;
}

/** True when the request is answered with 200. */
function passes(port: number, pieces: readonly string[]): Promise<boolean> {
  return new Promise((resolve) => {
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
    socket.once("close", () => resolve(reply.startsWith("HTTP/1.1 200")));
  });
}
