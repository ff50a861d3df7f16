/**
 * The types of tracing, for code that is traced and for code that stores or sends traces. Without tracing a span is `null`, so that a
 * run that is not sampled costs one comparison.
 */
import { ServiceError } from "../lib/errors.ts";

/** The agent, workflow or tool to which a span belongs. A child has its parent's, unless it is the run of another one. */
export interface Entity {
  readonly type: EntityType;
  readonly id: string;
  readonly name: string;
}

/** What a span is about, in `entity.type`. A tool only if it was executed on its own. */
export type EntityType = "agent" | "workflow" | "tool";

/** A value of an attribute, as OpenTelemetry allows them. */
export type AttributeValue = string | number | boolean | readonly string[] | readonly number[] | readonly boolean[];
/** Attributes by name; undefined counts as missing, so that all spans of a kind have one shape. Frozen, or owned by the span. */
export type Attributes = Record<string, AttributeValue | undefined>;

/** The identity of a span in W3C Trace Context: 32 and 16 lower-case hexadecimal digits. */
export interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
}

/** Status codes of OpenTelemetry: 0 unset, 1 ok, 2 error. */
export interface SpanStatus {
  readonly code: 0 | 1 | 2;
  readonly message?: string;
}

/** Kinds of OpenTelemetry: 0 internal, 1 server, 2 client. */
export type SpanKind = 0 | 1 | 2;

/** Where spans start: at a request, which starts a trace, or at a span, which adds to its trace. */
export interface SpanOrigin {
  /**
   * @param entity of the run. A tool that an agent or a workflow calls belongs to these.
   * @param userId user of the run, if a trace starts; a span knows it already
   * @returns null when the run is not traced
   */
  begin(name: string, kind: SpanKind, entity: Entity, userId?: string): Span | null;
}

/** Work with a start and an end. All methods are synchronous and never throw. */
export interface Span extends SpanContext, SpanOrigin {
  begin(name: string, kind: SpanKind, entity: Entity): Span;
  /** A span below this one, of the same entity. */
  child(name: string, kind: SpanKind): Span;
  /** The header `tracestate` of the caller whose trace this continues; empty without one. */
  readonly tracestate: string;
  /** The attributes set so far. */
  readonly attributes: Attributes | null;
  /** Milliseconds since the start. */
  elapsed(): number;
  /** Adds attributes. The first object is kept without copying, so that the caller must not use it again. */
  set(attributes: Attributes): void;
  /** Records an input or output as an attribute, redacted as `observability.content` says. Redacting happens only once, here. */
  content(name: string, value: unknown): void;
  /** Redacts an input or output, for attributes that are set together; undefined when nothing is to be recorded. */
  clean(value: unknown): string | undefined;
  /** Whether `content` and `clean` record anything: for values that are expensive to compute. */
  readonly wantsContent: boolean;
  /** Whether whole prompts are recorded too: with `full` content. */
  readonly wantsPrompts: boolean;
  event(name: string, attributes?: Attributes): void;
  /** Adds a link to another span that led to this one, perhaps of another trace. */
  link(context: SpanContext): void;
  /** Ends the span; after the first end, this and all other methods do nothing. Default: status unset. */
  finish(status?: SpanStatus): void;
  /**
   * Ends the span with an error.
   *
   * @param type value of `error.type`: one word
   * @param message for people; credentials in it are blanked
   */
  fail(type: string, message: string): void;
}

/*
 * The interface between the tracer and whatever keeps, streams or sends spans: plain data, no behaviour. The tracer fills it in while
 * work runs and hands it over at the end. A sink must copy what it needs before it returns, and keep no span that it was handed.
 * All of it is synchronous and must not throw.
 */

/** Something that happened within a span. */
export interface SpanEvent {
  readonly name: string;
  /** Milliseconds since 1970, with fractions. */
  readonly time: number;
  readonly attributes: Attributes | null;
}

/** The data of a span. All fields are always present, so that every span has one shape. */
export interface SpanData {
  readonly traceId: string;
  /** Sixteen hexadecimal digits: the low 40 bits of the millisecond it started in, then a counter. Spans are found by that time. */
  readonly spanId: string;
  /** For a root that continues a caller's trace, the caller's span. */
  readonly parentSpanId: string | null;
  readonly name: string;
  readonly kind: SpanKind;
  readonly entity: Entity;
  /** Milliseconds since 1970, with fractions. */
  readonly start: number;
  /** Like `start`; 0 while the span is open. */
  end: number;
  /** Already redacted. */
  attributes: Attributes | null;
  status: SpanStatus;
  events: readonly SpanEvent[] | null;
  links: readonly SpanContext[] | null;
}

