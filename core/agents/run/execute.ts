/** From a request to a finished run: plans it, runs it, and records how it ended. */
import type { GenerateOptions } from "../../../generated/types.ts";
import { actingUser, type Principal, principalOf, userIdOf } from "../../identity/principal.ts";
import { invalid, ServiceError } from "../../lib/errors.ts";
import { logFailedRun } from "../../observability/failures.ts";
import type { Span } from "../../observability/span.ts";
import type { AgentMemory, TurnRequest } from "../conversation/agent-memory.ts";
import type { Turn } from "../conversation/turn.ts";
import type { HistoryRun } from "../history/history.ts";
import { awaitedCalls, denyCalls, NO_CALLS, questionsLeft } from "../prompt/awaited-calls.ts";
import { buildPrompt } from "../prompt/input.ts";
import { afterLastAnswer, requireCalls } from "../prompt/results.ts";
import type { KeptRequest } from "../run-requests.ts";
import { keepAllowed } from "./allowed-options.ts";
import { type RunCall, RunCaller } from "./caller.ts";
import type { CompiledAgent } from "./compiled-agent.ts";
import { type RunJournal, RunRecord, RunWaits } from "./journal.ts";
import { runLoop } from "./loop.ts";
import {
  jsonOutput,
  type OutputSpec,
  objectOutput,
  type RunSettings,
  resolveOptions,
  resolveOutput,
  schemaRateKey,
} from "./options.ts";
import { NULL_SINK, type PartSink } from "./parts.ts";
import { checkBounds, checkInputBounds } from "./prompt-bounds.ts";
import {
  type EditedMemory,
  emptyRunResult,
  type PreparedRun,
  type RunPlan,
  type RunResult,
  wasAborted,
} from "./run.ts";
import { addSources } from "./sources.ts";
import { beginRunSpan, endRunSpan } from "./spans.ts";
import { NO_TOOLS, withClientTools } from "./tool-set.ts";

export interface RunRequest extends KeptRequest {
  /** Replaces `options.output`; the run keeps its tools. */
  output?: OutputSpec | undefined;
  /** Where the turn is stored, when that is not the conversation itself: a sub-agent has a thread of its own beside it. */
  thread?: string | undefined;
  /** How many agents have delegated down to this one. */
  depth?: number;
  /** Where it records what it has done, for a run that outlives its process. */
  journal?: RunJournal | undefined;
  /** The parent of the run's span; null when that is not traced. Default: the span of the request. */
  parentSpan?: Span | null;
}

/** @throws ServiceError `invalid_input` for an invalid request */
export function prepareRun(agent: CompiledAgent, request: RunRequest, call: RunCall): PreparedRun {
  const principal = principalOf(call, agent.isolated);
  const settings = withEffectiveUser(principal, requestSettings(agent, request), request.options);
  const scope = { context: settings.context, user: call.user };
  const { schema, json } = request;
  const output =
    schema !== undefined
      ? objectOutput(agent.prepareSchema(schema, "schema", schemaRateKey(call)))
      : (request.output ?? (json && jsonOutput(agent, json, call)) ?? resolveOutput(settings.output, agent, call));
  const instructions = agent.instructions(scope);
  const list = agent.sources?.(scope) ?? null;
  const sources = list === null ? null : { instructions, list };
  const id = request.runId ?? request.options?.runId ?? agent.newRunId();
  const { runsTools = false, approves = runsTools, clientTools } = request;
  const awaited = approves ? awaitedCalls(request.input) : NO_CALLS;
  const record = request.journal === undefined ? null : new RunRecord(request.journal, awaited.length > 0);
  const chain = agent.chain(scope);
  const caller = new RunCaller(call, agent.id, settings.memory);
  const prompt = buildPrompt(instructions, request.input, request.field);
  checkInputBounds(agent.bounds, request.input, request.field);
  const turn =
    agent.memory === null
      ? null
      : startTurn(
          agent.memory,
          request,
          { runId: id, settings: turnSettings(settings, request), principal, record },
          caller,
        );
  checkResults(request, turn !== null);
  const canUpdateWorkingMemory = turn?.writable === true && schema === undefined;
  const tools = schema === undefined ? agent.tools(scope) : NO_TOOLS;
  const runTools = canUpdateWorkingMemory ? agent.memory!.tools(tools) : tools;
  const plan: RunPlan = {
    id,
    chain,
    prompt,
    tools: clientTools === undefined ? runTools : withClientTools(runTools, clientTools, agent, call),
    toolChoice: request.toolChoice,
    settings,
    output,
    call: caller,
    awaited,
    clientApproves: approves,
    clientRunsTools: runsTools,
    depth: request.depth ?? 0,
    toolOutput: agent.toolOutput,
    contextTokens: agent.memory?.contextTokens,
    turn,
    record,
    hasInstructions: instructions !== "" || sources !== null,
    canUpdateWorkingMemory,
    span: null,
  };
  const { input, parentSpan, workingMemory } = request;
  return { plan, sources, input, parentSpan, workingMemory };
}

