/** One request on its way through the pipeline: the context that its handler sees, and how it is answered. */
import { setMaxListeners } from "node:events";
import type { Logger } from "pino";
import { type Caller, NOBODY } from "../identity/caller.ts";
import { type User, userIdOf } from "../identity/user.ts";
import { AbortSource, type Aborts } from "../lib/aborts.ts";
import { caught, type Facts, messageOf, type ServiceError, unavailable } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import { logError } from "../observability/failures.ts";
import type { RequestMeter } from "../observability/metrics/request-meter.ts";
import { UNTIMED } from "../observability/metrics/sampled-durations.ts";
import type { Entity, Span, SpanKind, SpanOrigin } from "../observability/span.ts";
import { type CallSettings, NO_HEADERS, NO_WARNINGS, STREAM_OPEN_TIMEOUT_MS, TOKEN_EXPIRED } from "./call-settings.ts";
import type { Client } from "./client.ts";
import { type ErrorForm, errorReply, factHeaders, failureText } from "./encode.ts";
import { EventWriter, type StreamForm } from "./event-writer.ts";
import type { Exchange, HeaderList } from "./exchange.ts";
import type { KeptReply, KeyClaim } from "./idempotency.ts";
import type { InFlightRequest } from "./in-flight.ts";
import type { Context, TextStream } from "./route.ts";
import type { StreamWriter } from "./stream-writer.ts";
import { TextWriter } from "./text-writer.ts";

export class Call<S> implements Context<S>, InFlightRequest, SpanOrigin {
  readonly exchange: Exchange;
  readonly operation: string;
  readonly service: S;
  readonly requestId: string;
  readonly #settings: CallSettings<S>;
  readonly #cors: HeaderList;
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
    this.#cors = cors;
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
    return claim.settle({ status, headers: headers.slice(0, headers.length - this.#cors.length), body });
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
    this.reply(status, [...headers, ...factHeaders(this.replyWith?.facts), ...this.warnings, ...this.#cors], body);
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
