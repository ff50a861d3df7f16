/** Writes the stream of a protocol with its own format: text as it is given, without event ids, and with its own heartbeat or none. */
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
