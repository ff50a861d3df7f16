/**
 * Writes server-sent events: numbers them, gathers those of one burst, and sends them in one write. A stream that is complete before its
 * first flush is sent as a plain reply with a length.
 */
import type { EventSink, TextSink } from "../lib/event-sink.ts";
import type { Exchange, HeaderList } from "./exchange.ts";
import type { TextStream } from "./route.ts";
import { StreamWriter } from "./stream-writer.ts";

export const EVENT_HEADERS: HeaderList = [
  "content-type",
  "text/event-stream; charset=utf-8",
  "cache-control",
  "no-cache, no-transform",
  "x-accel-buffering",
  "no",
];

/** Largest burst that is sent in one write. */
const MAX_BURST_BYTES = 64 * 1024;

/** The properties of a route's output that describe its stream. */
export interface StreamForm {
  /** Makes the event for an error within the stream. */
  readonly failure: (message: string) => unknown;
  /** The data line that ends the stream, even after a failure. */
  readonly last?: string;
  readonly resumable?: boolean;
}

export class EventWriter extends StreamWriter implements EventSink {
  readonly #headers: HeaderList;
  readonly #form: StreamForm;
  #pending = "";
  #sequence = 0;
  #opened = false;
  #headSent = false;
  #ended = false;
  #scheduled = false;

  constructor(exchange: Exchange, headers: HeaderList, form: StreamForm, limit: number) {
    super(exchange, limit);
    this.#headers = headers;
    this.#form = form;
  }

  get opened(): boolean {
    return this.#opened;
  }

  get closed(): boolean {
    return this.#ended || this.exchange.closed;
  }

  open(): void {
    if (this.#opened) return;
    this.#opened = true;
    this.#schedule();
  }

  /** Sends the failure event. In a resumable stream it gets no id: a client that reconnects continues after the event before it. */
  fail(message: string): void {
    const event = JSON.stringify(this.#form.failure(message));
    if (this.#form.resumable === true) this.#pending += `data: ${event}\n\n`;
    else this.send(event);
    this.finish();
  }

  send(json: string, id: number = this.#sequence + 1): Promise<void> | undefined {
    if (this.#ended || this.exchange.closed || this.isExpired()) return undefined;
    this.#opened = true;
    this.#sequence = id;
    this.#pending += `id: ${id}\ndata: ${json}\n\n`;
    if (this.#pending.length > MAX_BURST_BYTES) this.#flush();
    else if (!this.#scheduled) this.#schedule();
    return this.behind;
  }

  /** Sends a comment line, so that no proxy takes a silent stream for dead. */
  heartbeat(): void {
    if (!this.#headSent || this.#ended || this.behind !== undefined) return;
    this.#pending += ": \n\n";
    this.#flush();
  }

  finish(): void {
    if (this.#ended) return;
    const { last } = this.#form;
    if (last !== undefined) this.#pending += `data: ${last}\n\n`;
    this.#opened = true;
    this.#ended = true;
    this.#flush();
  }

  #schedule(): void {
    this.#scheduled = true;
    // Runs after the promises of this burst have settled, so that parts that are ready by then are sent together.
    process.nextTick(flushWriter, this);
  }

  flush(): void {
    this.#scheduled = false;
    if (!this.#ended) this.#flush();
  }

  #flush(): void {
    const exchange = this.exchange;
    if (exchange.closed) return;
    const chunk = this.#pending;
    this.#pending = "";
    this.wrote = true;
    if (!this.#headSent) {
      this.#headSent = true;
      if (this.#ended) exchange.reply(200, this.#headers, chunk);
      else {
        exchange.cork(() => {
          exchange.begin(200, this.#headers);
          if (chunk !== "") this.write(chunk);
        });
      }
      return;
    }
    if (this.#ended) {
      exchange.cork(() => {
        if (chunk !== "") exchange.write(chunk);
        exchange.end();
      });
    } else if (chunk !== "") this.write(chunk);
  }
}

function flushWriter(writer: EventWriter): void {
  writer.flush();
}

// Writes the stream of a protocol with its own format: text as it is given, without event ids, and with its own heartbeat or none.

export class TextWriter extends StreamWriter implements TextSink {
  readonly #status: number;
  readonly #headers: HeaderList;
  readonly #failure: TextStream["failure"];
  readonly #heartbeat: TextStream["heartbeat"];
  #opened = false;

  constructor(exchange: Exchange, headers: HeaderList, { status, failure, heartbeat }: TextStream, limit: number) {
    super(exchange, limit);
    this.#status = status;
    this.#headers = headers;
    this.#failure = failure;
    this.#heartbeat = heartbeat;
  }

  get opened(): boolean {
    return this.#opened;
  }

  get closed(): boolean {
    return this.exchange.closed;
  }

  open(): void {
    if (this.#opened) return;
    this.exchange.begin(this.#status, this.#headers);
    this.#opened = true;
  }

  send(text: string): Promise<void> | undefined {
    if (this.exchange.closed || this.isExpired()) return undefined;
    this.open();
    this.wrote = true;
    this.write(text);
    return this.behind;
  }

  heartbeat(): void {
    // A slow reader still has data to receive, so the stream is not silent.
    if (this.#heartbeat !== undefined && this.behind === undefined) this.write(this.#heartbeat);
  }

  /** Without a failure message the connection is closed: a regular end would make the stream look complete. */
  fail(message: string): void {
    if (this.#failure === undefined) {
      this.exchange.destroy();
      return;
    }
    this.write(this.#failure(message));
    this.finish();
  }

  finish(): void {
    this.open();
    this.exchange.end();
  }
}
