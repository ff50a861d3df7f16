/** What is traced of a run: the run itself, its model calls and its tool calls. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { ModelChain } from "../../models/chain.ts";
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
import type { AgentCore } from "./compiled-agent.ts";
import type { PreparedRun } from "./execute.ts";
import type { ModelStep } from "./model-step.ts";
import type { ToolCall } from "./parts.ts";
import type { CallOptions, RunPlan, RunResult } from "./run.ts";

/** Characters of a name that a model may have made up. */
const LONGEST_NAME = 128;

/** Begins the run's span, below what the run is part of; with the request where it is part of nothing. */
export function beginRunSpan({ id, name, spanName, entity }: AgentCore, { plan, above, input }: PreparedRun): void {
  const origin = above === undefined ? plan.call.trace : above;
  if (origin === undefined || origin === null) return;
  const { conversationId, userId } = plan.settings.memory;
  const span = origin.begin(spanName, 0, entity, userId);
  if (span === null) return;
  plan.span = span;
  plan.call.span = span;
  const said = span.wantsContent ? span.clean(typeof input === "string" ? input : given(plan)) : undefined;
  span.set(agentAttributes({ id, name, model: plan.chain.id, conversationId, input: said }));
}

/** What the request brought, before the conversation comes into the prompt. */
function given({ prompt, instructed }: RunPlan): unknown {
  return prompt.slice(instructed ? 1 : 0).map(({ role, content }: LanguageModelV3Message) => ({
    role,
    content: typeof content === "string" ? content : withoutFiles(content),
  }));
}

/** Files are told by their type alone. */
const withoutFiles = (parts: readonly { type: string; mediaType?: unknown }[]): unknown =>
  parts.map((part) => (part.type === "file" ? { type: "file", mediaType: part.mediaType } : part));

/** How a run ended that did not come to its end. */
interface Broken {
  readonly error: unknown;
  readonly cancelled: boolean;
}

/** Ends the span of a run that has one. */
export function endRunSpan(span: Span, outcome: RunResult, broken?: Broken): void {
  const { usage, finishReason } = outcome;
  const output = span.wantsContent ? span.clean(outcome.output ?? outcome.text) : undefined;
  endAgent(span.attributes!, finishReason, usage, output);
  if (broken === undefined) span.finish();
  else if (broken.cancelled) cancelSpan(span);
  else failSpan(span, broken.error);
}

/** A call of a model: other tries, and what stands in for it when it fails, are events of the same span. */
export const beginModelCallSpan = (run: Span, chain: ModelChain): Span => run.child(chain.spanName, 2);

/** @param error what was thrown, or null */
export function endModelCallSpan(
  span: Span,
  plan: RunPlan,
  parameters: CallOptions,
  step: ModelStep,
  error: unknown,
): void {
  const { provider, model } = plan.chain;
  const json = parameters.responseFormat?.type === "json";
  const { finishReason, usage, firstPart } = step;
  const output = span.wantsContent ? span.clean(said(step)) : undefined;
  const stopSequences = stopsOf(span, parameters);
  const facts = { provider, model, parameters, json, finishReason, usage, firstPart, output, stopSequences };
  span.set(modelAttributes(facts));
  if (error === null) span.finish();
  else if (error instanceof Aborted || plan.call.signal.aborted) cancelSpan(span);
  else failSpan(span, error);
}

/** Texts of the request: content, as its input is. */
function stopsOf(span: Span, { stopSequences }: CallOptions): string[] | undefined {
  if (stopSequences === undefined || !span.wantsContent) return undefined;
  return stopSequences.map((text) => span.clean(text) ?? "");
}

/** A text that is all that was said stands as it is. */
function said({ content }: ModelStep): unknown {
  const [first, second] = content;
  if (first === undefined) return undefined;
  return second === undefined && first.type === "text" ? first.text : withoutFiles(content);
}

export function beginToolCallSpan(run: Span, { toolCallId, toolName, input }: ToolCall): Span {
  const name = toolName.slice(0, LONGEST_NAME);
  const span = run.child(toolSpan(name), 0);
  span.set(toolAttributes(name, toolCallId.slice(0, LONGEST_NAME)));
  span.content(CONTENT.toolArguments, input);
  return span;
}

export function endToolCallSpan(span: Span, result: unknown): void {
  span.content(CONTENT.toolResult, result);
  span.finish();
}
