/**
 * Many parallel event streams over plain sockets, in a separate process. One job as JSON in the first argument.
 * With `hold` it reports once every stream has sent its first delta and keeps them open until it is killed; otherwise it reports when
 * every stream has ended. Reports go to the parent over the channel.
 */
import { connect, type Socket } from "node:net";

export interface StreamsJob {
  port: number;
  path: string;
  body: string;
  streams: number;
  hold: boolean;
  /** Rounds over the same connections before the reported one, so that code is compiled in the server and here. */
  warm: number;
}

export interface StreamsReport {
  /** Streams that were complete (or, with `hold`, had started). */
  good: number;
  /** Text deltas of all streams. */
  deltas: number;
  /** From the first request to the end of the last stream. */
  seconds: number;
  problem?: string;
}

/** Connections opened at a time: more would only overflow the listen queue. */
const BATCH = 250;
const DELTA = '"type":"text-delta"';
const LAST_CHUNK = "\r\n0\r\n\r\n";

/** Whether a reply is complete. A stream that ends before its headers are sent may have a length instead of chunks. */
function isWhole(text: string): boolean {
  const head = text.indexOf("\r\n\r\n");
  if (head === -1) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(text.slice(0, head))?.[1];
  return length === undefined ? text.endsWith(LAST_CHUNK) : text.length - head - 4 === Number(length);
}

const job = JSON.parse(process.argv[2] as string) as StreamsJob;
let report: StreamsReport = { good: 0, deltas: 0, seconds: 0 };

function open(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(job.port, "127.0.0.1", () => resolve(socket));
    socket.setNoDelay(true);
    socket.once("error", reject);
  });
}

const request = [
  `POST ${job.path} HTTP/1.1`,
  "host: 127.0.0.1",
  "content-type: application/json",
  `content-length: ${Buffer.byteLength(job.body)}`,
  "",
  job.body,
].join("\r\n");

/** Resolves at the stream's end, or with `hold` at its first delta. */
function read(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    let text = "";
    let begun = false;
    const settle = (problem?: string) => {
      if (begun) return;
      begun = true;
      if (problem === undefined) report.good += 1;
      else report.problem = problem;
      report.deltas += text.split(DELTA).length - 1;
      text = "";
      resolve();
    };
    socket.setEncoding("latin1");
    socket.removeAllListeners("data");
    socket.on("data", (chunk: string) => {
      if (begun) return;
      text += chunk;
      if (job.hold ? text.includes(DELTA) : isWhole(text)) {
        settle(text.startsWith("HTTP/1.1 200 ") ? undefined : text.slice(0, 200));
      }
    });
    socket.once("close", () => settle(`closed after ${JSON.stringify(text.slice(-200))}`));
    socket.on("error", () => undefined);
  });
}

const sockets: Socket[] = [];
for (let first = 0; first < job.streams; first += BATCH) {
  const size = Math.min(BATCH, job.streams - first);
  sockets.push(...(await Promise.all(Array.from({ length: size }, open))));
}

for (let round = 0; round <= job.warm; round += 1) {
  report = { good: 0, deltas: 0, seconds: 0 };
  const began = performance.now();
  const readers = sockets.map(read);
  for (const socket of sockets) socket.write(request);
  await Promise.all(readers);
  report.seconds = (performance.now() - began) / 1000;
}
process.send?.(report, () => {
  if (!job.hold) process.exit();
});
