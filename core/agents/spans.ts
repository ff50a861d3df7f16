/** What is traced of a run: the run itself, its model calls and its tool calls. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import {
  agentAttributes,
  agentSpan,
  CONTENT,
  modelAttributes,
  modelSpan,
  toolAttributes,
  toolSpan,
} from "../observability/attributes.ts";
import type { Span } from "../observability/span.ts";
import { cancelSpan, failSpan } from "../observability/spans.ts";
import { Aborted } from "./abort.ts";
import type { AgentCore } from "./core.ts";
import type { PreparedRun } from "./execute.ts";
import type { ModelChain } from "./model-chain.ts";
import type { ToolCall } from "./parts.ts";
import type { CallOptions, RunOutcome, RunPlan } from "./run.ts";
import type { Step } from "./step.ts";

/** Characters of a name that a model may have made up. */
const LONGEST_NAME = 128;

/** Begins the run's span, below what the run is part of; with the request where it is part of nothing. */
export function beginRun({ name, entity }: AgentCore, { plan, above, input }: PreparedRun): void {
  const origin = above === undefined ? plan.call.trace : above;
  if (origin === undefined || origin === null) return;
  const span = origin.begin(agentSpan(name), 0, entity, plan.settings.memory.userId);
  plan.span = span;
  plan.call.span = span;
  if (span?.wantsContent) span.content(CONTENT.inputMessages, typeof input === "string" ? input : given(plan));
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
export function endRun(core: AgentCore, plan: RunPlan, outcome: RunOutcome, broken?: Broken): void {
  const span = plan.span!;
  const { id, name } = core;
  const { usage, finishReason } = outcome;
  const { conversationId } = plan.settings.memory;
  span.set(agentAttributes({ id, name, model: plan.chain.id, conversationId, finishReason, usage }));
  if (span.wantsContent) span.content(CONTENT.outputMessages, outcome.output ?? outcome.text);
  if (broken === undefined) span.finish();
  else if (broken.cancelled) cancelSpan(span);
  else failSpan(span, broken.error);
}

/** A call of a model: other tries, and what stands in for it when it fails, are events of the same span. */
export const beginModelCall = (run: Span, chain: ModelChain): Span => run.child(modelSpan(chain.model), 2);

/** @param error what was thrown, or null */
export function endModelCall(span: Span, plan: RunPlan, parameters: CallOptions, step: Step, error: unknown): void {
  const { provider, model } = plan.chain;
  const json = parameters.responseFormat?.type === "json";
  const { finishReason, usage, firstPart } = step;
  span.set(modelAttributes({ provider, model, parameters, json, finishReason, usage, firstPart }));
  if (span.wantsContent) span.content(CONTENT.outputMessages, said(step));
  if (error === null) span.finish();
  else if (error instanceof Aborted || plan.call.signal.aborted) cancelSpan(span);
  else failSpan(span, error);
}

/** A text that is all that was said stands as it is. */
function said({ content }: Step): unknown {
  const [first, second] = content;
  if (first === undefined) return undefined;
  return second === undefined && first.type === "text" ? first.text : withoutFiles(content);
}

export function beginToolCall(run: Span, { toolCallId, toolName, input }: ToolCall): Span {
  const name = toolName.slice(0, LONGEST_NAME);
  const span = run.child(toolSpan(name), 0);
  span.set(toolAttributes(name, toolCallId.slice(0, LONGEST_NAME)));
  span.content(CONTENT.toolArguments, input);
  return span;
}

export function endToolCall(span: Span, result: unknown): void {
  span.content(CONTENT.toolResult, result);
  span.finish();
}
