/**
 * Requests over plain sockets, in a separate process: one job as JSON in the first argument, counts as JSON on stdout. A closed loop
 * sends the next request of a connection when it has the previous reply; an open one sends at a fixed rate independent of replies,
 * and measures a reply from the time at which its request was due. It checks the head and the end of every reply, and one reply in 64
 * completely.
 */
import { connect, type Socket } from "node:net";
import { fill } from "../numbers.ts";
import { type Asked, checkOf } from "./rows.ts";

export interface LoadJob {
  port: number;
  asked: Asked;
  headers: Readonly<Record<string, string>>;
  connections: number;
  /** Requests per second of an open loop; null for a closed one. */
  rate: number | null;
  seconds: number;
}

export interface LoadCounts {
  /** Complete replies during the load. */
  replies: number;
  /** Replies per second. */
  rate: number;
  /** In milliseconds, including replies that came later. */
  p50: number;
  p99: number;
  failures: number;
  problem?: string;
}

/** Milliseconds to wait for pending replies at the end. */
const PATIENCE = 5_000;
const SAMPLED = 64;
const LAST_CHUNK = Buffer.from("\r\n0\r\n\r\n");
const OK = Buffer.from("HTTP/1.1 200");

const job = JSON.parse(process.argv[2]!) as LoadJob;
const check = checkOf(job.asked);
const latencies: number[] = [];
let replies = 0;
let failures = 0;
let problem: string | undefined;
let sent = 0;
let began = 0;
let going = true;
/** In an open loop: when the requests that wait for a connection were due. */
const overdue: number[] = [];
const idle: Client[] = [];

function requestFor(number: number): Buffer {
  const body = fill(job.asked.body, number);
  const lines = [
    `POST ${job.asked.path} HTTP/1.1`,
    "host: 127.0.0.1",
    "content-type: application/json",
    ...Object.entries(job.headers).map(([name, value]) => `${name}: ${value}`),
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${body}`);
}

/** Joins the chunks of a body. */
function unchunked(body: Buffer): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; ; ) {
    const line = body.indexOf("\r\n", at);
    const size = Number.parseInt(body.toString("latin1", at, line), 16);
    if (!(size > 0)) return Buffer.concat(pieces);
    pieces.push(body.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
}

/** Shared by all sockets: each read ends before the next one starts. */
const incoming = Buffer.alloc(256 * 1024);

class Client {
  readonly #request: Buffer;
  readonly #socket: Socket;
  #from = 0;
  /** Bytes of the reply so far; the next field keeps what is needed of it. */
  #received = 0;
  #pieces: Buffer[] = [];
  /** Total bytes of the reply; -1 until the head is read, 0 for a chunked one. */
  #whole = -1;
  /** Length of the head in bytes. */
  #head = 0;
  #sampled = false;
  busy = false;

  constructor(index: number, ready: () => void) {
    this.#request = requestFor(index);
    const onread = { buffer: incoming, callback: (length: number) => this.#read(incoming.subarray(0, length)) };
    this.#socket = connect({ port: job.port, host: "127.0.0.1", onread: onread as never }, ready);
    this.#socket.setNoDelay(true);
    this.#socket.on("error", (error) => this.#lost(error.message));
    this.#socket.on("close", () => this.#lost("closed"));
  }

  send(from: number): void {
    sent += 1;
    this.#from = from;
    this.#received = 0;
    this.#whole = -1;
    this.#sampled = sent % SAMPLED === 1;
    this.busy = true;
    this.#socket.write(this.#request);
  }

  close(): void {
    this.#socket.removeAllListeners("close");
    this.#socket.destroy();
  }

  #lost(why: string): void {
    if (!this.busy) return;
    this.busy = false;
    failures += 1;
    problem ??= `${why} after ${this.#received} bytes`;
  }

  #read(bytes: Buffer): true {
    this.#received += bytes.length;
    let text = bytes;
    // Kept when this part is not enough: the reply is to be checked, or its head or end came in pieces.
    if (this.#sampled || this.#pieces.length > 0 || !this.#isOver(bytes)) {
      this.#pieces.push(Buffer.from(bytes));
      const tail = this.#pieces.length > 8 && !this.#sampled && this.#whole !== -1;
      if (tail) this.#pieces = [Buffer.concat(this.#pieces).subarray(-16)];
      text = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces);
      if (!this.#isOver(text)) return true;
    }
    this.#pieces = [];
    this.#done(text);
    return true;
  }

  #isOver(text: Buffer): boolean {
    if (this.#whole === -1) {
      const end = text.indexOf("\r\n\r\n");
      if (end === -1) return false;
      const head = text.toString("latin1", 0, end);
      const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
      this.#head = end + 4;
      this.#whole = length === undefined ? 0 : end + 4 + Number(length);
      if (!text.subarray(0, OK.length).equals(OK)) {
        failures += 1;
        problem ??= text.toString("utf8", 0, 400);
        this.#sampled = false;
      }
    }
    if (this.#whole > 0) return this.#received >= this.#whole;
    return text.subarray(-LAST_CHUNK.length).equals(LAST_CHUNK);
  }

  #done(text: Buffer): void {
    const now = performance.now();
    this.busy = false;
    latencies.push(now - this.#from);
    if (going) replies += 1;
    if (this.#sampled) {
      const body = text.subarray(this.#head);
      const wrong = check((this.#whole === 0 ? unchunked(body) : body).toString());
      if (wrong !== null) {
        failures += 1;
        problem ??= wrong;
      }
    }
    if (job.rate === null) {
      if (going) this.send(now);
      return;
    }
    const due = overdue.shift();
    if (due !== undefined && going) this.send(due);
    else idle.push(this);
  }
}

const clients: Client[] = [];
for (let first = 0; first < job.connections; first += 100) {
  const ready: Promise<void>[] = [];
  for (let index = first; index < Math.min(first + 100, job.connections); index += 1) {
    ready.push(new Promise((resolve) => clients.push(new Client(index, resolve))));
  }
  await Promise.all(ready);
}

began = performance.now();
if (job.rate === null) for (const client of clients) client.send(began);
else {
  idle.push(...clients);
  let count = 0;
  const clock = setInterval(() => {
    if (!going) return clearInterval(clock);
    for (const until = ((performance.now() - began) / 1000) * job.rate!; count < until; count += 1) {
      const due = began + (count * 1000) / job.rate!;
      const client = idle.pop();
      if (client === undefined) overdue.push(due);
      else client.send(due);
    }
  }, 1);
}
await new Promise((resolve) => setTimeout(resolve, job.seconds * 1000));
going = false;
const seconds = (performance.now() - began) / 1000;
for (const until = Date.now() + PATIENCE; clients.some(({ busy }) => busy) && Date.now() < until; ) {
  await new Promise((resolve) => setTimeout(resolve, 20));
}
const silent = clients.filter(({ busy }) => busy).length;
if (silent > 0) problem ??= `${silent} requests without a reply`;
// All replies came late: a rate of 0 must not be reported as a result.
const stalled = replies === 0 && silent === 0;
if (stalled) problem ??= `no reply within ${job.seconds} s, the first after ${Math.min(...latencies).toFixed(0)} ms`;
for (const client of clients) client.close();
latencies.sort((left, right) => left - right);
const at = (share: number) =>
  latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))] ?? Number.NaN;
const counts: LoadCounts = {
  replies,
  rate: replies / seconds,
  p50: at(0.5),
  p99: at(0.99),
  failures: failures + silent + (stalled ? 1 : 0),
  ...(problem !== undefined && { problem }),
};
process.stdout.write(JSON.stringify(counts));