/** Results after the last answer of the input may belong to calls that the conversation has. */
function checkResults({ input, field = "input" }: RunRequest, hasConversation: boolean): void {
  if (!Array.isArray(input)) return;
  requireCalls(input, field, hasConversation ? afterLastAnswer(input) : input.length);
}

type TurnOwner = Pick<TurnRequest, "runId" | "settings" | "principal" | "record">;

function startTurn(memory: AgentMemory, request: RunRequest, owner: TurnOwner, call: RunCaller) {
  const { input, clientKnowsMessageId = false, depth = 0 } = request;
  return memory.turn({ ...owner, input, clientKnowsMessageId, isDelegated: depth > 0 }, call);
}

const turnSettings = ({ memory }: RunSettings, { thread }: RunRequest) =>
  thread === undefined ? memory : { ...memory, conversationId: thread };

/** Sets the user of the run: that of the token if there is one. An anonymous run has none. */
function withEffectiveUser(
  principal: Principal,
  settings: RunSettings,
  options: GenerateOptions | undefined,
): RunSettings {
  // It must be the token's user even when `memory.userId` takes precedence.
  if (options?.userId !== undefined) actingUser(principal, options.userId);
  const requestedUserId = settings.memory.userId;
  const userId = actingUser(principal, requestedUserId) || undefined;
  return userId === requestedUserId ? settings : { ...settings, memory: { ...settings.memory, userId } };
}

function requestSettings(agent: CompiledAgent, request: RunRequest): RunSettings {
  if (request.options !== undefined) checkBounds(agent.bounds, request.options);
  const settings = resolveOptions(request.options, agent.defaults);
  const { conversationId } = request;
  if (conversationId === undefined || settings.memory.conversationId !== undefined) return settings;
  return { ...settings, memory: { ...settings.memory, conversationId } };
}

/**
 * Runs to the end. A run that is aborted throws whatever aborted it.
 *
 * @param outcome filled on the way, for callers that need it when the run fails as well
 * @throws RunWaits when a run with a journal waits for approval; ServiceError when the model fails, or when the conversation is busy, another user's, or cannot be read or stored; any
 * error when the run was aborted
 */
export async function execute(
  agent: CompiledAgent,
  prepared: PreparedRun,
  sink: PartSink = NULL_SINK,
  outcome: RunResult = emptyRunResult(),
): Promise<RunResult> {
  const { plan } = prepared;
  const { turn, record } = plan;
  beginRunSpan(agent, prepared);
  if (turn !== null || prepared.sources !== null) await completePrompt(agent, prepared, outcome);
  const superseded = supersede(agent, prepared);
  if (superseded !== undefined) await superseded;
  keepAllowed(agent.bounds.providerOptions, plan.prompt);
  // A run with a journal is written when it has ended: until then another process may go on with it.
  const entry = record === null ? beginEntry(agent, prepared) : null;
  agent.activity.enter();
  try {
    const reader = record === null ? sink : record.sink(sink);
    await runLoop(plan, turn === null ? reader : turn.record(reader), outcome);
    agent.runs?.count("completed");
    const wait = agent.history.end(entry ?? beginEntry(agent, prepared), "completed", outcome);
    if (wait !== undefined) await wait;
    if (plan.span !== null) endRunSpan(plan.span, outcome);
    if (turn !== null) sumUp(agent, turn);
    return outcome;
  } catch (error) {
    if (error instanceof RunWaits) {
      if (turn !== null) {
        await turn.pause();
        Object.assign(outcome, turn.ids);
      }
      if (plan.span !== null) endRunSpan(plan.span, outcome, "waiting");
      throw error;
    }
    const status = wasAborted(error, plan.call, sink) ? "cancelled" : "error";
    if (record?.journal.isInterrupted !== true) {
      if (record !== null) await withdrawAsked(agent, outcome, status === "cancelled" ? status : "ended");
      agent.runs?.count(status);
      if (turn !== null) await turn.abandon(status);
      agent.history.end(entry ?? beginEntry(agent, prepared), status, outcome, status === "error" ? error : undefined);
    }
    endFailed(plan, outcome, error, status);
    throw plan.call.interruption ?? error;
  } finally {
    const left = turn?.leave();
    if (left !== undefined) await left;
    agent.activity.leave();
  }
}

