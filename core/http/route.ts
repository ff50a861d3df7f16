/** A row of the routes table, and the context that its handler gets. Generic in the service: this folder does not know agents. */
import type { Logger } from "pino";
import type { Schemas } from "../../generated/types.ts";
import type { Caller, User } from "../identity/principal.ts";
import type { Aborts } from "../lib/aborts.ts";
import type { Facts } from "../lib/errors.ts";
import type { EventProducer, TextSink } from "../lib/event-sink.ts";
import type { Text } from "../lib/serialized.ts";
import type { OnToolProgress } from "../lib/tool-progress.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { Client } from "./client.ts";
import type { Validator } from "./decode.ts";
import type { ErrorForm } from "./encode.ts";
import type { Charge, HeaderList } from "./exchange.ts";
import type { Idempotence, KeyedWork } from "./idempotency.ts";
import type { AllowedPages } from "./origin.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
type SchemaId = keyof Schemas;
/** Schemas of request bodies and queries, recognised by their names: only their validators are loaded at every start. */
export type InputSchemaId = Extract<SchemaId, `${string}Request` | `${string}Query`>;

/** Groups of routes with the same default access; `auth/classes.ts` defines what each means in each mode. */
export type AccessGroup =
  | "execution"
  | "management"
  | "docs"
  | "discovery"
  | "observability"
  | "updates"
  | "probe"
  | "custom";

/** What a handler gets beside its input. `signal` is created when first read, and aborts when the client leaves. */
export interface Context<S> {
  readonly service: S;
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Tells whether the call was aborted without creating `signal`. Undefined where the call has a signal anyway. */
  readonly aborts?: Aborts | undefined;
  readonly logger: Logger;
  /** Called with the progress that a running tool reports. */
  readonly progress?: OnToolProgress | undefined;
  /** Where the request comes from. Complete only if the route has `readsHeaders`. */
  readonly client: Client;
  /** The request's headers, or those that the route reads; empty unless the route has `readsHeaders`. */
  readonly headers: Record<string, string>;
  /** Parent of the spans of this request; undefined when tracing is off. */
  readonly trace?: SpanOrigin | undefined;
  /** Set by a handler: what its reply says beside the result, and 202 when the work has only been started. */
  replyWith?: { readonly facts: Facts; readonly status?: 202 } | undefined;
  /** Set by a handler: what the error reply says if the request is cut short, by its time limit or because the service stops. */
  cutShort?: Facts | undefined;
  /** Counts the bytes of its body, or those that a route which `holds` much reads. Work that goes on after the reply enters it. */
  readonly charge?: Charge | undefined;
  /** Set for a request with an `Idempotency-Key` to an `idempotent` route. */
  readonly keyed?: KeyedWork | undefined;
}

export type RouteOutput =
  /** A value in the envelope. `accepted`: the value where the handler answers 202. */
  | { json: SchemaId; status?: 201; accepted?: SchemaId }
  /** A value that is the envelope itself: `success`, `data` and further keys. */
  | { envelope: SchemaId }
  /** A value that is the whole body (probes, `/doc`). */
  | { bare: SchemaId | null; type: string }
  /** Server-sent events: the handler returns an `EventReply`. `others`: further formats by name. `mayBeEmpty`: null becomes 204. */
  | (EventOutput & { others?: Readonly<Record<string, EventOutput>>; mayBeEmpty?: true })
  /** Bytes with a content type of their own. */
  | { page: string }
  /**
   * A protocol with its own format: the handler returns a `RawReply`. Requests that are refused before their body is read get
   * the JSON envelope. `malformed` makes the reply to a body that is not JSON; without it that is the envelope too.
   */
  | {
      /** Content types of its replies, for `/doc`; none: it only fails. */
      raw: readonly string[];
      malformed?: (problem: string) => RawReply;
    };

/**
 * What a stream of events is made of. `failure` makes the event for an error within the stream, `last` is a raw data line at its end. In
 * a `resumable` stream clients can continue after an event by its id, so that a failure gets no id.
 */
