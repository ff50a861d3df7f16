/** Runs the tool calls of one step in parallel. Failures are results too: the model is told of them. */
import { messageOf, ServiceError } from "../../lib/errors.ts";
import type { OnToolProgress } from "../../lib/tool-progress.ts";
import { cancelSpan, type Span } from "../../observability/span.ts";
import { toolResultText } from "../../tools/execute.ts";
import { type ApprovalClaim, ApprovalNeeded, ApprovalRefused, notApproved } from "../../tools/tool.ts";
import { CALL_WAITS, type ToolContent } from "../prompt/model-input.ts";
import { resultOutput, toolFailure } from "../prompt/results.ts";
import { clipOutput } from "../prompt/size.ts";
import { modelToolName } from "../prompt/tool-names.ts";
import { type RunRecord, RunWaits, type ToolAnswer } from "./journal.ts";
import type { PendingCall } from "./model-step.ts";
import type { AgentPart, PartSink, ToolResult } from "./parts.ts";
import { resultLimit } from "./prompt-bounds.ts";
import type { RunPlan, RunResult } from "./run.ts";
import { beginToolCallSpan, endToolCallSpan } from "./spans.ts";
import type { RunToolContext } from "./tool-set.ts";

type Answer = Extract<ToolContent[number], { type: "tool-result" }>;
type CalledTool = Pick<Answer, "toolCallId" | "toolName">;
type ApprovalRequest = Extract<AgentPart, { type: "tool-approval-request" }>;

/** A confused model may ask for thousands of calls in one step. */
const MAX_CALLS_PER_STEP = 128;

/**
 * Runs the calls in parallel, but for those whose results are recorded. The sink gets the results as they come, the next prompt in the
 * order of the calls. A call that waits for a person's approval has none: it is in `outcome.approvals`.
 *
 * @param step its number, from 1
 * @param answered is called in the same turn of the event loop in which the sink gets the last result
 * @throws only when the run is aborted.
 */
export async function runToolCalls(
  plan: RunPlan,
  step: number,
  calls: readonly CallToRun[],
  sink: PartSink,
  outcome: RunResult,
  answered: () => Promise<void> | undefined,
): Promise<ToolContent> {
  const { record } = plan;
  const results: ToolResult[] = [];
  // What the request itself brought back to be run is the client's to bring again.
  const waits = step > 0 && record?.journal.waitsAt !== undefined;
  const of: StepCalls = { plan, step, sink, outcome, answered, results, waits, open: calls.length, isShown: false };
  const known = record === null ? null : readAgain(of, calls, record);
  const answers =
    calls.length === 1
      ? [known?.get(calls[0]!) ?? (await answerOf(of, calls[0]!, 0))]
      : await Promise.all(calls.map((call, index) => known?.get(call) ?? answerOf(of, call, index)));
  if (waits && outcome.approvals.length > 0)
    throw new RunWaits(
      outcome.approvals,
      of.isShown
        ? null
        : answers.map((answer, index) => answer ?? answerTo(of, calls[index]!.part, resultOutput(CALL_WAITS))),
    );
  // Skips the places of calls without a result.
  results.forEach((result) => {
    outcome.toolResults.push(result);
  });
  return answers.filter((answer) => answer !== null);
}

/** The calls of one step while they run. */
interface StepCalls {
  readonly plan: RunPlan;
  /** The number of the step, from 1. */
  readonly step: number;
  readonly sink: PartSink;
  readonly outcome: RunResult;
  readonly answered: () => Promise<void> | undefined;
  /** By the places of their calls. */
  readonly results: ToolResult[];
  readonly waits: boolean;
  open: number;
  isShown: boolean;
}

type Told = ToolAnswer | ApprovalRequest;

function tellReader(of: StepCalls, part: Told): Promise<unknown> | undefined {
  const wait = of.sink.part(part);
  if (of.waits && part.type === "tool-approval-request") return wait;
  const last = --of.open === 0 ? of.answered() : undefined;
  return last === undefined ? wait : Promise.all([wait, last]);
}

/** The journal has the result before the next call of the model, and with it that the sink has got it. */
function tell(of: StepCalls, part: Told): Promise<unknown> | undefined {
  const { record } = of.plan;
  if (record === null || part.type === "tool-approval-request") return tellReader(of, part);
  const recorded = record.recordResult(of.step, part);
  return Promise.all([recorded, tellReader(of, part)]);
}

