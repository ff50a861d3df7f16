/**
 * Names of spans and of their attributes: OpenTelemetry's semantic conventions for generative AI, from `semantic-conventions` 1.41, and
 * our own names for what they do not cover. `entity.*` are fields of the span (sink.ts).
 */
import type { Attributes } from "./span.ts";

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

interface AgentSpanInput {
  readonly id: string;
  readonly name: string;
  /** `provider/model` of the first model that it may call. */
  readonly model: string;
  readonly conversationId: string | undefined;
  /** The redacted input. */
  readonly input: string | undefined;
}

/** Attributes at the start of a run. Those of its end are included as undefined, so that all such objects have one shape. */
export const agentAttributes = ({ id, name, model, conversationId, input }: AgentSpanInput): Attributes => ({
  "gen_ai.operation.name": "invoke_agent",
  "gen_ai.agent.id": id,
  "gen_ai.agent.name": name,
  "gen_ai.request.model": model,
  "gen_ai.conversation.id": conversationId,
  "gen_ai.input.messages": input,
  "gen_ai.output.messages": undefined,
  "gen_ai.response.finish_reasons": undefined,
  "gen_ai.response.model": undefined,
  "gen_ai.usage.input_tokens": undefined,
  "gen_ai.usage.output_tokens": undefined,
  "gen_ai.usage.cost": undefined,
});

interface AgentSpanOutcome {
  /** The model that answered last, as `provider/model`; empty when none has answered. */
  readonly model: string;
  readonly finishReason: string;
  readonly usage: Tokens;
}

/** @param output redacted */
export function endAgent(
  attributes: Attributes,
  { model, finishReason, usage }: AgentSpanOutcome,
  output: string | undefined,
): void {
  attributes["gen_ai.output.messages"] = output;
  attributes["gen_ai.response.finish_reasons"] = reasons(finishReason);
  attributes["gen_ai.response.model"] = model || undefined;
  attributes["gen_ai.usage.input_tokens"] = usage.promptTokens;
  attributes["gen_ai.usage.output_tokens"] = usage.completionTokens;
  attributes["gen_ai.usage.cost"] = usage.cost;
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

interface ModelFacts {
  /** Provider of the model that answered, else of the first that was called. */
  readonly provider: string;
  readonly model: string;
  /** The provider's name of the model that answered; undefined when none did. */
  readonly answered: string | undefined;
  readonly parameters: Parameters;
  /** Whether a JSON answer was requested. */
  readonly json: boolean;
  readonly finishReason: string;
  readonly usage: Tokens;
  /** Seconds until the first part of the answer; undefined when there was none. */
  readonly firstPart: number | undefined;
  /** The redacted output. */
  readonly output: string | undefined;
  /** The redacted stop sequences. */
  readonly stopSequences: readonly string[] | undefined;
}

export const modelAttributes = ({
  provider,
  model,
  answered,
  parameters,
  json,
  stopSequences,
  finishReason,
  usage,
  firstPart,
  output,
}: ModelFacts): Attributes => ({
  "gen_ai.operation.name": "chat",
  "gen_ai.provider.name": provider,
  "gen_ai.request.model": model,
  "gen_ai.request.temperature": parameters.temperature,
  "gen_ai.request.top_p": parameters.topP,
  "gen_ai.request.max_tokens": parameters.maxOutputTokens,
  "gen_ai.request.frequency_penalty": parameters.frequencyPenalty || undefined,
  "gen_ai.request.presence_penalty": parameters.presencePenalty || undefined,
  "gen_ai.request.seed": parameters.seed,
  "gen_ai.request.stop_sequences": stopSequences,
  "gen_ai.output.type": json ? "json" : undefined,
  "gen_ai.output.messages": output,
  "gen_ai.response.finish_reasons": reasons(finishReason),
  "gen_ai.response.model": answered,
  "gen_ai.response.time_to_first_chunk": firstPart,
  "gen_ai.usage.input_tokens": usage.promptTokens,
  "gen_ai.usage.output_tokens": usage.completionTokens,
  "gen_ai.usage.cache_read.input_tokens": usage.cachedInputTokens || undefined,
  "gen_ai.usage.reasoning.output_tokens": usage.reasoningTokens || undefined,
  "gen_ai.usage.cost": usage.cost,
});

export const MODEL_EVENTS = { retry: "gen_ai.retry", fallback: "gen_ai.fallback", warning: "gen_ai.warning" } as const;

/** @param attempt with the same model, from 1; @param wait milliseconds before the next one */
export const retryAttributes = (model: string, reason: string, attempt: number, wait: number): Attributes => ({
  "gen_ai.request.model": model,
  "error.type": reason,
  "retry.attempt": attempt,
  "retry.delay": wait,
});

export const fallbackAttributes = (model: string, reason: string, next: string): Attributes => ({
  "gen_ai.request.model": model,
  "error.type": reason,
  "fallback.model": next,
});

export const warningAttributes = (model: string, message: string): Attributes => ({
  "gen_ai.request.model": model,
  "warning.message": message,
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