/** One trace as this process sees it: the data that its spans share. */
export interface TraceData {
  /** 32 hexadecimal digits. Unless the id is foreign, the first twelve are the millisecond in which the trace started. */
  readonly traceId: string;
  /** Whether the id came with a caller's `traceparent`, so that it says nothing about the time. */
  readonly foreign: boolean;
  /** The user of the run, from the token or the request. */
  readonly userId: string | null;
  /** The first span in this process. It may end before its children do. */
  readonly root: SpanData;
  /** Spans that have started and were not handed over yet, in the order of their start; some are open. */
  spans: SpanData[];
  /** How many of `spans` are open. The trace has ended when there are none. */
  open: number;
  /** How many spans were handed over before: 0 for all but long traces. */
  handed: number;
  /** Neighbours in the list of open traces, which only the recorder of traces uses; otherwise null. */
  newer: TraceData | null;
  older: TraceData | null;
}

/** A destination of spans. */
export interface SpanSink {
  /** Whether single spans have listeners: `started` and `ended` are called only while it is true. */
  readonly live: boolean;
  /** Called when a trace has started: its root is open, and in `spans`. */
  began(trace: TraceData): void;
  started(trace: TraceData, span: SpanData): void;
  ended(trace: TraceData, span: SpanData): void;
  /**
   * Receives ended spans in the order of their start: the rest of a trace that has ended (`last`), or those of a long one as soon as
   * there are 256. `trace.handed` does not include them yet. Called with `last` exactly once for every trace.
   */
  take(trace: TraceData, spans: readonly SpanData[], last: boolean): void;
}

// The usual ways to end a span: with a failure, with a cancellation, with a promise.

/** The type for work that was stopped from outside: the client left, it was cancelled, or another branch won. */
const CANCELLED = "cancelled";

export const cancelSpan = (span: Span): void => span.fail(CANCELLED, CANCELLED);

/** Ends the span with an error. The message of an internal error is only for the log. */
export function failSpan(span: Span, thrown: unknown): void {
  if (thrown instanceof ServiceError) span.fail(thrown.kind, thrown.message);
  else span.fail("internal", "internal error");
}

/** Wraps a promise in a span. */
export function spanned<T>(span: Span | null, work: Promise<T>): Promise<T> {
  return span === null ? work : ending(span, work);
}

async function ending<T>(span: Span, work: Promise<T>): Promise<T> {
  try {
    const result = await work;
    span.finish();
    return result;
  } catch (error) {
    failSpan(span, error);
    throw error;
  }
}

/*
 * Names of spans and of their attributes: OpenTelemetry's semantic conventions for generative AI (`semantic-conventions-genai`), and
 * our own names, outside of `gen_ai`, for what they do not cover. `entity.*` are fields of the span.
 */

/** Attributes of tool calls, memory and steps that contain content. */
export const CONTENT = {
  toolArguments: "gen_ai.tool.call.arguments",
  toolResult: "gen_ai.tool.call.result",
  input: "input",
  output: "output",
} as const;

export const agentSpan = (name: string): string => `invoke_agent ${name}`;
export const modelSpan = (model: string): string => `chat ${model}`;
export const toolSpan = (name: string): string => `execute_tool ${name}`;
export const workflowSpan = (name: string): string => `invoke_workflow ${name}`;
export const stepSpan = (type: string, path: string): string => `${type} ${path}`;
export const MEMORY_SPANS = {
  recall: "memory.recall",
  search: "memory.search",
  save: "memory.save",
  workingMemory: "memory.note",
} as const;

/** Token counts; 0 if the provider does not report them. */
interface Tokens {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedInputTokens?: number;
  readonly reasoningTokens?: number;
  /** In US dollars; undefined when the prices are unknown. */
  readonly cost?: number;
}

/** One shared list per reason, so that equal attributes are the same object. */
const REASONS: ReadonlyMap<string, readonly string[]> = new Map(
  ["stop", "length", "content-filter", "tool-calls", "error", "other"].map((reason) => [
    reason,
    Object.freeze([reason]),
  ]),
);
const reasons = (reason: string): readonly string[] => REASONS.get(reason) ?? [reason];

/** Who answers the calls of a model. */
export interface ModelServer {
  /** As the conventions name it, else its key in the manifest. */
  readonly provider: string;
  /** As far as the manifest says. */
  readonly address?: string;
  readonly port?: number;
}

/** A model as the manifest names it, and where it is called. */
export interface ServedModel {
  /** `provider/model`. */
  readonly id: string;
  /** The provider's name of the model. */
  readonly model: string;
  readonly server: ModelServer;
}

interface AgentSpanInput {
  readonly id: string;
  readonly name: string;
  /** The first that it may call. */
  readonly model: ServedModel;
  readonly conversationId: string | undefined;
  /** The redacted messages. */
  readonly input: string | undefined;
}

/** Attributes at the start of a run. Those of its end are included as undefined, so that all such objects have one shape. */
export const agentAttributes = ({ id, name, model, conversationId, input }: AgentSpanInput): Attributes => ({
  "gen_ai.operation.name": "invoke_agent",
  "gen_ai.agent.id": id,
  "gen_ai.agent.name": name,
  "gen_ai.provider.name": model.server.provider,
  "gen_ai.request.model": model.model,
  "gen_ai.conversation.id": conversationId,
  "gen_ai.input.messages": input,
  "gen_ai.output.messages": undefined,
  "gen_ai.response.finish_reasons": undefined,
  "gen_ai.response.model": undefined,
  "gen_ai.usage.input_tokens": undefined,
  "gen_ai.usage.output_tokens": undefined,
  "model.id": model.id,
  "usage.cost": undefined,
  "agent.run.status": undefined,
});

