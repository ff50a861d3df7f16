/** Calls of the last answer that waited for a person's approval: the request brings the answers, or they have been given since. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { Approval } from "../../../generated/types.ts";
import { shownContext } from "../../approvals/record.ts";
import { canonicalJson } from "../../lib/canonical-json.ts";
import type { Fields } from "../../lib/is-object.ts";
import { CALL_WAITS } from "./model-input.ts";
import { afterLastAnswer } from "./results.ts";

export interface AwaitedCall {
  readonly approvalId: string;
  readonly toolCallId: string;
  readonly toolName: string;
  /** The input that the client sent back. */
  readonly input: unknown;
  /** The answer of the user, as the client reports it; null when it reports none. */
  readonly answer: { readonly approved: boolean; readonly reason?: string } | null;
}

/** What runs is what was asked, but a yes in another context is none. */
export const isInContext = (
  asked: Approval,
  approved: boolean | undefined,
  context: Readonly<Record<string, unknown>>,
): boolean =>
  approved === false ||
  asked.status === "denied" ||
  asked.context === undefined ||
  canonicalJson(asked.context) === canonicalJson(shownContext(context).context);

/** Whether a client means the call that was asked about. */
export const isAskedCall = (
  asked: Approval,
  { toolCallId, toolName, input, answer }: AwaitedCall,
  context: Readonly<Record<string, unknown>>,
): boolean =>
  asked.runId !== undefined &&
  asked.status !== "withdrawn" &&
  asked.toolCallId === toolCallId &&
  asked.toolName === toolName &&
  canonicalJson(asked.input) === canonicalJson(input ?? null) &&
  isInContext(asked, answer?.approved, context);

export const NO_CALLS: readonly AwaitedCall[] = [];

/** More calls than a model may make in one step. */
const MAX_CALLS = 128;

/** @param input of the request, which `buildPrompt` has checked */
export function awaitedCalls(input: unknown): readonly AwaitedCall[] {
  if (!Array.isArray(input)) return NO_CALLS;
  const last = input.at(-1) as Fields | undefined;
  if (last?.role === "tool") return answeredCalls(input);
  if (last?.role !== "assistant") return NO_CALLS;
  if (Array.isArray(last.content)) return answeredCalls(input);
  return Array.isArray(last.parts) ? (last.parts as Fields[]).flatMap(awaitedCall).slice(0, MAX_CALLS) : NO_CALLS;
}

/** Those of the last answer as model messages have them: its requests for approval, and the responses behind it. */
function answeredCalls(messages: readonly Fields[]): readonly AwaitedCall[] {
  const begin = afterLastAnswer(messages);
  const content = messages[begin - 1]?.content;
  if (!Array.isArray(content)) return NO_CALLS;
  const responses = messages
    .slice(begin)
    .flatMap(({ role, content: said }) => (role === "tool" ? (said as readonly Fields[]) : []));
  const isDone = new Set(responses.map(({ type, toolCallId }) => type === "tool-result" && toolCallId));
  const calls = new Map((content as Fields[]).map((part) => [part.type === "tool-call" && part.toolCallId, part]));
  return (content as Fields[])
    .flatMap(({ type, approvalId, toolCallId }): AwaitedCall[] => {
      const call = calls.get(toolCallId as string);
      if (type !== "tool-approval-request" || typeof approvalId !== "string") return [];
      if (call === undefined || isDone.has(toolCallId as string)) return [];
      const said = responses.find((part) => part.type === "tool-approval-response" && part.approvalId === approvalId);
      const { toolName, input } = call;
      const answer = answerOf(said);
      return [{ approvalId, toolCallId: toolCallId as string, toolName: toolName as string, input, answer }];
    })
    .slice(0, MAX_CALLS);
}

function answerOf({ approved, reason }: Fields = {}): AwaitedCall["answer"] {
  if (typeof approved !== "boolean") return null;
  return { approved, ...(typeof reason === "string" && { reason: reason.slice(0, 1000) }) };
}

function awaitedCall({ type, toolName, toolCallId, state, input, approval }: Fields): AwaitedCall[] {
  if (state !== "approval-requested" && state !== "approval-responded") return [];
  const { id, ...said } = (approval ?? {}) as Fields;
  if (typeof id !== "string") return [];
  const answer = state === "approval-responded" ? answerOf(said) : null;
  const name = type === "dynamic-tool" ? toolName : String(type).slice("tool-".length);
  return [{ approvalId: id, toolCallId: toolCallId as string, toolName: name as string, input, answer }];
}

/**
 * Calls that wait in the answer before the user's message with which the request ends.
 *
 * @param recalled those of the stored conversation before the request
 */
export function questionsLeft(input: unknown, recalled = NO_CALLS): readonly AwaitedCall[] {
  if (!Array.isArray(input)) return recalled;
  const messages = input as readonly Fields[];
  if (messages.at(-1)?.role !== "user") return [];
  const answer = messages.findLast(({ role }) => role === "assistant");
  return answer === undefined ? recalled : [...recalled, ...questionsIn(answer)];
}

/** Calls of a message that wait for a person's approval. */
export const questionsIn = ({ parts }: { readonly parts?: unknown }): readonly AwaitedCall[] =>
  Array.isArray(parts) ? (parts as Fields[]).flatMap(awaitedCall) : NO_CALLS;

/** Tells the model of calls that wait no more. @param reasons by the ids of the calls */
export function denyCalls(prompt: readonly LanguageModelV3Message[], reasons: ReadonlyMap<string, string | undefined>) {
  for (const message of prompt)
    if (message.role === "tool")
      message.content = message.content.map((part) => {
        if (part.type !== "tool-result" || part.output.type !== "text" || part.output.value !== CALL_WAITS) return part;
        const reason = reasons.get(part.toolCallId);
        return reason === undefined ? part : { ...part, output: { type: "execution-denied", reason } };
      });
}

/** The parts of a stored message, in which calls whose questions have ended are refused. @param endings why, by question */
export const withDenied = (parts: readonly unknown[], endings: ReadonlyMap<string, string>): unknown[] =>
  (parts as Fields[]).map((part) => {
    const [asked] = awaitedCall(part);
    const reason = asked && endings.get(asked.approvalId);
    if (reason === undefined) return part;
    return { ...part, state: "output-denied", approval: { id: asked!.approvalId, approved: false, reason } };
  });
