/**
 * Many parallel paced streams over plain sockets, in a separate process: one job as JSON in the first argument. Each delta contains the
 * time at which the provider sent it, so that its delay can be measured on arrival. The report goes to the parent over the channel.
 * With `hold` the streams then stay open until the process is killed.
 */
import { connect, type Socket } from "node:net";

export interface PacedJob {
  port: number;
  path: string;
  body: string;
  streams: number;
  /** Deltas of a complete stream; null for streams that outlast the measurement. */
  deltas: number | null;
  /** Seconds of measuring after the last stream has started, when `deltas` is null. */
  seconds: number;
}

export interface PacedReport {
  /** Streams that were complete, or still open and active at the end. */
  good: number;
  deltas: number;
  /** Delay in milliseconds between sending and arrival. */
  p50: number;
  p99: number;
  longest: number;
  /** Share of a core that this process used. */
  load: number;
  problem?: string;
}

/** Streams opened at a time: more would only overflow the listen queue. */
const BATCH = 100;
/** The first second of all streams is not measured: it reflects their start, not their pace. */
const SETTLE_MICROS = 1_000_000n;
/** The content of a delta: microseconds, and a blank. */
const STAMP = /"(?:content|delta)":"(\d{6,}) "/g;
const LAST_CHUNK = "\r\n0\r\n\r\n";

const job = JSON.parse(process.argv[2]!) as PacedJob;
const micros = () => process.hrtime.bigint() / 1_000n;
const report: PacedReport = { good: 0, deltas: 0, p50: 0, p99: 0, longest: 0, load: 0 };
/** Histogram of delays in steps of ten microseconds, up to ten seconds. */
const delays = new Uint32Array(1_000_000);
let measureFrom = 2n ** 62n;
let settled = 0;

const request = [
  `POST ${job.path} HTTP/1.1`,
  "host: 127.0.0.1",
  "content-type: application/json",
  `content-length: ${Buffer.byteLength(job.body)}`,
  "",
  job.body,
].join("\r\n");

/** Shared by all sockets: each read ends before the next one starts. */
const incoming = Buffer.alloc(64 * 1024);

class Stream {
  readonly socket: Socket;
  #rest = "";
  #head = false;
  #over = false;
  deltas = 0;

  constructor(begun: () => void) {
    const callback = (length: number) => {
      this.#read(incoming.toString("latin1", 0, length), begun);
      return true;
    };
    const onread = { buffer: incoming, callback };
    this.socket = connect({ port: job.port, host: "127.0.0.1", onread: onread as never }, () =>
      this.socket.write(request),
    );
    this.socket.setNoDelay(true);
    this.socket.on("error", (error) => this.#settle(error.message));
    this.socket.on("close", () => this.#settle("closed"));
  }

  get open(): boolean {
    return !this.#over && this.deltas > 0;
  }

  #read(bytes: string, begun: () => void): void {
    const now = micros();
    const text = this.#rest + bytes;
    if (!this.#head) {
      if (!text.includes("\r\n\r\n")) {
        this.#rest = text;
        return;
      }
      this.#head = true;
      if (!text.startsWith("HTTP/1.1 200 ")) this.#settle(text.slice(0, 300));
      begun();
    }
    let end = 0;
    STAMP.lastIndex = 0;
    for (let found = STAMP.exec(text); found !== null; found = STAMP.exec(text)) {
      end = STAMP.lastIndex;
      this.deltas += 1;
      const sent = BigInt(found[1]!);
      if (sent < measureFrom) continue;
      report.deltas += 1;
      delays[Math.min(delays.length - 1, Math.max(0, Number(now - sent) / 10) | 0)]! += 1;
    }
    this.#rest = text.slice(Math.max(end, text.length - 400));
    if (this.#rest.endsWith(LAST_CHUNK)) this.#settle(this.deltas === job.deltas ? null : `${this.deltas} deltas`);
  }

  #settle(problem: string | null): void {
    if (this.#over) return;
    this.#over = true;
    settled += 1;
    if (problem === null) report.good += 1;
    else report.problem ??= problem;
    this.socket.destroy();
  }
}

const streams: Stream[] = [];
for (let first = 0; first < job.streams; first += BATCH) {
  const batch: Promise<void>[] = [];
  for (let index = first; index < Math.min(first + BATCH, job.streams); index += 1) {
    batch.push(new Promise((resolve) => streams.push(new Stream(resolve))));
  }
  await Promise.all(batch);
}
measureFrom = micros() + SETTLE_MICROS;

const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
if (job.deltas === null) {
  await sleep(Number(SETTLE_MICROS) / 1_000 + job.seconds * 1_000);
  report.good = streams.filter(({ open }) => open).length;
} else while (settled < job.streams) await sleep(50);

/** The delay that this share of the deltas did not exceed, in milliseconds. */
function quantile(share: number): number {
  let left = Math.ceil(report.deltas * share);
  const step = delays.findIndex((count) => {
    left -= count;
    return left <= 0;
  });
  return step / 100;
}

const { user, system } = process.cpuUsage();
report.load = (user + system) / 1_000 / performance.now();
report.p50 = quantile(0.5);
report.p99 = quantile(0.99);
report.longest = quantile(1);
process.send?.(report, () => {
  if (job.deltas !== null) process.exit();
});
