/**
 * The `fetch` that AI SDK packages get: it keeps connections by origin, an abort closes the socket at once, there is no time limit but
 * that for connecting, and a redirect to another origin, which would receive the key, is not followed.
 */

import { Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import undici, { type Dispatcher } from "undici";
import { decoded } from "../../outbound/body.ts";
import { askAgain } from "../../outbound/closed.ts";
import { createOutboundAgent } from "../../outbound/proxy.ts";
import { AnswerTooLarge, MAX_ANSWER_BYTES } from "../../plugin/model-errors.ts";

// One HTTP request of undici, as a `Response`.

/** How far to read ahead of a slow reader before the connection is paused (back-pressure). */
const MAX_BUFFERED_BYTES = 64 * 1024;
const STATUSES_WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

class FetchCall implements Dispatcher.DispatchHandler {
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

interface PackageFetch {
  readonly fetch: typeof fetch;
  /** Closes every connection at once. */
  close(): Promise<void>;
}

interface FetchOptions {
  /** Milliseconds within which a connection must be established. */
  readonly connectTimeout: number;
  /** Sits between the client and its connections, to record or replay. */
  readonly intercept?: Dispatcher.DispatcherComposeInterceptor | undefined;
}

const MAX_REDIRECTS = 5;
/** Redirects that repeat the request unchanged. */
const REPEATING_REDIRECTS: ReadonlySet<number> = new Set([307, 308]);
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

interface OutgoingRequest {
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body: string | Uint8Array | null;
  readonly signal: AbortSignal | undefined;
  readonly redirect: Request["redirect"];
}

type Send = (url: URL, request: OutgoingRequest) => Promise<Response>;

export function createFetch({ connectTimeout, intercept }: FetchOptions): PackageFetch {
  const connect = undici.buildConnector({ timeout: connectTimeout });
  /** Connections that were begun: a request before and after which there are as many has used a kept one. */
  let connections = 0;
  const agent = createOutboundAgent(undici, {
    connect(options, done) {
      connections++;
      connect(options, done);
    },
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const dispatcher = intercept === undefined ? agent : agent.compose(intercept);
  const send: Send = (url, request) => {
    const before = connections;
    return askAgain(
      () => dispatch(dispatcher, url, request),
      () => connections === before,
    );
  };
  return {
    fetch: (target, init = {}) => {
      if (typeof target === "string" || target instanceof URL) {
        const { body = null } = init;
        if (body === null || typeof body === "string" || body instanceof Uint8Array)
          return follow(send, new URL(target), {
            method: init.method ?? "GET",
            headers: headersOf(init.headers),
            body,
            signal: init.signal ?? undefined,
            redirect: init.redirect ?? "follow",
          });
      }
      return fetchRequest(send, new Request(target, init));
    },
    close: () => agent.destroy(),
  };
}

/** Sends forms, blobs and streams as body: `Request` knows how to encode them. */
async function fetchRequest(send: Send, request: Request): Promise<Response> {
  const { method, signal, redirect } = request;
  const body = request.body === null ? null : new Uint8Array(await request.arrayBuffer());
  return follow(send, new URL(request.url), {
    method,
    headers: headersOf(request.headers),
    body,
    signal,
    redirect,
  });
}

function headersOf(given: RequestInit["headers"]): Record<string, string> {
  const headers: Record<string, string> = { accept: "*/*", "accept-encoding": "identity" };
  const entries = given instanceof Headers || Array.isArray(given) ? given : Object.entries(given ?? {});
  for (const [name, value] of entries as Iterable<[string, string | undefined]>)
    if (value !== undefined) headers[name.toLowerCase()] = value;
  return headers;
}

async function follow(send: Send, start: URL, request: OutgoingRequest): Promise<Response> {
  let url = start;
  for (let redirects = 0; ; redirects++) {
    const response = await send(url, request);
    const location = REDIRECTS.has(response.status) ? response.headers.get("location") : null;
    if (location === null || request.redirect === "manual") return decodeBody(response);
    const next = URL.canParse(location, url.href) ? new URL(location, url) : null;
    const repeatable = REPEATING_REDIRECTS.has(response.status) || request.method === "GET";
    if (request.redirect === "error" || next?.origin !== start.origin || !repeatable || redirects === MAX_REDIRECTS) {
      await response.body?.cancel();
      throw new Error(
        `${url.origin} redirects to ${next?.origin ?? "no valid URL"}, which is not followed: set its own URL`,
      );
    }
    await response.body?.cancel();
    url = next;
  }
}

function dispatch(
  dispatcher: Dispatcher,
  url: URL,
  { method, headers, body, signal }: OutgoingRequest,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const call = new FetchCall(signal, resolve, reject);
    if (call.ended) return;
    const { origin, pathname, search } = url;
    dispatcher.dispatch(
      { origin, path: pathname + search, method: method as Dispatcher.HttpMethod, headers, body },
      call,
    );
  });
}

// Decodes bodies that a provider has compressed without being asked to.

/** Returns the response itself when its body is plain. */
export function decodeBody(response: Response): Response {
  const encoding = response.headers.get("content-encoding");
  if (encoding === null || response.body === null) return response;
  const body = decoded(Readable.fromWeb(response.body as NodeStream), encoding);
  const plain = new Response(ReadableStream.from(bounded(body)), response);
  for (const name of ["content-encoding", "content-length"]) plain.headers.delete(name);
  return plain;
}

/** Limits the decoded size: a few bytes may expand to very many. */
async function* bounded(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new AnswerTooLarge();
    yield chunk;
  }
}
