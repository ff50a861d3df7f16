/** A `fetch` to one origin over a connection pool, with four time limits and an abort that closes the socket at once. */
import { type Dispatcher, Pool } from "undici";

/** Milliseconds. */
export interface Timeouts {
  /** Until the request is on a connection: waiting for a free one counts. */
  connect: number;
  /** From then on until the first byte of the body. */
  firstByte: number;
  /** Between two pieces of the body. */
  idle: number;
  /** From the call to the end of the body. */
  total: number;
}

export interface UpstreamOptions {
  timeouts: Timeouts;
  /** Connections at once. */
  connections: number;
}

export interface Upstream {
  fetch(url: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** Cuts every connection. */
  close(): Promise<void>;
}

/** The name is what callers tell it by, as with `AbortSignal.timeout`. */
export class UpstreamTimeout extends Error {
  override readonly name = "TimeoutError";
  readonly limit: keyof Timeouts;

  constructor(limit: keyof Timeouts, milliseconds: number) {
    super(`the provider took longer than timeouts.${limit} (${milliseconds} ms)`);
    this.limit = limit;
  }
}

/** What the body may be ahead of its reader before the socket is no longer read. */
const MOST_AHEAD = 64 * 1024;
/** Bytes of one answer, which its reader may have to gather: an event is no event before its last line. */
const LARGEST = 128 * 1024 * 1024;
const BODILESS: ReadonlySet<number> = new Set([204, 205, 304]);

/** @param baseURL http or https; calls go to its origin alone, and redirects are not followed */
export function createUpstream(baseURL: URL, { timeouts, connections }: UpstreamOptions): Upstream {
  const pool = new Pool(baseURL.origin, {
    connections,
    connect: { timeout: timeouts.connect },
    // The limits below are exact; those of undici count in steps of a second.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  return {
    fetch: (target, init = {}) => {
      const url = new URL(target instanceof Request ? target.url : target);
      if (url.origin !== baseURL.origin) return Promise.reject(new Error(`${url.origin} is not ${baseURL.origin}`));
      return new Promise((resolve, reject) => {
        const call = new UpstreamCall(timeouts, init.signal ?? undefined, resolve, reject);
        if (call.over) return;
        pool.dispatch(
          {
            method: (init.method ?? "GET") as Dispatcher.HttpMethod,
            path: url.pathname + url.search,
            headers: init.headers as Record<string, string>,
            body: init.body as string,
          },
          call,
        );
      });
    },
    close: () => pool.destroy(),
  };
}

class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly #timeouts: Timeouts;
  readonly #signal: AbortSignal | undefined;
  readonly #resolve: (response: Response) => void;
  readonly #reject: (thrown: unknown) => void;
  readonly #start = performance.now();
  /** The limit that counts beside the total one, and since when. */
  #limit: Exclude<keyof Timeouts, "total"> = "connect";
  #since = this.#start;
  #received = 0;
  #timer: NodeJS.Timeout | undefined;
  #connection: Dispatcher.DispatchController | undefined;
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #problem: Error | undefined;
  over = false;

  constructor(
    timeouts: Timeouts,
    signal: AbortSignal | undefined,
    resolve: (response: Response) => void,
    reject: (thrown: unknown) => void,
  ) {
    this.#timeouts = timeouts;
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    if (signal?.aborted) this.#aborted();
    else {
      signal?.addEventListener("abort", this.#aborted, { once: true });
      this.#watch();
    }
  }

  onRequestStart(connection: Dispatcher.DispatchController): void {
    this.#connection = connection;
    // Given up while it waited for a connection.
    if (this.over) connection.abort(this.#problem ?? new Error("aborted"));
    else this.#enter("firstByte");
  }

  onResponseStart(
    _connection: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    statusText = "",
  ): void {
    if (status < 200 || this.over) return;
    const list = Object.entries(headers).flatMap(([name, value]) =>
      [value ?? []].flat().map((item): [string, string] => [name, item]),
    );
    const text = /^[\t\x20-\x7e]*$/.test(statusText) ? statusText : "";
    const body = BODILESS.has(status) ? null : this.#stream();
    this.#resolve(new Response(body, { status, statusText: text, headers: list }));
  }

  onResponseData(connection: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.over) return;
    this.#received += chunk.length;
    if (this.#received > LARGEST) {
      this.#fail(new Error(`the provider's answer is larger than ${LARGEST / 1024 / 1024} MiB`));
      return;
    }
    if (this.#limit === "idle") this.#since = performance.now();
    else this.#enter("idle");
    this.#body?.enqueue(chunk);
    if ((this.#body?.desiredSize ?? 1) <= 0) connection.pause();
  }

  onResponseEnd(): void {
    if (this.over) return;
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
          if (!this.#connection?.paused) return;
          // The pause was ours, not the provider's.
          this.#since = performance.now();
          this.#connection.resume();
        },
        cancel: () => {
          this.#body = undefined;
          this.#fail(new Error("the reader has left"));
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MOST_AHEAD }),
    );
  }

  #enter(limit: "firstByte" | "idle"): void {
    this.#limit = limit;
    this.#since = performance.now();
    clearTimeout(this.#timer);
    this.#watch();
  }

  /** One timer for all limits, set for the nearest; a piece of the body only moves `#since`, and costs no timer. */
  readonly #watch = (): void => {
    const now = performance.now();
    if (this.#limit === "idle" && this.#connection?.paused) this.#since = now;
    const limits = this.#timeouts;
    const phase = this.#since + limits[this.#limit] - now;
    const total = this.#start + limits.total - now;
    const left = Math.min(phase, total);
    if (left > 0) {
      this.#timer = setTimeout(this.#watch, Math.ceil(left));
      return;
    }
    const limit = total <= phase ? "total" : this.#limit;
    this.#fail(new UpstreamTimeout(limit, limits[limit]));
  };

  readonly #aborted = (): void => {
    const reason: unknown = this.#signal?.reason;
    this.#fail(reason instanceof Error ? reason : new DOMException("aborted", "AbortError"));
  };

  #fail(problem: Error): void {
    if (this.over) return;
    this.#end();
    this.#problem = problem;
    this.#reject(problem);
    this.#body?.error(problem);
    this.#connection?.abort(problem);
  }

  #end(): void {
    this.over = true;
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#aborted);
  }
}
