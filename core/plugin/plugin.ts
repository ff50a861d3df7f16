/** `#plugin`: everything that a plugin may import. The type of each kind of plugin, and the functions that define one. */
import type { LanguageModelV3StreamPart, LanguageModelV3StreamResult } from "@ai-sdk/provider";
import type { Logger } from "pino";
import type { ContentResult } from "../../generated/types.ts";
import type { PluginSocketPeer, RouteCall } from "../api/custom/route-services.ts";
import type { User } from "../identity/principal.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { PluginStore } from "../storage/store.ts";
import type { ToolCallContext } from "../tools/tool.ts";
import type { Host } from "./host.ts";
import type { AuthProvider, Embedding, ModelProvider, Vectors } from "./instances.ts";

/*  * The TypeScript type of a literal JSON Schema: the type of a valid value, for the keywords that determine one. Anything else is
   `unknown`, so that an author writes a type there instead of getting a wrong one.
 */

/** The type of what a client sends: defaults are not filled in. */
type InputOf<S> = Value<S, never>;

/** The type of `with` in the manifest: keys with a default are always present. */
type ConfigOf<S> = Value<S, { readonly default: unknown }>;

/** `D` matches schemas of properties that are present although not required. Keywords intersect, and a missing one has no effect. */
type Value<S, D> = S extends false ? never : Flat<Const<S> & Enum<S> & OneOfMany<S, D> & AllOf<S, D> & Typed<S, D>>;

type Const<S> = S extends { readonly const: infer V } ? V : unknown;
type Enum<S> = S extends { readonly enum: readonly (infer V)[] } ? V : unknown;
type OneOfMany<S, D> = S extends { readonly anyOf: readonly (infer M)[] } | { readonly oneOf: readonly (infer M)[] }
  ? M extends unknown
    ? Value<M, D>
    : never
  : unknown;
type AllOf<S, D> = S extends { readonly allOf: infer All } ? Every<All, D> : unknown;
type Every<All, D> = All extends readonly [infer First, ...infer Rest] ? Value<First, D> & Every<Rest, D> : unknown;

type Typed<S, D> = S extends { readonly type: infer T }
  ? T extends readonly (infer Each)[]
    ? OfType<Each, S, D>
    : OfType<T, S, D>
  : unknown;

type OfType<T, S, D> = T extends "string"
  ? string
  : T extends "number" | "integer"
    ? number
    : T extends "boolean"
      ? boolean
      : T extends "null"
        ? null
        : T extends "array"
          ? (S extends { readonly items: infer I } ? Value<I, D> : unknown)[]
          : T extends "object"
            ? Properties<S, D>
            : unknown;

type Properties<S, D> = S extends { readonly properties: infer P }
  ? { -readonly [K in Present<P, S, D>]: Value<P[K], D> } & {
      -readonly [K in Exclude<keyof P, Present<P, S, D>>]?: Value<P[K], D>;
    }
  : S extends { readonly additionalProperties: infer A extends object }
    ? Record<string, Value<A, D>>
    : Record<string, unknown>;

/** The keys that a valid object always has: those that are required, and those that have a default if defaults count. */
type Present<P, S, D> =
  | (S extends { readonly required: readonly (infer R)[] } ? Extract<keyof P, R> : never)
  | { [K in keyof P]: [D] extends [never] ? never : P[K] extends D ? K : never }[keyof P];

/** Flattens an intersection of objects into one object, which is easier to read in an editor. */
type Flat<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]: T[K] } : T;

/** Parts in order; never empty, and not to be modified. */
export type PartBatch = readonly LanguageModelV3StreamPart[];

/**
 * The source of the parts of one answer. One reader, one `next` at a time.
 *
 * `next` returns a batch if parts are available, else a promise of it, and `null` at the end. A failure is thrown, or rejects
 * the promise; it is never a part of type `error`. An answer that breaks off is a failure, not an end. `cancel` may be called
 * at any time and more than once: it stops the upstream, and `next` returns null from then on.
 */
export interface PartSource {
  next(): PartBatch | null | Promise<PartBatch | null>;
  cancel(): void;
}

/**
 * What `doStream` of a provider may resolve to in addition to the AI SDK's interface: batches of parts, which save the cost of
 * a ReadableStream. The core then reads `batches` and never touches `stream`, so `stream` should be a getter. Such a provider
 * handles `abortSignal` and the `timeouts` of its settings itself, even while its `doStream` is pending.
 */
export interface BatchedStreamResult extends LanguageModelV3StreamResult {
  readonly batches: PartSource;
}

export type {
  EmbeddingModelV3,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3FinishReason,
  LanguageModelV3GenerateResult,
  LanguageModelV3Prompt,
  LanguageModelV3StreamPart,
  LanguageModelV3StreamResult,
  LanguageModelV3Usage,
} from "@ai-sdk/provider";
export type { Logger } from "pino";
export type { ContentItem, ContentResult } from "../../generated/types.ts";
export type {
  PluginSocketPeer,
  RouteAgents,
  RouteCall,
  RouteMemory,
  RouteTools,
  RouteWorkflows,
} from "../api/custom/route-services.ts";
export type { User } from "../identity/principal.ts";
export { DURATION_PATTERN, parseDuration } from "../lib/duration.ts";
export { CommitConflict, ServiceError } from "../lib/errors.ts";
export type { JsonSchema } from "../lib/json-schema.ts";

