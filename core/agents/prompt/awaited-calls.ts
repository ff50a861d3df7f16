/** Calls of the last answer that waited for a person's approval: the request brings the answers, or they have been given since. */

type Fields = Readonly<Record<string, unknown>>;

export interface AwaitedCall {
  readonly approvalId: string;
  readonly toolCallId: string;
  readonly toolName: string;
  /** The input that the client sent back. */
  readonly input: unknown;
  /** The answer of the user, as the client reports it; null when it reports none. */
  readonly answer: { readonly approved: boolean; readonly reason?: string } | null;
}

export const NO_CALLS: readonly AwaitedCall[] = [];

/** More calls than a model may make in one step. */
const MAX_CALLS = 128;

/** @param input of the request, which `buildPrompt` has checked */
export function awaitedCalls(input: unknown): readonly AwaitedCall[] {
  const last = Array.isArray(input) ? (input.at(-1) as Fields) : undefined;
  if (last?.role !== "assistant" || !Array.isArray(last.parts)) return NO_CALLS;
  return (last.parts as Fields[]).flatMap(awaitedCall).slice(0, MAX_CALLS);
}

function awaitedCall({ type, toolName, toolCallId, state, input, approval }: Fields): AwaitedCall[] {
  if (state !== "approval-requested" && state !== "approval-responded") return [];
  const { id, approved, reason } = (approval ?? {}) as Fields;
  if (typeof id !== "string") return [];
  const isAnswered = state === "approval-responded" && typeof approved === "boolean";
  const answer = isAnswered ? { approved, ...(typeof reason === "string" && { reason: reason.slice(0, 1000) }) } : null;
  const name = type === "dynamic-tool" ? toolName : String(type).slice("tool-".length);
  return [{ approvalId: id, toolCallId: toolCallId as string, toolName: name as string, input, answer }];
}

/**
 * Ids of the approvals that calls wait for in the answer before the user's message with which the request ends.
 *
 * @param recalled those of the stored conversation before the request
 */
export function questionsLeft(input: unknown, recalled: readonly string[] = []): readonly string[] {
  if (!Array.isArray(input)) return recalled;
  const messages = input as readonly Fields[];
  if (messages.at(-1)?.role !== "user") return [];
  const answer = messages.findLast(({ role }) => role === "assistant");
  return answer === undefined ? recalled : [...recalled, ...questionsIn(answer)];
}

/** Ids of the approvals that calls of a message wait for. */
export const questionsIn = ({ parts }: { readonly parts?: unknown }): string[] =>
  Array.isArray(parts) ? (parts as Fields[]).flatMap(awaitedCall).map(({ approvalId }) => approvalId) : [];