export interface EventOutput {
  readonly events: SchemaId;
  readonly headers?: HeaderList;
  readonly last?: string;
  readonly resumable?: true;
  readonly failure: (message: string) => unknown;
}

/** The events of a reply, in the format of the route or in one of its `others`. */
export type EventReply = EventProducer | { readonly form: string; readonly events: EventProducer } | null;

/** Status, headers and body of a `raw` route; CORS headers are added. */
export type RawReply = { status: number; headers: HeaderList; body: string | Uint8Array | null } | TextStream;

/** A streamed reply. Its headers are sent at once unless it `opensLate`; `context.signal` aborts when the client leaves. */
export interface TextStream {
  readonly status: number;
  readonly headers: HeaderList;
  /** Writes the stream; the reply ends when it resolves. If it throws, or the service stops, `failure` is sent. */
  stream(sink: TextSink): Promise<void>;
  /** Set when the headers are sent with the first text only, so that a failure before it gets a reply of its own. */
  readonly opensLate?: true;
  /** Makes the last text of a failed stream. Without it the connection is closed. */
  readonly failure?: (message: string) => string;
  /** Text without meaning, sent after some seconds of silence so that no proxy takes the stream for dead. */
  readonly heartbeat?: string;
}

/** A page or asset: bytes, with its type and caching headers. */
export interface PageReply {
  body: string | Uint8Array;
  type?: string;
  status?: number;
  headers?: HeaderList;
}

type Shape<Id> = Id extends SchemaId ? Schemas[Id] : undefined;

interface Input<Q, B> {
  /** Path parameters by name, percent-decoded. */
  params: Record<string, string>;
  query: Shape<Q>;
  body: Shape<B>;
}

export interface Route<
  S,
  Q extends InputSchemaId | undefined = InputSchemaId | undefined,
  B extends InputSchemaId | undefined = InputSchemaId | undefined,
> {
  /** Such as `agents.generateText`: the operationId in `/doc`, and the label in logs and metrics. */
  operation: string;
  method: Method;
  /** Such as `/agents/:id/text`. A parameter is one segment. The most specific route matches, whatever their order. */
  path: string;
  group: AccessGroup;
  summary: string;
  /** Longer text for `/doc`. */
  description?: string;
  query?: Q;
  body?: B;
  /** Which of `server.limits.body` applies, where that has several. */
  bodyClass?: "generation";
  /** A request without a body is read as `{}`. */
  bodyOptional?: boolean;
  /** For a route without a body: what it holds of what is stored may be large, and is counted by `charge`. */
  holds?: true;
  /** Whether an `Idempotency-Key` is honoured, and how; a function decides by the body. Only for POST with a body. */
  idempotent?: Idempotence | ((body: Shape<B>) => Idempotence);
  /** Validators of a plugin's route, used instead of `query` and `body`. */
  checks?: { query?: Validator; body?: Validator };
  /** The schemas of a plugin's route, for `/doc`. */
  schemas?: { query?: object; body?: object; response?: object };
  /** Kinds of failure that do not follow from the route's form, for `/doc`. */
  failures?: readonly ("not_found" | "conflict" | "method_not_allowed" | "not_acceptable")[];
  /** CORS settings of this route alone, as a plugin wrote them; false switches CORS off for it. */
  cors?: object | false;
  /** Which pages may use the route beside those of the service; others get 403. Without it only CORS decides what pages may read. */
  pages?: AllowedPages;
  /** Copies headers for the handler: all of them, which costs some time, or those with these names. */
  readsHeaders?: boolean | readonly string[];
  /** The page that a browser gets in place of a 401 in JSON. It must reveal nothing about the service. */
  refusedPage?(context: Context<S>): Promise<PageReply>;
  output: RouteOutput;
  /** The format of its failures, and of those of paths that share its first segment; default: the JSON envelope. */
  errors?: ErrorForm;
  handle(input: Input<Q, B>, context: Context<S>): unknown;
}

