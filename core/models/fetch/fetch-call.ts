/** One HTTP request of undici, as a `Response`. */
import type { Dispatcher } from "undici";
import { AnswerTooLarge, MAX_ANSWER_BYTES } from "../../plugin/model-errors.ts";

/** How far to read ahead of a slow reader before the connection is paused (back-pressure). */
const MAX_BUFFERED_BYTES = 64 * 1024;
const STATUSES_WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

export class FetchCall implements Dispatcher.DispatchHandler {
  readonly #signal: AbortSignal | undefined;
  readonly #resolve: (response: Response) => void;
  readonly #reject: (thrown: unknown) => void;
  #received = 0;
  #connection: Dispatcher.DispatchController | undefined;
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #problem: Error | undefined;
  ended = false;

  constructor(
    signal: AbortSignal | undefined,
    resolve: (response: Response) => void,
    reject: (thrown: unknown) => void,
  ) {
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    if (signal?.aborted) this.#aborted();
    else signal?.addEventListener("abort", this.#aborted, { once: true });
  }

  onRequestStart(connection: Dispatcher.DispatchController): void {
    this.#connection = connection;
    // The call was aborted while it waited for a connection.
    if (this.ended) connection.abort(this.#problem ?? new Error("aborted"));
  }

  onResponseStart(
    _connection: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    statusText = "",
  ): void {
    if (status < 200 || this.ended) return;
    const list = Object.entries(headers).flatMap(([name, value]) =>
      [value ?? []].flat().map((item): [string, string] => [name, item]),
    );
    const text = /^[\t\x20-\x7e]*$/.test(statusText) ? statusText : "";
    const body = STATUSES_WITHOUT_BODY.has(status) ? null : this.#stream();
    this.#resolve(new Response(body, { status, statusText: text, headers: list }));
  }

  onResponseData(connection: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.ended) return;
    this.#received += chunk.length;
    if (this.#received > MAX_ANSWER_BYTES) {
      this.#fail(new AnswerTooLarge());
      return;
    }
    this.#body?.enqueue(chunk);
    if ((this.#body?.desiredSize ?? 1) <= 0) connection.pause();
  }

  onResponseEnd(): void {
    if (this.ended) return;
    this.#end();
    this.#body?.close();
  }

  onResponseError(_connection: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error);
  }

  #stream(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#body = controller;
        },
        pull: () => {
          if (this.#connection?.paused) this.#connection.resume();
        },
        cancel: () => {
          this.#body = undefined;
          this.#fail(new Error("the reader has left"));
        },
      },
      { highWaterMark: MAX_BUFFERED_BYTES, size: (chunk) => chunk.byteLength },
    );
  }

  readonly #aborted = (): void => {
    const reason: unknown = this.#signal?.reason;
    this.#fail(reason instanceof Error ? reason : new DOMException("aborted", "AbortError"));
  };

  #fail(problem: Error): void {
    if (this.ended) return;
    this.#end();
    this.#problem = problem;
    this.#reject(problem);
    this.#body?.error(problem);
    this.#connection?.abort(problem);
  }

  #end(): void {
    this.ended = true;
    this.#signal?.removeEventListener("abort", this.#aborted);
  }
}
