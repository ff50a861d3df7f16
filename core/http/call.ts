/** One request on its way through the pipeline: the context that its handler sees, and how it is answered. */
import { setMaxListeners } from "node:events";
import type { Logger } from "pino";
import { type Caller, NOBODY, type User, userIdOf } from "../identity/principal.ts";
import { AbortSource, type Aborts } from "../lib/aborts.ts";
import { caught, type Facts, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Uses } from "../lib/uses.ts";
import { logError } from "../observability/failures.ts";
import { UNTIMED } from "../observability/metrics/durations.ts";
import type { CountRefusal, RequestMeter } from "../observability/metrics/meters.ts";
import type { Entity, Span, SpanKind, SpanOrigin } from "../observability/span.ts";
import type { Tracer } from "../observability/tracer.ts";
import type { Client, ClientOf } from "./client.ts";
import { type ErrorForm, errorReply, factHeaders, failureText } from "./encode.ts";
import { EventWriter, type StreamForm, TextWriter } from "./event-writer.ts";
import type { Exchange, HeaderList } from "./exchange.ts";
import type { KeptReply, KeyClaim } from "./idempotency.ts";
import type { InFlight, InFlightRequest } from "./in-flight.ts";
import type { Context, PageReply, Route, TextStream } from "./route.ts";
import type { StreamWriter } from "./stream-writer.ts";

/** The settings and services that all calls of a pipeline share. */
export interface CallSettings<S> {
  readonly service: S;
  readonly logger: Logger;
  readonly inFlight: InFlight;
  /** Counts the requests that use these settings and this service; undefined when nothing needs the count. */
  readonly uses?: Uses;
  /** Undefined or null when tracing is off. */
  readonly tracer?: Tracer | null;
  /**
   * `request`: milliseconds until the headers of the reply must be sent. `heartbeat`: milliseconds of silence in a stream.
   * `streamBuffer`: bytes that may wait for a slow reader.
   */
  readonly limits: { request: number; heartbeat: number; streamBuffer: number };
  /** Called for each request that exceeds its time limit. */
  readonly refused?: CountRefusal;
  readonly clientOf: ClientOf;
  /** Whether each request is logged with one line. */
  readonly logs: boolean;
}

/** The headers of a stream are sent after this time even if the model has not accepted the call yet. */
const STREAM_OPEN_TIMEOUT_MS = 5_000;

const TOKEN_EXPIRED = new ServiceError("unauthorized", "the token has expired: send a new one");
const NO_HEADERS: Record<string, string> = Object.freeze(Object.create(null));
export const NO_WARNINGS: HeaderList = [];

export class Call<S> implements Context<S>, InFlightRequest, SpanOrigin {
  readonly exchange: Exchange;
  readonly operation: string;
  readonly service: S;
  readonly requestId: string;
  /** The headers of CORS: the last ones of every reply. */
  readonly cors: HeaderList;
  readonly #settings: CallSettings<S>;
  readonly #errors: ErrorForm | undefined;
  readonly #path: string;
  readonly #meter: RequestMeter;
  /** When the request started; 0 until the duration is needed, because reading the clock costs time. */
  #started: number;
  user: User | null = null;
  caller: Caller = NOBODY;
  /** Milliseconds since 1970 at which the credentials expire; null when they do not. */
  expires: number | null = null;
  headers: Record<string, string> = NO_HEADERS;
  cutShort: Facts | undefined = undefined;
  replyWith: Context<S>["replyWith"] = undefined;
  warnings: HeaderList = NO_WARNINGS;
  /** Set for the first request with its idempotency key. It is carried out even if its client leaves: a retry gets the reply. */
  keyed: KeyClaim | undefined = undefined;
  /** The headers of the same names; empty when they were not sent, or when tracing is off. */
  traceparent = "";
  tracestate = "";
  charge: Context<S>["charge"] = undefined;
  previous: InFlightRequest | null = null;
  next: InFlightRequest | null = null;
  /** Created when a handler first asks for the signal: most calls end before that. */
  #source: AbortSource | null = null;
  #logger: Logger | null = null;
  #client: Client | null = null;
  #writer: StreamWriter | null = null;
  /** The status of a stream, for the log. */
  #status = 200;
  #idleSince = 0;
  #tracked = false;
  #finished = false;
  /** Whether the reply is being stored for repeated requests, so that a second one is ignored. */
  #isKeeping = false;

  constructor(shared: CallSettings<S>, exchange: Exchange, meter: RequestMeter, cors: HeaderList, errors?: ErrorForm) {
    this.#settings = shared;
    this.exchange = exchange;
    this.operation = meter.operation;
    this.#meter = meter;
    this.service = shared.service;
    this.requestId = exchange.requestId;
    this.cors = cors;
    this.#errors = errors;
    // Copied now: the head can no longer be read when the log line is written.
    this.#path = shared.logs ? exchange.path : "";
    this.#started = meter.durations.begin() || shared.logs ? performance.now() : 0;
    if (shared.logs) this.readClient();
  }

