/**
 * Many WebSockets in a separate process, and agents that run at a steady rate at the same time. One job as JSON in the first
 * argument. Reports once all sockets are open, and continues until it is killed.
 */
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";

export interface WatchersJob {
  port: number;
  /** Path of the sockets. */
  watched: string;
  sockets: number;
  /** Number of runs per second, once the sockets are open. */
  runs: number;
  /** The path of the requests for these runs; `body` is their body. */
  path: string;
  body: string;
}

export interface WatchersReport {
  open: number;
  problem?: string;
}

/** Handshakes at a time: more would only overflow the listen queue. */
const BATCH = 250;
/** Connections over which runs are requested. */
const CALLERS = 64;
/** Milliseconds between two bursts of runs. */
const TICK = 10;

const job = JSON.parse(process.argv[2] as string) as WatchersJob;

function open(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(job.port, "127.0.0.1", () => resolve(socket));
    socket.setNoDelay(true);
    socket.once("error", reject);
  });
}

/** Resolves when the handshake is answered. Later data is read and discarded. */
async function watch(): Promise<string> {
  const socket = await open();
  const lines = [
    `GET ${job.watched} HTTP/1.1`,
    "host: 127.0.0.1",
    "upgrade: websocket",
    "connection: Upgrade",
    "sec-websocket-version: 13",
    `sec-websocket-key: ${randomBytes(16).toString("base64")}`,
  ];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  return new Promise((resolve) => {
    socket.once("data", (chunk: Buffer) => resolve(chunk.toString("latin1", 0, 12)));
    socket.once("close", () => resolve("closed"));
    socket.on("data", () => {});
    socket.on("error", () => {});
  });
}

async function run(): Promise<void> {
  const callers = await Promise.all(Array.from({ length: CALLERS }, open));
  for (const caller of callers) caller.on("error", () => {}).resume();
  const { path, body } = job;
  const head = `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json`;
  const request = `${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
  let asked = 0;
  const began = performance.now();
  setInterval(() => {
    // As many as are due by now, even if timers were late.
    const due = ((performance.now() - began) / 1000) * job.runs;
    for (; asked < due; asked += 1) callers[asked % CALLERS]!.write(request);
  }, TICK);
}

const report: WatchersReport = { open: 0 };
for (let first = 0; first < job.sockets; first += BATCH) {
  const answers = await Promise.all(Array.from({ length: Math.min(BATCH, job.sockets - first) }, watch));
  for (const answer of answers) {
    if (answer === "HTTP/1.1 101") report.open += 1;
    else report.problem = answer;
  }
}
if (job.runs > 0) await run();
process.send?.(report);