// A row of the table of WebSockets, and what its handlers get: types only. Generic in the service, as routes are.

/** One open WebSocket. All methods are synchronous, and do nothing once it is closed. */
export interface Peer {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  /** Where the handshake came from. */
  readonly client: Client;
  readonly logger: Logger;
  /** Parent of the spans of requests over this socket; undefined when tracing is off. */
  readonly trace?: SpanOrigin | undefined;
  /** Created when it is first read; aborts when the socket is closed. */
  readonly signal: AbortSignal;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Parsed query, without credentials; one value each. */
  readonly query: Readonly<Record<string, string>>;
  readonly closed: boolean;
  /** Bytes that the peer has not taken yet. */
  readonly buffered: number;
  /**
   * Sends one text message; bytes must be UTF-8. False: the message was dropped, because the peer is too far behind. As soon as
   * it has caught up it is sent `{type:"DROPPED", count}` with the number of dropped messages.
   */
  send(text: Text): boolean;
  /** Sends one text message that must not be dropped. Callers must wait while `buffered` is high. */
  deliver(text: Text): void;
  /** Adds messages that the caller dropped to the number of dropped messages. */
  drop(count: number): void;
  /** Runs `work`; what it sends goes out in one write, if the transport can do that. */
  cork(work: () => void): void;
  /**
   * @param code 1000 (default), another that may be sent (RFC 6455, 7.4), or one of 3000 to 4999
   * @param reason cut off after 123 bytes
   */
  close(code?: number, reason?: string): void;
}

/** What happens on one open socket. A throw, or a promise that rejects, closes it (1011), and is logged. */
export interface SocketHandlers {
  /** Asynchronous work of opening. Messages are handled without waiting for it. */
  ready?: Promise<void> | undefined;
  /** The messages of a peer do not wait for each other: with too many unfinished promises it is closed (1013). */
  message?: ((text: string, charge: Charge) => void | Promise<void>) | undefined;
  /** A message is not handled, because too many bytes are in memory. Default: the peer is closed (1013). */
  refuse?: ((error: unknown) => void | Promise<void>) | undefined;
  /** The peer has read some of what was buffered. */
  drained?: (() => void) | undefined;
  /** The socket is closed, for whatever reason; called once. */
  close?: (() => void | Promise<void>) | undefined;
}

export interface SocketRoute<S> {
  /** Such as `sockets.logs`: the label in logs and metrics. */
  readonly operation: string;
  /** Such as `/ws/logs`. A parameter is one segment. A last segment `**` stands for the path itself and everything below it. */
  readonly path: string;
  readonly group: AccessGroup;
  readonly summary: string;
  /** Descriptions of the query parameters, for the documentation. */
  readonly query?: Readonly<Record<string, string>>;
  /** The format in which a handshake is refused; default: the JSON envelope. */
  readonly errors?: ErrorForm;
  /** Called before the handshake is answered: a ServiceError refuses it (a query that does not parse is `invalid_input`, 400). */
  check?(asked: Pick<Peer, "query" | "params" | "user" | "caller">, service: S): void;
  /** Called once the socket is open. */
  open(peer: Peer, service: S): SocketHandlers;
}

// Chooses the format of failures by path: a protocol may have one of its own.

/** Returns the format of failures at a path; undefined stands for the JSON envelope. */
export type ErrorsAt = (path: string) => ErrorForm | undefined;

/** For a request that no route answers, the format is that of the routes which share the first segment of its path. */
export function errorsByPath(routes: readonly Pick<Route<never>, "path" | "errors">[]): ErrorsAt {
  const forms = new Map(routes.flatMap(({ path, errors }) => (errors === undefined ? [] : [[firstOf(path), errors]])));
  return forms.size === 0 ? () => undefined : (path) => forms.get(firstOf(path));
}

const firstOf = (path: string): string => path.split("/", 2)[1] ?? "";