export type { Commit, PluginStore as Store, Range, Row } from "../storage/store.ts";
export type { ToolCallContext } from "../tools/tool.ts";
export {
  DEFAULT_CONSOLE_ROUTES,
  DEFAULT_PUBLIC_ROUTES,
  /** The former name, for plugins that import it. */
  DEFAULT_PUBLIC_ROUTES as DEFAULT_LEGACY_PUBLIC_ROUTES,
  PROTECTED_ROUTES,
} from "./access-lists.ts";
export type { Host } from "./host.ts";
export type {
  AuthProvider,
  Embedding,
  ModelPrices,
  ModelProvider,
  ModelSettings,
  ModelTimeouts,
  VectorEntry,
  VectorHit,
  VectorPlace,
  VectorQuery,
  Vectors,
} from "./instances.ts";
export { ModelRefusal, ModelTimeout, ProviderQueueFull } from "./model-errors.ts";
export { compilePluginTemplate, type Template } from "./template.ts";

// biome-ignore lint/suspicious/noExplicitAny: a plugin author writes the type of its own input
type Loose = any;

export interface ToolPlugin<I = Loose, C = Loose> {
  kind: "tool";
  /** Default: the stem of the file. */
  name?: string;
  description?: string;
  tags?: string[];
  /** JSON Schema of the input; default: an object with any keys. */
  parameters?: JsonSchema;
  /** JSON Schema of `with` in the manifest. */
  config?: JsonSchema;
  /** `250ms`, `5s`; default 60s. */
  timeout?: string;
  /** Whether a person must approve a call before it runs; an expression such as `{{ input.amount > 100 }}` asks only in some cases. */
  approval?: boolean | string;
  /** How long the question may be answered; default `24h`. */
  expires?: string;
  /** Who may answer; default: `owner`, the user whose call it is, and the console. */
  approvers?: "owner" | "console";
  /** Set if the tool has no side effects: it may run again after a crash, so a workflow need not store its start first. Default: false. */
  readOnly?: boolean;
  /** Returns the result, or a promise of it. When it throws, the client gets a 500 with the message of the error. */
  execute(input: I, call: ToolPluginCall<C>): unknown;
}

/** `signal` aborts when the client leaves and at the time limit; after that the result is discarded. */
export interface ToolPluginCall<C = Loose> extends ToolCallContext {
  /** The validated `with` of the manifest, including the defaults of the plugin's schema. */
  readonly config: C;
}

/** The values are copies, created when they are read: destructure the object, or pass it on unchanged. */
export interface StepContext {
  /** Output of the previous step. */
  readonly data: Loose;
  /** Input of the workflow. */
  readonly input: Loose;
  /** State that the steps of one execution share, as it was when this step started. */
  readonly state: Loose;
  /** Sets some keys of `state`, for later steps. If this step fails, nothing changes. */
  readonly setState: (change: Record<string, unknown>) => void;
  /** Outputs of earlier steps of the same workflow, by id. */
  readonly steps: Record<string, Loose>;
  /** `context` of the request that started the execution. */
  readonly context: Record<string, unknown>;
  readonly user: User | null;
  /** Inside an `onError`: the failure that it handles. Null elsewhere. */
  readonly error?: StepFailure | null;
  /** The validated `with` of the manifest, including the defaults of the plugin's schema. */
  readonly config: Loose;
  /** `return suspend(reason, data?)` suspends; after a resume the step runs again with `resumeData` set. */
  readonly suspend: (reason: string, data?: unknown) => unknown;
  /** The data of the resume: undefined before the step was resumed; null if the resume had no data. */
  readonly resumeData: Loose;
  /** Aborts at time limits, when the execution is cancelled or the service stops, and when another branch has won. */
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly executionId: string;
  /** `options.conversationId` of the request that started the execution. */
  readonly conversationId?: string;
  /** The same for every try of this step, after a crash too: pass it to anything that must happen only once. */
  readonly idempotencyKey: string;
  /** Number of the try, from 1. */
  readonly attempt: number;
}

export interface StepFailure {
  readonly message: string;
  /** Code of the error from the plugin, the tool or the service; null if it has none. */
  readonly code: string | null;
  /** Path of the failed step in the execution. */
  readonly stepId: string;
}

export interface StepPlugin {
  kind: "step";
  name?: string;
  description?: string;
  /** JSON Schema of `with` in the manifest. */
  config?: JsonSchema;
  /** Set if the step has no side effects: it may run again after a crash, so its start need not be stored first. Default: false. */
  readOnly?: boolean;
  /** Returns the output, or a promise of it. When it throws, the step is retried if the manifest says so; else the execution fails. */
  execute(step: StepContext): unknown;
}

