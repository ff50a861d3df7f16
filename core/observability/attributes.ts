/**
 * Names of spans and of their attributes: OpenTelemetry's semantic conventions for generative AI (`semantic-conventions-genai`), and
 * our own names, outside of `gen_ai`, for what they do not cover. `entity.*` are fields of the span (sink.ts).
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
