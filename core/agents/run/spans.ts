/** What is traced of a run: the run itself, its model calls and its tool calls. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { ModelChain } from "../../models/chain.ts";
import { splitModelName } from "../../models/names.ts";
import {
  agentAttributes,
  CONTENT,
  endAgent,
  modelAttributes,
  toolAttributes,
  toolSpan,
} from "../../observability/attributes.ts";
import type { Span } from "../../observability/span.ts";
import { cancelSpan, failSpan } from "../../observability/spans.ts";
import { Aborted } from "./abort.ts";
import type { CompiledAgent } from "./compiled-agent.ts";
import type { CallOptions, ModelStep } from "./model-step.ts";
import type { ToolCall } from "./parts.ts";
import type { PreparedRun, RunPlan, RunResult } from "./run.ts";

/** Names in tool calls are longer only when a model has made them up. */
const MAX_NAME_LENGTH = 128;

/** Begins the span of a run, below its parent span or that of the request. */
export function beginRunSpan(
  { id, name, spanName, entity }: CompiledAgent,
  { plan, parentSpan, input }: PreparedRun,
): void {
  const origin = parentSpan === undefined ? plan.call.trace : parentSpan;
  if (origin === undefined || origin === null) return;
  const { conversationId, userId } = plan.settings.memory;
  const span = origin.begin(spanName, 0, entity, userId);
  if (span === null) return;
  plan.span = span;
  plan.call.span = span;
  const inputContent = span.wantsContent
    ? span.clean(typeof input === "string" ? input : requestMessages(plan))
    : undefined;
  span.set(agentAttributes({ id, name, model: plan.chain.id, conversationId, input: inputContent }));
}

/** The messages of the request, before those of the conversation are added to the prompt. */
function requestMessages({ prompt, hasInstructions }: RunPlan): unknown {
  return prompt.slice(hasInstructions ? 1 : 0).map(({ role, content }: LanguageModelV3Message) => ({
    role,
    content: typeof content === "string" ? content : withoutFiles(content),
  }));
}

/** Files are shown by their type only. */
const withoutFiles = (parts: readonly { type: string; mediaType?: unknown }[]): unknown =>
  parts.map((part) => (part.type === "file" ? { type: "file", mediaType: part.mediaType } : part));

/** How a run failed. */
interface Failure {
  readonly error: unknown;
  readonly cancelled: boolean;
}

export function endRunSpan(span: Span, outcome: RunResult, failure?: Failure): void {
  const output = span.wantsContent ? span.clean(outcome.output ?? outcome.text) : undefined;
  endAgent(span.attributes!, outcome, output);
  if (failure === undefined) span.finish();
  else if (failure.cancelled) cancelSpan(span);
  else failSpan(span, failure.error);
}

/** Begins the span of a model call. Retries and fallbacks are events of the same span. */
export const beginModelCallSpan = (run: Span, chain: ModelChain): Span => run.child(chain.spanName, 2);

/**
 * @param error what was thrown, or null
 * @param answered the model that answered, as `provider/model`; undefined when none has
 */
export function endModelCallSpan(
  span: Span,
  plan: RunPlan,
  parameters: CallOptions,
  step: ModelStep,
  error: unknown,
  answered?: string,
): void {
  const { model } = plan.chain;
  const by = answered === undefined ? undefined : splitModelName(answered);
  const provider = by?.provider ?? plan.chain.provider;
  const json = parameters.responseFormat?.type === "json";
  const { finishReason, usage, firstPart } = step;
  const output = span.wantsContent ? span.clean(stepContent(step)) : undefined;
  const stopSequences = stopSequencesFor(span, parameters);
  const facts = {
    provider,
    model,
    answered: by?.model,
    parameters,
    json,
    finishReason,
    usage,
    firstPart,
    output,
    stopSequences,
  };
  span.set(modelAttributes(facts));
  if (error === null) span.finish();
  else if (error instanceof Aborted || plan.call.signal.aborted) cancelSpan(span);
  else failSpan(span, error);
}

/** Stop sequences are content of the request, as its input is. */
function stopSequencesFor(span: Span, { stopSequences }: CallOptions): string[] | undefined {
  if (stopSequences === undefined || !span.wantsContent) return undefined;
  return stopSequences.map((text) => span.clean(text) ?? "");
}

/** What the model said: an answer of text only is a string. */
function stepContent({ content }: ModelStep): unknown {
  const [first, second] = content;
  if (first === undefined) return undefined;
  return second === undefined && first.type === "text" ? first.text : withoutFiles(content);
}

export function beginToolCallSpan(run: Span, { toolCallId, toolName, input }: ToolCall): Span {
  const name = toolName.slice(0, MAX_NAME_LENGTH);
  const span = run.child(toolSpan(name), 0);
  span.set(toolAttributes(name, toolCallId.slice(0, MAX_NAME_LENGTH)));
  span.content(CONTENT.toolArguments, input);
  return span;
}

export function endToolCallSpan(span: Span, result: unknown): void {
  span.content(CONTENT.toolResult, result);
  span.finish();
}
