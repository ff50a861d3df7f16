/** What is traced of a run: the run itself, its model calls and its tool calls. */
import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import type { ModelStream } from "../../models/chained-answer.ts";
import type { ModelChain } from "../../models/models.ts";
import { splitModelName } from "../../models/names.ts";
import {
  agentAttributes,
  CONTENT,
  cancelSpan,
  endAgent,
  failSpan,
  modelAttributes,
  type Span,
  toolAttributes,
  toolSpan,
} from "../../observability/span.ts";
import type { CompiledAgent } from "./compiled-agent.ts";
import type { CallOptions, ModelStep } from "./model-step.ts";
import type { ToolCall } from "./parts.ts";
import { Aborted, type PreparedRun, type RunPlan, type RunResult } from "./run.ts";

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
  // Before those of the conversation are added to the prompt.
  const content = span.wantsContent ? written(span, plan.prompt.slice(plan.hasInstructions ? 1 : 0)) : undefined;
  span.set(agentAttributes({ id, name, model: plan.chain.served, conversationId, input: content }));
}

/*
 * Messages as the conventions write them. Content is cut at its end, so that what they require comes first.
 */

type Message = Pick<LanguageModelV3Message, "role" | "content">;
type Part = Exclude<LanguageModelV3Message["content"], string>[number];
type ResultPart = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>["value"][number];

const toParts = (content: Message["content"]): object[] =>
  typeof content === "string" ? [{ type: "text", content }] : content.map(toPart);

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

/** Messages as redacted JSON; undefined when nothing was said. One that is only a text, as most are, is written without a walk. */
function written(span: Span, messages: readonly Message[], reason = ""): string | undefined {
  const [{ role, content } = { role: "user", content: "" }, second] = messages;
  const finish_reason = REASONS[reason] ?? (reason || undefined);
  if (second === undefined) {
    if (content.length === 0) return undefined;
    const [part, more] = content;
    const text = typeof part === "string" ? String(content) : more === undefined && part!.type === "text" && part!.text;
    if (typeof text === "string")
      return `[${JSON.stringify({ role, finish_reason, parts: [{ type: "text", content: span.clean(text) }] })}]`;
  }
  return span.clean(messages.map((each) => ({ role: each.role, finish_reason, parts: toParts(each.content) })));
}

/** @param status undefined for a run that is completed @param error of one that failed */
export function endRunSpan(
  span: Span,
  outcome: RunResult,
  status?: "waiting" | "interrupted" | "cancelled" | "error",
  error?: unknown,
): void {
  const { output, text, model, finishReason } = outcome;
  const content = output === undefined ? text : (span.clean(output) ?? "");
  const said = span.wantsContent ? written(span, [{ role: "assistant", content }], finishReason) : undefined;
  endAgent(span.attributes!, outcome, model === "" ? undefined : splitModelName(model).model, said);
  span.attributes!["agent.run.status"] = status;
  if (status === undefined || status === "waiting") span.finish();
  else if (status === "error") failSpan(span, error);
  else cancelSpan(span);
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
    output: wantsContent ? written(span, [{ role: "assistant", content: step.content }], step.finishReason) : undefined,
    instructions: wantsPrompts && system !== undefined ? span.clean(toParts(system)) : undefined,
    input: wantsPrompts ? written(span, prompt.slice(system === undefined ? 0 : 1)) : undefined,
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