interface AgentSpanOutcome {
  readonly finishReason: string;
  readonly usage: Tokens;
}

/** @param answered the provider's name of the model that answered last @param output the redacted messages */
export function endAgent(
  attributes: Attributes,
  { finishReason, usage }: AgentSpanOutcome,
  answered: string | undefined,
  output: string | undefined,
): void {
  attributes["gen_ai.output.messages"] = output;
  attributes["gen_ai.response.finish_reasons"] = reasons(finishReason);
  attributes["gen_ai.response.model"] = answered;
  attributes["gen_ai.usage.input_tokens"] = usage.promptTokens;
  attributes["gen_ai.usage.output_tokens"] = usage.completionTokens;
  attributes["usage.cost"] = usage.cost;
}

/** The parameters of a model call. */
interface Parameters {
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly maxOutputTokens: number | undefined;
  readonly frequencyPenalty: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly seed: number | undefined;
}

/** What came back from a model. */
interface Answer {
  readonly finishReason: string;
  readonly usage: Tokens;
  /** Undefined when nothing came. */
  readonly seen?: { readonly firstPart: number; readonly responseId: string | undefined } | undefined;
}

interface ModelFacts {
  /** The provider's name of the model that was called first. */
  readonly model: string;
  /** The model that answered; undefined when none did. */
  readonly answered: ServedModel | undefined;
  /** The one that answered, else the one that was called first. */
  readonly served: ServedModel;
  readonly conversationId: string | undefined;
  readonly parameters: Parameters;
  /** Whether a JSON answer was requested. */
  readonly json: boolean;
  readonly answer: Answer;
  /** Redacted, as all that follows. */
  readonly output: string | undefined;
  readonly instructions: string | undefined;
  readonly input: string | undefined;
  readonly stopSequences: readonly string[] | undefined;
}

export const modelAttributes = ({
  model,
  answered,
  served,
  conversationId,
  parameters,
  json,
  answer: { finishReason, usage, seen },
  output,
  instructions,
  input,
  stopSequences,
}: ModelFacts): Attributes => ({
  "gen_ai.operation.name": "chat",
  "gen_ai.provider.name": served.server.provider,
  "gen_ai.conversation.id": conversationId,
  "gen_ai.request.model": model,
  "gen_ai.request.stream": true,
  "gen_ai.request.temperature": parameters.temperature,
  "gen_ai.request.top_p": parameters.topP,
  "gen_ai.request.max_tokens": parameters.maxOutputTokens,
  "gen_ai.request.frequency_penalty": parameters.frequencyPenalty || undefined,
  "gen_ai.request.presence_penalty": parameters.presencePenalty || undefined,
  "gen_ai.request.seed": parameters.seed,
  "gen_ai.request.stop_sequences": stopSequences,
  "gen_ai.system_instructions": instructions,
  "gen_ai.input.messages": input,
  "gen_ai.output.type": json ? "json" : undefined,
  "gen_ai.output.messages": output,
  "gen_ai.response.id": seen?.responseId,
  "gen_ai.response.finish_reasons": reasons(finishReason),
  "gen_ai.response.model": answered?.model,
  "gen_ai.response.time_to_first_chunk": seen?.firstPart,
  "gen_ai.usage.input_tokens": usage.promptTokens,
  "gen_ai.usage.output_tokens": usage.completionTokens,
  "gen_ai.usage.cache_read.input_tokens": usage.cachedInputTokens || undefined,
  "gen_ai.usage.reasoning.output_tokens": usage.reasoningTokens || undefined,
  "server.address": served.server.address,
  "server.port": served.server.port,
  "model.id": served.id,
  "usage.cost": usage.cost,
});

/** @param callId id of the call from the model; undefined when no model made the call */
export const toolAttributes = (name: string, callId: string | undefined): Attributes => ({
  "gen_ai.operation.name": "execute_tool",
  "gen_ai.tool.name": name,
  "gen_ai.tool.type": "function",
  "gen_ai.tool.call.id": callId,
});

export const memoryAttributes = (memory: string, conversationId: string | undefined): Attributes => ({
  "memory.name": memory,
  "gen_ai.conversation.id": conversationId,
});

/** @param executionId undefined for a workflow that is a step of another */
export const workflowAttributes = (
  name: string,
  executionId: string | undefined,
  conversationId: string | undefined,
  occasion: string | undefined,
): Attributes => ({
  "gen_ai.operation.name": "invoke_workflow",
  "gen_ai.workflow.name": name,
  "gen_ai.conversation.id": conversationId,
  "workflow.execution.id": executionId,
  "workflow.execution.occasion": occasion,
});

export const stepAttributes = (path: string, name: string, type: string): Attributes => ({
  "workflow.step.path": path,
  "workflow.step.name": name,
  "workflow.step.type": type,
});

/** The event of a step that is retried. */
export const STEP_RETRY = "workflow.step.retry";