/** The answers that are recorded. */
function readAgain(of: StepCalls, calls: readonly CallToRun[], record: RunRecord): Map<PendingCall, Answer> {
  const known = new Map<PendingCall, Answer>();
  for (const [index, call] of calls.entries()) {
    const { toolCallId, toolName, input } = call.part;
    const approvalId = record.questions.get(toolCallId);
    // For the turn: readers were told.
    if (approvalId !== undefined)
      of.sink.part({ type: "tool-approval-request", approvalId, toolCallId, toolName, input });
    const part = record.results.get(toolCallId);
    if (part === undefined) continue;
    known.set(call, answerTo(of, part, outputOf(part)));
    if (part.type === "tool-result") of.results[index] = part;
    void tellReader(of, part);
  }
  if (of.open > 0) record.goOn();
  return known;
}

async function answerOf(of: StepCalls, call: CallToRun, index: number): Promise<Answer | null> {
  const { plan, outcome } = of;
  const { toolCallId, toolName, input } = call.part;
  const span = plan.span === null ? null : beginToolCallSpan(plan.span, call.part);
  let output: unknown;
  let json: string | undefined;
  try {
    if (index >= MAX_CALLS_PER_STEP) throw new Error(`too many calls in one step: at most ${MAX_CALLS_PER_STEP} run`);
    const confirming = plan.call.confirm();
    if (confirming !== undefined) await confirming;
    const returned = callTool(of, call, span);
    // Without an await for a tool that answers at once, results of such tools stay in the order of their calls.
    output = (returned instanceof Promise ? await returned : returned) ?? null;
    // A result that is not JSON is a failure of the tool, not of the reply that would contain it.
    if (typeof output !== "string") json = toolResultText(toolName, output);
    if (span !== null) endToolCallSpan(span, output);
  } catch (error) {
    if (plan.call.signal.aborted) {
      if (span !== null) cancelSpan(span);
      throw error;
    }
    if (error instanceof RunWaits) {
      if (span !== null) cancelSpan(span);
      outcome.approvals.push(...error.approvals);
      return null;
    }
    const message = messageOf(error);
    span?.fail(error instanceof ServiceError ? error.kind : "tool_failed", message);
    const part = failure(call, error, message);
    const asks = part.type === "tool-approval-request";
    if (asks) {
      const { type: _, ...approval } = part;
      outcome.approvals.push(approval);
      of.isShown = plan.clientApproves;
    }
    const wait = tell(of, part);
    if (wait !== undefined) await wait;
    return asks ? null : answerTo(of, part, outputOf(part));
  }
  const result: ToolResult = { type: "tool-result", toolCallId, toolName, input, output };
  of.results[index] = result;
  const wait = tell(of, result);
  if (wait !== undefined) await wait;
  return answerTo(of, call.part, resultOutput(output), json);
}

/** What the model is shown of it. Results of calls that the request brings back are cut with its prompt. */
function answerTo(
  { plan, step }: StepCalls,
  { toolCallId, toolName }: CalledTool,
  whole: Answer["output"],
  json?: string,
): Answer {
  const output = step === 0 ? whole : clipOutput(whole, resultLimit(plan, toolName), json);
  return { type: "tool-result", toolCallId, toolName: modelToolName(toolName), output };
}

function outputOf(part: ToolAnswer): Answer["output"] {
  if (part.type === "tool-result") return resultOutput(part.output);
  return part.type === "tool-error" ? toolFailure(part.error) : denial(part.reason);
}

/** What the client is told of a call that gave no result. One that waits for a person is left unanswered. */
function failure({ part }: CallToRun, error: unknown, message: string): Told {
  const { toolCallId, toolName, input } = part;
  if (error instanceof ApprovalNeeded)
    return { type: "tool-approval-request", approvalId: error.approvalId, toolCallId, toolName, input };
  if (!(error instanceof ApprovalRefused)) return { type: "tool-error", toolCallId, toolName, input, error: message };
  const { reason } = error;
  return { type: "tool-output-denied", toolCallId, toolName, ...(reason !== undefined && { reason }) };
}

const denial = (reason: string | undefined) =>
  ({ type: "execution-denied", ...(reason !== undefined && { reason }) }) as const;