/** Validated with the plugin's schemas, if it has them. */
export interface RouteRequest {
  query: Record<string, Loose>;
  /** Path parameters, percent-decoded. */
  params: Record<string, string>;
  body: Loose;
  user: User | null;
  /** Header names are in lower case. */
  headers: Record<string, string>;
}

export interface RoutePlugin {
  kind: "route";
  name?: string;
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Such as `/orders/:id`. */
  path: string;
  /** For `/doc`. */
  summary?: string;
  /** JSON Schemas; the first two are validated, the third is documentation. */
  query?: JsonSchema;
  body?: JsonSchema;
  response?: JsonSchema;
  /** CORS settings of this route only. */
  cors?: Record<string, unknown> | false;
  /** Returns the `data` of the reply, or a promise of it. Throw a ServiceError for another status than 500. */
  handle(request: RouteRequest, call: RouteCall): unknown;
}

interface Factory<K extends string, T> {
  kind: K;
  name?: string;
  /** JSON Schema of the keys beside `use`, which are validated, and get their defaults, before `create`. */
  config?: JsonSchema;
  create(config: Loose, host: Host): T | Promise<T>;
}

export type AuthPlugin = Factory<"auth", AuthProvider> & { mapUser?(payload: Record<string, unknown>): User };
export type ProviderPlugin = Factory<"provider", ModelProvider>;
export type EmbeddingPlugin = Factory<"embedding", Embedding>;
export type VectorsPlugin = Factory<"vectors", Vectors>;
export type StorePlugin = Factory<"store", PluginStore>;

export interface OriginPlugin {
  kind: "origin";
  name?: string;
  /** Returns the origin to allow, or undefined to reject the given one. */
  origin(origin: string): string | undefined;
}

/** A callback that throws or rejects closes its socket (1011), and the error is logged. */
export interface SocketPlugin {
  kind: "socket";
  name?: string;
  /** Such as `/rooms/:id`. A last segment `**` stands for the path itself and everything below it. */
  path: string;
  /** For the documentation. */
  summary?: string;
  open?(peer: PluginSocketPeer): unknown;
  /** @param data the parsed JSON; a text that is not JSON is passed unchanged */
  message?(peer: PluginSocketPeer, data: Loose): unknown;
  /** Called once when the socket has closed, for whatever reason. */
  close?(peer: PluginSocketPeer): unknown;
}

/** Every kind of plugin by the name in `kind`. The folder is the plural: `plugins/tools/`. */
export interface PluginKinds {
  tool: ToolPlugin;
  step: StepPlugin;
  route: RoutePlugin;
  auth: AuthPlugin;
  provider: ProviderPlugin;
  embedding: EmbeddingPlugin;
  vectors: VectorsPlugin;
  store: StorePlugin;
  origin: OriginPlugin;
  socket: SocketPlugin;
}

export type PluginKind = keyof PluginKinds;
export type Plugin = PluginKinds[PluginKind];

type Definition<T> = T extends unknown ? Omit<T, "kind"> : never;

/** A tool whose input and `config` have the types of its schemas. Without a schema they are untyped. */
interface TypedTool<P, C> extends Omit<ToolPlugin, "kind" | "parameters" | "config" | "execute"> {
  parameters?: P;
  config?: C;
  execute(input: Stated<P, InputOf<P>>, call: ToolPluginCall<Stated<C, ConfigOf<C>>>): unknown;
}
type Stated<S, T> = [S] extends [Unstated] ? Loose : T;
type Unstated = Record<string, never>;

export function defineTool<const P extends JsonSchema = Unstated, const C extends JsonSchema = Unstated>(
  tool: TypedTool<P, C>,
): ToolPlugin<Stated<P, InputOf<P>>, Stated<C, ConfigOf<C>>>;
/** Defines a tool with an explicit type for its input: `defineTool<{ city: string }>({ ... })`. */
export function defineTool<I = Loose>(tool: Definition<ToolPlugin<I>>): ToolPlugin<I>;
export function defineTool(tool: Definition<ToolPlugin>): ToolPlugin {
  return { kind: "tool", ...tool };
}
/** The result of a tool that has pictures or files in it: `return content([{ type: "image-data", data, mediaType: "image/png" }])`. */
export const content = (value: ContentResult["value"]): ContentResult => ({ type: "content", value });

const definer =
  <P extends Plugin>(kind: P["kind"]) =>
  (plugin: Definition<P>): P =>
    ({ kind, ...plugin }) as unknown as P;

export const defineStep = definer<StepPlugin>("step");
export const defineRoute = definer<RoutePlugin>("route");
export const defineAuth = definer<AuthPlugin>("auth");
export const defineProvider = definer<ProviderPlugin>("provider");
export const defineEmbedding = definer<EmbeddingPlugin>("embedding");
export const defineVectors = definer<VectorsPlugin>("vectors");
export const defineStore = definer<StorePlugin>("store");
export const defineOrigin = definer<OriginPlugin>("origin");
export const defineSocket = definer<SocketPlugin>("socket");