  get signal(): AbortSignal {
    const source = this.#abortSource();
    if (!source.hasSignal) {
      // Every tool that runs adds a listener; without this Node would warn of a leak.
      setMaxListeners(0, source.signal);
    }
    return source.signal;
  }

  get aborts(): Aborts {
    return this.#abortSource();
  }

  #abortSource(): AbortSource {
    this.#source ??= new AbortSource();
    if (this.exchange.closed && this.keyed === undefined && !this.#source.hasSignal)
      this.#source.abort(new Error("the client has left"));
    return this.#source;
  }

  get client(): Client {
    this.#client ??= this.#settings.clientOf(this.exchange.remoteAddress(), (name) => this.headers[name] ?? "");
    return this.#client;
  }

  /** Call this while the head can still be read. */
  readClient(): void {
    this.#client = this.#settings.clientOf(this.exchange.remoteAddress(), (name) => this.exchange.header(name));
  }

  get logger(): Logger {
    const { requestId, user } = this;
    this.#logger ??= this.#settings.logger.child({ requestId, userId: userIdOf(user) ?? undefined });
    return this.#logger;
  }

  get trace(): SpanOrigin | undefined {
    return this.#settings.tracer ? this : undefined;
  }

  begin(name: string, kind: SpanKind, entity: Entity, userId?: string): Span | null {
    const { traceparent = "", tracestate } = this.traceparent === "" ? this.headers : this;
    return this.#settings.tracer?.continue(traceparent, name, kind, entity, userId, tracestate) ?? null;
  }

  get finished(): boolean {
    return this.#finished;
  }