/**
 * Runs what waited for approval when the request was made, or refuses it, and puts the results into the prompt.
 *
 * @returns whether a call still waits
 */
export async function runAwaitedCalls(plan: RunPlan, sink: PartSink, outcome: RunResult): Promise<boolean> {
  const calls = plan.awaited.map(({ toolCallId, toolName, input, approvalId: id, answer }): CallToRun => {
    const brings = answer === null ? { id } : { id, answer: { ...answer, from: plan.call } };
    return { part: { type: "tool-call", toolCallId, toolName, input }, problem: null, brings };
  });
  const ran = await runToolCalls(plan, 0, calls, sink, outcome, () => undefined);
  const answers = new Map(ran.map((each) => [callIdOf(each), each]));
  for (const { role, content } of plan.prompt) {
    if (role !== "tool") continue;
    for (const [index, part] of content.entries()) {
      const id = callIdOf(part);
      content[index] = answers.get(id) ?? part;
      answers.delete(id);
    }
  }
  // Model messages have nothing in the place of such a result.
  if (answers.size > 0) plan.prompt.push({ role: "tool", content: [...answers.values()] });
  return outcome.approvals.length > 0;
}

const callIdOf = (part: ToolContent[number]): string => (part.type === "tool-result" ? part.toolCallId : "");

/** A call, and the approval that it brings. */
type CallToRun = PendingCall & { readonly brings?: Pick<ApprovalClaim, "id" | "answer"> };

function callTool(of: StepCalls, call: CallToRun, span: Span | null): unknown {
  const { plan } = of;
  const { toolName, input } = call.part;
  const tool = plan.tools.byName.get(toolName);
  if (tool === undefined) {
    const message = unknownToolMessage(plan, toolName);
    throw call.brings === undefined ? new Error(message) : new ApprovalRefused(message, "tool_removed");
  }
  if (call.problem !== null) throw new Error(call.problem);
  if (call.brings !== undefined && tool.inbox === undefined) throw notApproved(toolName);
  return tool.run(input, callContext(of, call, span));
}

function callContext(
  of: StepCalls,
  { part: { toolCallId, toolName }, brings }: CallToRun,
  span: Span | null,
): RunToolContext {
  const { plan, step, sink } = of;
  const { context, memory } = plan.settings;
  const { conversationId } = memory;
  const approval = approvalClaim(of, toolCallId, brings);
  const idempotencyKey = `${plan.id}:${step}:${toolCallId}`;
  const progress = progressTo(sink, toolCallId, toolName);
  return {
    origin: { call: plan.call, context, conversationId, idempotencyKey, approval, span, progress },
    toolCallId,
    usage: of.outcome.usage,
    memory,
    sink,
    depth: plan.depth,
    turn: plan.turn,
    journal: plan.record?.inner(step, toolCallId),
    span,
  };
}

/** Who takes the answer: the run itself, or the client, with what it brings. */
function approvalClaim({ plan, step }: StepCalls, toolCallId: string, brings: CallToRun["brings"]): ApprovalClaim {
  const { record, settings, call } = plan;
  const { userId } = settings.memory;
  const own = { ...brings, agentId: call.agentId, toolCallId };
  if (record === null) return { kind: "chat", userId, ...own };
  const { since, waitsAt } = record.journal;
  const kept = { ...own, record, since, isRepeated: record.answers.has(step) };
  if (brings !== undefined || waitsAt === undefined) return { kind: "chat", userId, ...kept };
  return { kind: "step", userId: userId ?? "", ...waitsAt, ...kept };
}

function unknownToolMessage(plan: RunPlan, name: string): string {
  const names = [...plan.tools.byName.keys()];
  return `there is no tool ${JSON.stringify(name)}; ${names.length === 0 ? "this run has no tools" : `the tools are ${names.join(", ")}`}`;
}

// Tells the reader of a run how far its tool calls are.

/** While the reader is behind, reports are left out: nothing waits for them. */
function progressTo(sink: PartSink, toolCallId: string, toolName: string): OnToolProgress {
  let isBehind = false;
  return (report) => {
    if (isBehind) return;
    const wait = sink.part({ type: "tool-progress", toolCallId, toolName, ...report });
    if (wait === undefined) return;
    isBehind = true;
    wait.then(
      () => {
        isBehind = false;
      },
      // Whoever sends the next part hears of it.
      () => {},
    );
  };
}
