/** One row of the routes table, and what a handler sees. Generic in the service, so that `http` knows no domain. */
import type { Logger } from "pino";
import type { Schemas } from "../../generated/types.ts";
import type { Caller } from "../identity/caller.ts";
import type { User } from "../identity/user.ts";
import type { TextSink } from "../lib/event-sink.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { Client } from "./client.ts";
import type { Validator } from "./decode.ts";
import type { HeaderList } from "./exchange.ts";
import type { AllowedPages } from "./origin.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
type SchemaId = keyof Schemas;
/** Schemas of what requests carry: the only ones whose validators every start loads, so they are told by their names. */
export type InputSchemaId = Extract<SchemaId, `${string}Request` | `${string}Query`>;

/** Access groups of the contract ("Default access by group"); `auth/classes.ts` says what each means in each mode. */
export type AccessGroup =
  | "execution"
  | "management"
  | "docs"
  | "discovery"
  | "observability"
  | "updates"
  | "probe"
  | "custom";

/** What a handler knows beside its input. `signal` is made when first asked for, and aborts when the client leaves. */
export interface Context<S> {
  readonly service: S;
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  readonly signal: AbortSignal;
  readonly logger: Logger;
  /** Where the request comes from. Known where the route has `readsClient` or `readsHeaders`. */
  readonly client: Client;
  /** The request's headers; empty unless the route has `readsHeaders`. */
  readonly headers: Record<string, string>;
  /** What spans of the work begin from; absent where nothing is traced. */
  readonly trace?: SpanOrigin | undefined;
  /** Set by a handler: headers of the answer, should the request be cut short by its time limit or the end of the service. */
  cutHeaders?: Record<string, string> | undefined;
}

export type RouteOutput =
  /** A value in the envelope. */
  | { json: SchemaId; status?: 201 }
  /** A value that is the envelope itself: `success`, `data` and keys beside them. */
  | { envelope: SchemaId }
  /** A value that is the whole body (probes, `/doc`). */
  | { bare: SchemaId | null; type: string }
  /**
   * Server-sent events; `failure` is the in-band event for an error, `last` a raw data line at the end. Of a resumable stream
   * ids are places to go on from, so that a failure, which is none, has no id.
   */
  | {
      events: SchemaId;
      headers?: HeaderList;
      last?: string;
      resumable?: true;
      failure: (message: string) => unknown;
    }
  /** Bytes with a content type of their own. */
  | { page: string }
  /**
   * A protocol with formats of its own: the handler gives a `RawReply`. What is refused before its body is read is the
   * envelope; `malformed` replies to a body that is not JSON, which is the envelope too without it.
   */
  | {
      /** Content types of its replies, for `/doc`. */
      raw: readonly string[];
      malformed?: (problem: string) => RawReply;
    };

/** Status, headers and body as the handler of a `raw` row wants them; those of CORS are added. */
export type RawReply = { status: number; headers: HeaderList; body: string | Uint8Array | null } | TextStream;

/** A reply that goes out as it is made. Its head leaves at once, and `context.signal` aborts when the client leaves. */
export interface TextStream {
  readonly status: number;
  readonly headers: HeaderList;
  /** The reply ends with it. What it throws, and the end of the service, is told with `failure`. */
  stream(sink: TextSink): Promise<void>;
  /** The last text of a stream that fails. Without it the connection is cut. */
  readonly failure?: (message: string) => string;
  /** Text that says nothing, sent after some seconds of silence so that nobody between takes the stream for dead. */
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
  /** `agents.generateText`: operationId, log and metrics label, test title. */
  operation: string;
  method: Method;
  /** `/agents/:id/text`. A parameter is one segment. Specificity decides a match, never order. */
  path: string;
  group: AccessGroup;
  summary: string;
  /** Longer text for `/doc`. */
  description?: string;
  query?: Q;
  body?: B;
  /** A request without a body is read as `{}`. */
  bodyOptional?: boolean;
  /** Validators of a route whose schemas are not ours (a plugin's), in place of `query` and `body`. */
  checks?: { query?: Validator; body?: Validator };
  /** Those schemas, for `/doc`. */
  schemas?: { query?: object; body?: object; response?: object };
  /** Kinds of failure that its form does not tell, for `/doc`. */
  failures?: readonly ("not_found" | "conflict")[];
  /** CORS settings of this route alone, as a plugin wrote them; false switches CORS off for it. */
  cors?: object | false;
  /** Whose pages get through beside those of the service, the rest being 403; left out: CORS alone says what pages may read. */
  pages?: AllowedPages;
  /** Copy all headers for the handler (custom routes); the others do without that cost. */
  readsHeaders?: boolean;
  /** Know the client of the request, which is read from its head. */
  readsClient?: boolean;
  output: RouteOutput;
  handle(input: Input<Q, B>, context: Context<S>): unknown;
}

/** Keeps the types of one row while it stands in a table of many. */
export function typedRoute<
  S,
  const Q extends InputSchemaId | undefined = undefined,
  const B extends InputSchemaId | undefined = undefined,
>(route: Route<S, Q, B>): Route<S> {
  return route as unknown as Route<S>;
}
