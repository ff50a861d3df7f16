/**
 * Server-sent events (contract, "SSE framing"): numbered events, gathered for as long as one burst lasts and
 * sent in one write. A stream that is complete before its first flush leaves as a plain reply of known length.
 */
import type { Exchange, HeaderList } from "./exchange.ts";
import type { EventSink } from "./route.ts";

export const EVENT_HEADERS: HeaderList = [
  "content-type",
  "text/event-stream; charset=utf-8",
  "cache-control",
  "no-cache, no-transform",
  "x-accel-buffering",
  "no",
];

/** Bytes gathered at most before a burst is cut. */
const BURST = 64 * 1024;

export class EventWriter implements EventSink {
  readonly #exchange: Exchange;
  readonly #headers: HeaderList;
  /** Bytes that may wait for a reader in all; a producer that goes on regardless loses the connection. */
  readonly #limit: number;
  #pending = "";
  #sequence = 0;
  #opened = false;
  #begun = false;
  #ended = false;
  #scheduled = false;
  #behind: Promise<void> | undefined;
  #listener: (() => void) | null = null;
  /** Set at each write, read and reset by the heartbeat. */
  wrote = false;

  constructor(exchange: Exchange, headers: HeaderList, limit: number) {
    this.#exchange = exchange;
    this.#headers = headers;
    this.#limit = limit;
  }

  get opened(): boolean {
    return this.#opened;
  }

  get closed(): boolean {
    return this.#ended || this.#exchange.closed;
  }

  onLeave(listener: () => void): void {
    this.#listener = listener;
  }

  /** The reader is gone. */
  leave(): void {
    this.#listener?.();
    this.#listener = null;
  }

  open(): void {
    if (this.#opened) return;
    this.#opened = true;
    this.#schedule();
  }

  /** An event that is no place in the stream: a reader that comes back asks for what follows the one before it. */
  sendAside(json: string): void {
    this.#pending += `data: ${json}\n\n`;
  }

  send(json: string, id: number = this.#sequence + 1): Promise<void> | undefined {
    if (this.#ended || this.#exchange.closed) return undefined;
    this.#opened = true;
    this.#sequence = id;
    this.#pending += `id: ${id}\ndata: ${json}\n\n`;
    if (this.#pending.length > BURST) this.#flush();
    else if (!this.#scheduled) this.#schedule();
    return this.#behind;
  }

  /** A comment line, so that nothing on the way takes a silent stream for dead. */
  heartbeat(): void {
    if (!this.#begun || this.#ended || this.#behind !== undefined) return;
    this.#pending += ": \n\n";
    this.#flush();
  }

  /** Ends the stream, with a raw data line first where the protocol has one. */
  finish(last?: string): void {
    if (this.#ended) return;
    if (last !== undefined) this.#pending += `data: ${last}\n\n`;
    this.#opened = true;
    this.#ended = true;
    this.#flush();
  }

  #schedule(): void {
    this.#scheduled = true;
    // Runs when the promises of this burst have settled: a stream's parts that are at hand leave together.
    process.nextTick(flushOf, this);
  }

  flush(): void {
    this.#scheduled = false;
    if (!this.#ended) this.#flush();
  }

  #flush(): void {
    const exchange = this.#exchange;
    if (exchange.closed) return;
    const chunk = this.#pending;
    this.#pending = "";
    this.wrote = true;
    if (!this.#begun) {
      this.#begun = true;
      if (this.#ended) exchange.reply(200, this.#headers, chunk);
      else {
        exchange.cork(() => {
          exchange.begin(200, this.#headers);
          if (chunk !== "") this.#write(chunk);
        });
      }
      return;
    }
    if (this.#ended) {
      exchange.cork(() => {
        if (chunk !== "") exchange.write(chunk);
        exchange.end();
      });
    } else if (chunk !== "") this.#write(chunk);
  }

  #write(chunk: string): void {
    const exchange = this.#exchange;
    if (exchange.write(chunk) || exchange.closed) return;
    if (exchange.buffered > this.#limit) {
      exchange.destroy();
      return;
    }
    this.#behind ??= exchange.drained().then(() => {
      this.#behind = undefined;
    });
  }
}

function flushOf(writer: EventWriter): void {
  writer.flush();
}
