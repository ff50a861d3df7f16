/** The in-process transport: calls a dispatch like a network transport, but without a socket. */
import type { Dispatch, Exchange, HeaderList, OnBody, OnBodyFailed, Uploads } from "../../core/http/exchange.ts";
import { hostInTarget, splitTarget } from "../../core/transport/target.ts";

export interface InjectOptions {
  method?: string;
  /** Raw path with the query. */
  path: string;
  /** Names in any case. The default `host` is localhost. */
  headers?: Record<string, string>;
  /** Strings and bytes are sent unchanged; anything else as JSON, with that content type unless another is given. */
  body?: unknown;
  /** Aborting it simulates that the client leaves. */
  signal?: AbortSignal;
  remoteAddress?: string;
  /** Called with each chunk of the reply's body as it is written. */
  onChunk?: (chunk: Buffer) => void;
}

export interface InjectedReply {
  status: number;
  /** Names in lower case, repeated ones joined by `, `. */
  headers: Record<string, string>;
  body: Buffer;
  text(): string;
  json(): unknown;
}

const EMPTY = new Uint8Array(0);
const WITHOUT_BODY = new Set([204, 304]);

export class InjectedExchange implements Exchange {
  readonly method: string;
  path: string;
  readonly query: string;
  closed = false;
  requestId = "";
  readonly buffered = 0;
  readonly #headers: Record<string, string>;
  readonly #body: Uint8Array;
  readonly #options: InjectOptions;
  readonly #settle: (reply: InjectedReply) => void;
  readonly #fail: (error: Error) => void;
  #readable = true;
  #headReadable = true;
  #listener: (() => void) | null = null;
  #status = 0;
  #replyHeaders: Record<string, string> = Object.create(null);
  #chunks: Buffer[] = [];

  constructor(options: InjectOptions, settle: (reply: InjectedReply) => void, fail: (error: Error) => void) {
    const target = splitTarget(options.path);
    if (target === null) throw new TypeError(`path must begin with "/": ${options.path}`);
    this.method = (options.method ?? (options.body === undefined ? "GET" : "POST")).toUpperCase();
    this.path = target.path;
    this.query = target.query;
    this.#options = options;
    this.#settle = settle;
    this.#fail = fail;
    this.#headers = Object.create(null);
    for (const [name, value] of Object.entries(options.headers ?? {})) this.#headers[name.toLowerCase()] = value;
    this.#headers.host = hostInTarget(options.path) ?? this.#headers.host ?? "localhost";
    this.#body = this.#encodeBody(options.body);
  }

  #encodeBody(body: unknown): Uint8Array {
    if (body === undefined) return EMPTY;
    const encoded =
      body instanceof Uint8Array ? body : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
    if (typeof body !== "string" && !(body instanceof Uint8Array)) this.#headers["content-type"] ??= "application/json";
    this.#headers["content-length"] = String(encoded.length);
    return encoded;
  }

  /** Makes the head unreadable, as after the return of a native callback. */
  leaveDispatch(): void {
    this.#headReadable = false;
  }

  header(name: string): string {
    this.#assertHead();
    return this.#headers[name] ?? "";
  }

  headers(): Record<string, string> {
    this.#assertHead();
    return Object.assign(Object.create(null) as Record<string, string>, this.#headers);
  }

  #assertHead(): void {
    if (!this.#headReadable) throw new Error("the head of a request can be read during dispatch only");
  }

  remoteAddress(): string {
    return this.#options.remoteAddress ?? "127.0.0.1";
  }

  readBody(limit: number, done: OnBody, failed: OnBodyFailed, uploads?: Uploads): void {
    if (!this.#headReadable || !this.#readable) throw new Error("a body can be read once, and from dispatch only");
    this.#readable = false;
    if (this.#body.length > limit) failed("too_large");
    else if (uploads?.reserve(this.#body.length) === false) failed("crowded");
    else done(this.#body);
  }

  onAbort(listener: () => void): void {
    this.#listener = listener;
  }

  /** Simulates that the client leaves. */
  abort(): void {
    if (this.closed) return;
    this.closed = true;
    this.#fail(new Error("aborted"));
    this.#listener?.();
  }

  reply(status: number, headers: HeaderList, body: string | Uint8Array | null): void {
    if (this.closed || this.#status !== 0) return;
    this.#setHead(status, headers);
    const bytes = body === null ? Buffer.alloc(0) : Buffer.from(body as string);
    if (!WITHOUT_BODY.has(status)) this.#replyHeaders["content-length"] = String(bytes.length);
    this.#take(bytes);
    this.end();
  }

  begin(status: number, headers: HeaderList): void {
    if (this.closed || this.#status !== 0) return;
    this.#setHead(status, headers);
    if (this.method === "HEAD") this.end();
  }

  #setHead(status: number, headers: HeaderList): void {
    this.#status = status;
    if (this.requestId !== "") this.#replyHeaders["x-request-id"] = this.requestId;
    for (let at = 0; at < headers.length; at += 2) {
      const before = this.#replyHeaders[headers[at]!];
      this.#replyHeaders[headers[at]!] = before === undefined ? headers[at + 1]! : `${before}, ${headers[at + 1]}`;
    }
  }

  #take(bytes: Buffer): void {
    if (this.method === "HEAD" || bytes.length === 0) return;
    this.#chunks.push(bytes);
    this.#options.onChunk?.(bytes);
  }

  write(chunk: string | Uint8Array): boolean {
    if (!this.closed) this.#take(Buffer.from(chunk as string));
    return true;
  }

  drained(): Promise<void> {
    return Promise.resolve();
  }

  end(): void {
    if (this.closed) return;
    this.closed = true;
    const body = Buffer.concat(this.#chunks);
    const text = () => body.toString("utf8");
    const json = () => JSON.parse(text()) as unknown;
    this.#settle({ status: this.#status, headers: this.#replyHeaders, body, text, json });
  }

  cork(work: () => void): void {
    work();
  }

  destroy(): void {
    if (this.closed) return;
    this.closed = true;
    this.#fail(new Error("the connection was cut"));
  }
}

/**
 * Sends one request through `dispatch`; resolves with the whole reply. Rejects with `aborted` when `signal` aborts first, and
 * with `the connection was cut` when the service destroys the exchange.
 */
export function inject(dispatch: Dispatch, options: InjectOptions): Promise<InjectedReply> {
  return new Promise((resolve, reject) => {
    const { signal } = options;
    const leave = () => exchange.abort();
    const forget = () => signal?.removeEventListener("abort", leave);
    const settle = (reply: InjectedReply) => {
      forget();
      resolve(reply);
    };
    const fail = (error: Error) => {
      forget();
      reject(error);
    };
    const exchange = new InjectedExchange(options, settle, fail);
    signal?.addEventListener("abort", leave, { once: true });
    if (signal?.aborted) return leave();
    dispatch(exchange);
    exchange.leaveDispatch();
  });
}