/** Its line in the log, and the end of its trace. What another process goes on with has not failed. */
function endFailed(plan: RunPlan, outcome: RunResult, error: unknown, status: "cancelled" | "error"): void {
  const isInterrupted = plan.record?.journal.isInterrupted === true;
  if (status === "error" && !isInterrupted) logFailedRun(plan.call.logger, error, plan.id);
  if (plan.span !== null) endRunSpan(plan.span, outcome, isInterrupted ? "interrupted" : status, error);
}

function beginEntry({ history }: CompiledAgent, { plan, input }: PreparedRun): HistoryRun {
  return history.begin(plan.id, input, plan.settings.memory, plan.span?.traceId, plan.record?.journal.begunAt);
}

/** Withdraws what the user has left open with a further message. Calls that will not run are called so from then on. */
function supersede({ inbox }: CompiledAgent, { plan, input }: PreparedRun): Promise<void> | undefined {
  const { turn, record, call, depth, settings, prompt } = plan;
  const left = depth > 0 || inbox === undefined ? [] : questionsLeft(input, turn?.asked);
  if (left.length === 0) return undefined;
  const userId = settings.memory.userId ?? userIdOf(call.user) ?? "";
  return (async () => {
    const ids = left.map(({ approvalId }) => approvalId);
    // What stands there after a crash may be of those that have begun since. Whose client cannot answer says nothing else instead.
    const isInstead = record?.journal.isRepeated !== true && (plan.clientApproves || !plan.clientRunsTools);
    if (isInstead) await inbox!.supersede(ids, call.agentId, userId);
    const endings = await inbox!.endings(ids, userId);
    if (endings.size === 0) return;
    denyCalls(prompt, new Map(left.map(({ approvalId, toolCallId }) => [toolCallId, endings.get(approvalId)])));
    await turn?.deny(endings);
  })();
}

/** Withdraws what a kept run has asked that cannot go on. */
async function withdrawAsked(
  { inbox }: CompiledAgent,
  { approvals }: RunResult,
  reason: "cancelled" | "ended",
): Promise<void> {
  const ids = approvals.map(({ approvalId }) => approvalId);
  if (ids.length > 0) await inbox?.withdraw(ids, reason);
}

/** Sums up the conversation after the reply. A shutdown waits for it as for a run. */
function sumUp({ memory, activity }: CompiledAgent, turn: Turn): void {
  const summing = memory?.summarize?.(turn);
  if (summing === undefined) return;
  activity.enter();
  void summing.finally(() => activity.leave());
}

/** Adds what has to be read: texts of MCP servers, and the conversation. A run that fails here is not in the history, only in its trace. */
async function completePrompt(agent: CompiledAgent, prepared: PreparedRun, outcome: RunResult): Promise<void> {
  const { plan, sources, workingMemory } = prepared;
  const { turn } = plan;
  if (turn !== null) turn.span = plan.span;
  try {
    if (sources !== null) await addSources(plan, sources, agent.reader);
    if (turn === null) return;
    const wait = turn.begin();
    if (wait !== undefined) await wait;
    // Once the model has answered it is stored, and tools may have changed it since.
    const isStored = plan.record?.answers.get(1) !== undefined;
    if (workingMemory !== undefined && turn.writable && !isStored) await storeEdited(turn, workingMemory);
    await agent.memory!.addToPrompt(plan, turn);
  } catch (error) {
    await turn?.leave();
    endFailed(plan, outcome, error, plan.call.signal.aborted ? "cancelled" : "error");
    throw error;
  }
}

async function storeEdited(turn: Turn, { field, content }: EditedMemory): Promise<void> {
  try {
    await turn.updateWorkingMemory(content, "replace");
  } catch (error) {
    throw error instanceof ServiceError && error.kind === "invalid_input"
      ? invalid(`${field}: ${error.message}`)
      : error;
  }
}

/** Runs for a stream. An aborted run is not an error: its stream ends with the part `abort`. */
export async function executeStream(agent: CompiledAgent, prepared: PreparedRun, sink: PartSink): Promise<void> {
  try {
    await execute(agent, prepared, sink);
  } catch (error) {
    if (!wasAborted(error, prepared.plan.call, sink)) throw error;
    if (!sink.closed) await sink.part({ type: "abort" });
  }
}
