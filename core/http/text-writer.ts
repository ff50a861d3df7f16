/** The stream of a protocol with formats of its own: text as it is given, without numbers, and with its own heartbeat or none. */

import type { TextSink } from "../lib/event-sink.ts";
import type { Exchange, HeaderList } from "./exchange.ts";
import type { TextStream } from "./route.ts";
import { StreamWriter } from "./stream-writer.ts";

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
    // A reader that is behind has something to read.
    if (this.#heartbeat !== undefined && this.behind === undefined) this.write(this.#heartbeat);
  }

  /** A stream of a protocol that has nothing for it is cut off: to end it would call it whole. */
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
