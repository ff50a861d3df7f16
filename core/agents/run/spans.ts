/** What is traced of a run: the run itself, its model calls and its tool calls. */
import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import type { ModelChain } from "../../models/chain.ts";
import type { ModelStream } from "../../models/chained-answer.ts";
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
export function beginRunSpan({ id, name, spanName, entity }: CompiledAgent, { plan, parentSpan }: PreparedRun): void {
  const origin = parentSpan === undefined ? plan.call.trace : parentSpan;
  if (origin === undefined || origin === null) return;
  const { conversationId, userId } = plan.settings.memory;
  const span = origin.begin(spanName, 0, entity, userId);
  if (span === null) return;
  plan.span = span;
  plan.call.span = span;
  const content = span.wantsContent ? span.clean(requestMessages(plan)) : undefined;
  span.set(agentAttributes({ id, name, model: plan.chain.served, conversationId, input: content }));
}

/** The messages of the request, before those of the conversation are added to the prompt. */
const requestMessages = ({ prompt, hasInstructions }: RunPlan): unknown[] =>
  prompt.slice(hasInstructions ? 1 : 0).map(toMessage);

/*
 * Messages as the conventions write them. Content is cut at its end, so that what they require comes first.
 */

type Message = Pick<LanguageModelV3Message, "role" | "content">;
type Part = Exclude<LanguageModelV3Message["content"], string>[number];
type ResultPart = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>["value"][number];

const toParts = (content: Message["content"]): object[] =>
  typeof content === "string" ? [{ type: "text", content }] : content.map(toPart);

const toMessage = ({ role, content }: Message) => ({ role, parts: toParts(content) });

/** Files are shown by their type only. */
function toPart(part: Part | ResultPart): object {
  switch (part.type) {
    case "text":
    case "reasoning":
      return { type: part.type, content: part.text };
    case "tool-call":
      return { type: "tool_call", id: part.toolCallId, name: part.toolName, arguments: part.input };
    case "tool-result":
      return { type: "tool_call_response", id: part.toolCallId, response: toResponse(part.output) };
    default: {
      const mime = "mediaType" in part ? part.mediaType : undefined;
      if (mime === undefined) return { type: part.type };
      return { type: "blob", modality: mime.split("/", 1)[0], content: "", mime_type: mime };
    }
  }
}

function toResponse(output: LanguageModelV3ToolResultOutput): unknown {
  if (output.type === "content") return output.value.map(toPart);
  return output.type === "execution-denied" ? (output.reason ?? output.type) : output.value;
}

/** Reasons that messages name differently. */
const REASONS: Readonly<Record<string, string>> = { "content-filter": "content_filter", "tool-calls": "tool_call" };

/** What was said; undefined when nothing was. */
const answerOf = (span: Span, content: Message["content"], reason: string): string | undefined =>
  content.length === 0
    ? undefined
    : span.clean([{ role: "assistant", finish_reason: REASONS[reason] ?? reason, parts: toParts(content) }]);

/** How a run failed. */
interface Failure {
  readonly error: unknown;
  readonly cancelled: boolean;
}

export function endRunSpan(span: Span, outcome: RunResult, failure?: Failure): void {
  const { output, text, model, finishReason } = outcome;
  const said = output === undefined ? text : (span.clean(output) ?? "");
  const content = span.wantsContent ? answerOf(span, said, finishReason) : undefined;
  endAgent(span.attributes!, outcome, model === "" ? undefined : splitModelName(model).model, content);
  if (failure === undefined) span.finish();
  else if (failure.cancelled) cancelSpan(span);
  else failSpan(span, failure.error);
}

/** Begins the span of a model call. Retries and fallbacks are events of the same span. */
export const beginModelCallSpan = (run: Span, chain: ModelChain): Span => run.child(chain.spanName, 2);

/**
 * @param error what was thrown, or null
 * @param stream of the model that answered; undefined when none has
 */
export function endModelCallSpan(
  span: Span,
  plan: RunPlan,
  parameters: CallOptions,
  step: ModelStep,
  error: unknown,
  stream?: ModelStream,
): void {
  const { served: first } = plan.chain;
  const answered = stream?.served;
  const { prompt } = parameters;
  const system = prompt[0]?.role === "system" ? prompt[0].content : undefined;
  const { wantsContent, wantsPrompts } = span;
  const facts = {
    model: first.model,
    answered,
    served: answered ?? first,
    conversationId: plan.settings.memory.conversationId,
    parameters,
    json: parameters.responseFormat?.type === "json",
    answer: step,
    output: wantsContent ? answerOf(span, step.content, step.finishReason) : undefined,
    instructions: wantsPrompts && system !== undefined ? span.clean(toParts(system)) : undefined,
    input: wantsPrompts ? span.clean(prompt.slice(system === undefined ? 0 : 1).map(toMessage)) : undefined,
    // Content of the request, as its input is.
    stopSequences: wantsContent ? parameters.stopSequences?.map((text) => span.clean(text) ?? "") : undefined,
  };
  span.set(modelAttributes(facts));
  if (error === null) span.finish();
  else if (error instanceof Aborted || plan.call.signal.aborted) cancelSpan(span);
  else failSpan(span, error);
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
