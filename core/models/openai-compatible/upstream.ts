/** A `fetch` to one origin over a connection pool, with four timeouts and an abort that closes the socket at once. */
import { type Dispatcher, Pool } from "undici";
import type { ModelTimeouts } from "../../plugin/plugin.ts";

interface UpstreamOptions {
  /** Maximum number of connections. */
  connections: number;
}

interface Upstream {
  fetch(timeouts: ModelTimeouts): typeof fetch;
  /** Closes every connection at once. */
  close(): Promise<void>;
}

/** Has the name of the errors of `AbortSignal.timeout`, by which timeouts are recognised. */
class UpstreamTimeout extends Error {
  override readonly name = "TimeoutError";
  readonly limit: keyof ModelTimeouts;

  constructor(limit: keyof ModelTimeouts, milliseconds: number) {
    super(`the provider took longer than timeouts.${limit} (${milliseconds} ms)`);
    this.limit = limit;
  }
}

/** How far to read ahead of a slow reader before the connection is paused (back-pressure). */
const MAX_BUFFERED_BYTES = 64 * 1024;
/** Of one answer: its reader may have to buffer all of it, since an event is complete only with its last line. */
const MAX_ANSWER_BYTES = 128 * 1024 * 1024;
const STATUSES_WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** @param baseURL http or https; calls may go only to its origin, and redirects are not followed */
export function createUpstream(baseURL: URL, { connections }: UpstreamOptions): Upstream {
  const pool = new Pool(baseURL.origin, {
    connections,
    connect: { timeout: 0 },
    // `UpstreamCall` has exact timeouts; those of undici have a resolution of a second.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  return {
    fetch:
      (timeouts) =>
      (target, init = {}) => {
        const url = new URL(target instanceof Request ? target.url : target);
        if (url.origin !== baseURL.origin) return Promise.reject(new Error(`${url.origin} is not ${baseURL.origin}`));
        return new Promise((resolve, reject) => {
          const call = new UpstreamCall(timeouts, init.signal ?? undefined, resolve, reject);
          if (call.ended) return;
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
  readonly #timeouts: ModelTimeouts;
  readonly #signal: AbortSignal | undefined;
  readonly #resolve: (response: Response) => void;
  readonly #reject: (thrown: unknown) => void;
  readonly #startedAt = performance.now();
  /** The timeout that applies beside the total one, and when it began. */
  #limit: Exclude<keyof ModelTimeouts, "total"> = "connect";
  #limitStart = this.#startedAt;
  #received = 0;
  #timer: NodeJS.Timeout | undefined;
  #connection: Dispatcher.DispatchController | undefined;
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #problem: Error | undefined;
  ended = false;

  constructor(
    timeouts: ModelTimeouts,
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
    // Aborted while it waited for a connection.
    if (this.ended) connection.abort(this.#problem ?? new Error("aborted"));
    else this.#startLimit("firstByte");
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
      this.#fail(new Error(`the provider's answer is larger than ${MAX_ANSWER_BYTES / 1024 / 1024} MiB`));
      return;
    }
    if (this.#limit === "idle") this.#limitStart = performance.now();
    else this.#startLimit("idle");
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
          if (!this.#connection?.paused) return;
          // The provider is not to blame for the pause.
          this.#limitStart = performance.now();
          this.#connection.resume();
        },
        cancel: () => {
          this.#body = undefined;
          this.#fail(new Error("the reader has left"));
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: MAX_BUFFERED_BYTES }),
    );
  }

  #startLimit(limit: "firstByte" | "idle"): void {
    this.#limit = limit;
    this.#limitStart = performance.now();
    clearTimeout(this.#timer);
    this.#watch();
  }

  /** One timer for all timeouts, set for the next one. A chunk of the body only moves `#limitStart`, which costs no timer. */
  readonly #watch = (): void => {
    const now = performance.now();
    if (this.#limit === "idle" && this.#connection?.paused) this.#limitStart = now;
    const limits = this.#timeouts;
    const phase = this.#limitStart + limits[this.#limit] - now;
    const total = this.#startedAt + (limits.total ?? Number.POSITIVE_INFINITY) - now;
    const left = Math.min(phase, total);
    if (left > 0) {
      this.#timer = setTimeout(this.#watch, Math.ceil(left));
      return;
    }
    const limit = total <= phase ? "total" : this.#limit;
    this.#fail(new UpstreamTimeout(limit, limits[limit] ?? 0));
  };

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
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#aborted);
  }
}