  /** Call this when the answer takes longer than the transport's callback: from then on the client and the time limits are watched. */
  track(): void {
    if (this.#tracked || this.#finished) return;
    this.#tracked = true;
    this.#settings.uses?.enter();
    if (this.#started === 0) this.#started = performance.now();
    this.#idleSince = this.#settings.inFlight.now;
    this.#settings.inFlight.add(this);
    this.exchange.onAbort(() => this.#onClientLeft());
  }

  reply(status: number, headers: HeaderList, body: string | Uint8Array | null): void {
    if (this.#finished || this.#isKeeping) return;
    if (this.keyed === undefined) this.#send(status, headers, body);
    else {
      // Stored before it is sent, so that no client sees a reply that a repeated request would not get.
      const kept = this.#keep(this.keyed, status, headers, body);
      kept.then(() => this.#send(status, headers, body)).catch((thrown) => this.#cut(thrown));
    }
  }

  /** Closes the connection: the reply has a header that HTTP does not allow. */
  #cut(thrown: unknown): void {
    this.logger.error({ err: thrown, operation: this.operation }, messageOf(thrown));
    this.exchange.destroy();
    this.#finish(500);
  }

  #send(status: number, headers: HeaderList, body: string | Uint8Array | null): void {
    this.exchange.reply(status, headers, body);
    this.#finish(status);
  }

  #keep(claim: KeyClaim, status: number, headers: HeaderList, body: KeptReply["body"]): Promise<void> {
    this.#isKeeping = true;
    return claim.settle({ status, headers: headers.slice(0, headers.length - this.cors.length), body });
  }

  /** Answers with a failure: a plain reply, or an event and the end when a stream has begun. */
  fail(thrown: unknown): void {
    if (this.#finished) return;
    if (this.exchange.closed && this.keyed === undefined) {
      this.#finish(499);
      return;
    }
    const error = caught(thrown);
    logError(this.logger, error, { operation: this.operation });
    if (this.#writer?.opened === true) {
      this.#writer.fail(failureText(error, this.requestId));
      this.#finish(this.#status);
      return;
    }
    try {
      this.#replyWithError(error);
    } catch (thrown) {
      // The error carries a header that HTTP does not allow.
      this.logger.error({ err: thrown, operation: this.operation }, messageOf(thrown));
      this.#replyWithError(thrown);
    }
  }

  #replyWithError(error: unknown): void {
    const { status, headers, body } = errorReply(error, this.requestId, this.#errors);
    this.reply(status, [...headers, ...factHeaders(this.replyWith?.facts), ...this.warnings, ...this.cors], body);
  }

  /** The exchange becomes a WebSocket, which ends the request. */
  upgraded(): void {
    this.#finish(101);
  }

  /** Runs a producer of events; the reply ends with it. */
  stream(headers: HeaderList, form: StreamForm, produce: EventProducer): void {
    const writer = new EventWriter(this.exchange, headers, form, this.#settings.limits.streamBuffer);
    this.#startStream(writer);
    this.#endWith(writer, produce(writer));
  }

  /** Like `stream`, for a protocol with its own format. The headers are sent at once unless the reply sets `opensLate`. */
  streamText(headers: HeaderList, reply: TextStream): void {
    // A stream is never in memory as a whole, so that its text cannot be kept. One that opens late may still fail, with a reply.
    if (this.keyed !== undefined && reply.opensLate !== true) void this.#keep(this.keyed, reply.status, headers, null);
    const writer = new TextWriter(this.exchange, headers, reply, this.#settings.limits.streamBuffer);
    this.#startStream(writer);
    this.#status = reply.status;
    if (reply.opensLate !== true) writer.open();
    this.#endWith(writer, reply.stream(writer));
  }

  #startStream(writer: StreamWriter): void {
    this.#writer = writer;
    if (this.expires !== null) writer.expireAt(this.expires, () => this.#end(TOKEN_EXPIRED));
    if (!this.#finished) this.#settings.inFlight.streams++;
  }

  #endWith(writer: StreamWriter, produced: Promise<void>): void {
    const ended = produced.then(
      () => {
        if (this.#finished) return;
        if (!this.exchange.closed) writer.finish();
        this.#finish(this.#status);
      },
      (error) => this.fail(error),
    );
    this.#settings.uses?.during(ended);
    this.charge?.during(ended);
  }

  tick(now: number): void {
    const waited = now - this.#idleSince;
    if (this.#writer?.opened !== true) {
      if (waited >= this.#settings.limits.request) {
        this.#settings.refused?.("server.limits.request");
        this.fail(this.#unavailable(`the request took longer than ${this.#settings.limits.request / 1000} s`));
        this.#source?.abort(new Error("the request took too long"));
      } else if (this.#writer !== null && waited >= STREAM_OPEN_TIMEOUT_MS) {
        this.#writer.open();
        this.#idleSince = now;
      }
      return;
    }
    if (this.#writer.wrote) {
      this.#writer.wrote = false;
      this.#idleSince = now;
    } else if (waited >= this.#settings.limits.heartbeat) {
      this.#writer.heartbeat();
      this.#idleSince = now;
    }
  }

  abandon(): void {
    this.#end(this.#unavailable("the server is stopping"));
  }

  #end(error: ServiceError): void {
    this.fail(error);
    this.#source?.abort(error);
    this.#writer?.leave();
  }

  #unavailable(message: string): ServiceError {
    return unavailable(message, 1, this.cutShort);
  }

  #onClientLeft(): void {
    if (this.keyed !== undefined && this.#writer === null) return;
    this.#finish(499);
    this.#source?.abort(new Error("the client has left"));
    this.#writer?.leave();
  }

  #finish(status: number): void {
    if (this.#finished) return;
    this.#finished = true;
    if (this.#tracked) {
      this.#settings.inFlight.remove(this);
      this.#settings.uses?.leave();
    }
    if (this.#writer !== null) this.#settings.inFlight.streams--;
    const took = this.#started === 0 ? UNTIMED : performance.now() - this.#started;
    this.#meter.finished(status, took, this.#tracked);
    if (!this.#settings.logs) return;
    const { requestId, operation } = this;
    const who = { client: this.client.address, userId: userIdOf(this.user) ?? undefined };
    const what = { method: this.exchange.method, path: this.#path, operation, status };
    const milliseconds = Math.round(took * 1000) / 1000;
    this.#settings.logger.debug({ requestId, ...who, ...what, milliseconds }, "request");
  }
}

// How credentials are checked, and the reply when they are missing or wrong: JSON, or a page for people who use a browser.

/**
 * Sets `user` and `caller` of the call, or throws `unauthorized`. May read the head only before its first await.
 *
 * @param values raw values of the path's parameters
 */
export type Authorize<C> = (call: C, exchange: Exchange, values: readonly string[]) => void | Promise<void>;

/** Fails the call; a browser gets the page of the route, if it has one, in place of a 401. @param accept the header of the request */
export function failAccess<S>(call: Call<S>, error: unknown, page: Route<S>["refusedPage"], accept: string): void {
  const isRefused = error instanceof ServiceError && error.kind === "unauthorized";
  if (page === undefined || !isRefused || !accept.includes("text/html")) {
    call.fail(error);
    return;
  }
  call.track();
  page(call).then(
    (shown) => call.reply(401, pageHeaders(shown, error, call.requestId), shown.body),
    (failure) => call.fail(failure),
  );
}

function pageHeaders({ type = "text/html; charset=utf-8", headers = [] }: PageReply, error: unknown, id: string) {
  const said = errorReply(error, id).headers;
  const kept = said.flatMap((name, place) =>
    place % 2 === 0 && name !== "content-type" ? [name, said[place + 1]!] : [],
  );
  return ["content-type", type, "vary", "accept", ...headers, ...kept];
}

/** Fails with `error`, or with 401 if the caller is not authorized: a refused caller must not learn what else is wrong. */
export function failIfAuthorized<S>(call: Call<S>, allowed: void | Promise<void>, error: unknown): void {
  if (allowed instanceof Promise) {
    call.track();
    allowed.then(
      () => call.fail(error),
      (refused) => call.fail(refused),
    );
  } else call.fail(error);
}
