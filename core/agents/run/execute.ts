/** From a request to a finished run: settles the plan, runs it, and leaves a true record on every way out. */
import type { GenerateOptions } from "../../../generated/types.ts";
import { actingUser } from "../../identity/acting-user.ts";
import type { Principal } from "../../identity/principal.ts";
import { principalOf } from "../../identity/principal.ts";
import type { Span } from "../../observability/span.ts";
import type { RunCall } from "../agent.ts";
import type { AgentMemory, TurnRequest } from "../conversation/agent-memory.ts";
import type { Turn } from "../conversation/turn.ts";
import { promptOf } from "../prompt/input.ts";
import { wasStopped } from "./abort.ts";
import { RunCaller } from "./caller.ts";
import type { AgentCore } from "./compiled-agent.ts";
import { runLoop } from "./loop.ts";
import { resolveOptions, type Settings } from "./options.ts";
import { type OutputSpec, outputOption } from "./output.ts";
import { type PartSink, SILENT } from "./parts.ts";
import { emptyRunResult, type RunPlan, type RunResult } from "./run.ts";
import { beginRunSpan, endRunSpan } from "./spans.ts";
import { NO_TOOLS } from "./tool-set.ts";

export interface RunRequest {
  input: unknown;
  options?: GenerateOptions;
  /** What the input is called in the request, for messages. Default `input`. */
  field?: string;
  /** The result that the endpoint itself asks for: `options.output` does not count then, and there are no tools. */
  result?: OutputSpec;
  /** The form of the result instead of `options.output`; tools stay. */
  output?: OutputSpec;
  /** The conversation when the options name none. */
  conversationId?: string;
  /** Whether the client is told the id of the assistant's message. */
  told?: boolean;
  /** Whether the answer takes the place of the one that the conversation has. */
  regenerate?: boolean;
  /** How many agents stand above this one. */
  depth?: number;
  /** The span that the run is part of, null when that is not traced. Left out: the run begins with the request. */
  above?: Span | null;
}

/** A run that is ready to go. */
export interface PreparedRun {
  readonly plan: RunPlan;
  readonly input: unknown;
  readonly above: Span | null | undefined;
}

/** @throws ServiceError `invalid_input` for a request that makes no sense. */
export function prepareRun(core: AgentCore, request: RunRequest, call: RunCall): PreparedRun {
  const principal = principalOf(call, core.isolated);
  const settings = boundTo(principal, settingsOf(core, request), request.options);
  const scope = { context: settings.context, user: call.user };
  const output = request.result ?? request.output ?? outputOption(settings.output, core, call);
  const instructions = core.instructions(scope);
  const id = core.newRunId();
  const chain = core.chain(scope);
  const caller = new RunCaller(call, core.id, settings.memory);
  const prompt = promptOf(instructions, request.input, request.field);
  const turn =
    core.memory === null
      ? null
      : turnOf(core.memory, request, { runId: id, settings: settings.memory, principal }, caller);
  const remembers = turn?.writable === true && request.result === undefined;
  const tools = request.result === undefined ? core.tools(scope) : NO_TOOLS;
  const plan: RunPlan = {
    id,
    chain,
    prompt,
    tools: remembers ? core.memory!.tools(tools) : tools,
    settings,
    output,
    call: caller,
    depth: request.depth ?? 0,
    turn,
    instructed: instructions !== "",
    remembers,
    span: null,
  };
  return { plan, input: request.input, above: request.above };
}

type Whose = Pick<TurnRequest, "runId" | "settings" | "principal">;

function turnOf(memory: AgentMemory, request: RunRequest, whose: Whose, call: RunCall) {
  const { input, told = false, regenerate = false } = request;
  return memory.turn({ ...whose, input, told, regenerate }, call);
}

/** The user of a run is that of the token where there is one. Nobody has no name. */
function boundTo(principal: Principal, settings: Settings, options: GenerateOptions | undefined): Settings {
  // It must be the token's user, even where `memory.userId` goes before it.
  if (options?.userId !== undefined) actingUser(principal, options.userId);
  const given = settings.memory.userId;
  const userId = actingUser(principal, given) || undefined;
  return userId === given ? settings : { ...settings, memory: { ...settings.memory, userId } };
}

function settingsOf(core: AgentCore, request: RunRequest): Settings {
  const settings = resolveOptions(request.options, core.defaults);
  const { conversationId } = request;
  if (conversationId === undefined || settings.memory.conversationId !== undefined) return settings;
  return { ...settings, memory: { ...settings.memory, conversationId } };
}

/**
 * Runs to the end. A run that was stopped tells its reader, if there still is one, and throws what stopped it.
 *
 * @throws ServiceError when the model fails, when the conversation is somebody else's or cannot be read or stored;
 * anything when the run was stopped.
 */
export async function execute(core: AgentCore, prepared: PreparedRun, sink: PartSink = SILENT): Promise<RunResult> {
  const { plan } = prepared;
  const { turn } = plan;
  const outcome = emptyRunResult();
  beginRunSpan(core, prepared);
  if (turn !== null) await remind(core, plan, turn, outcome);
  const record = core.history.begin(plan.id, prepared.input, plan.settings.memory, plan.span?.traceId);
  core.activity.enter();
  try {
    await runLoop(plan, turn === null ? sink : turn.listen(sink), outcome);
    core.runs?.count("completed");
    const wait = core.history.end(record, "completed", outcome);
    if (wait !== undefined) await wait;
    if (plan.span !== null) endRunSpan(plan.span, outcome);
    return outcome;
  } catch (error) {
    const status = wasStopped(error, plan.call, sink) ? "cancelled" : "error";
    core.runs?.count(status);
    if (turn !== null) await turn.abandon(status);
    core.history.end(record, status, outcome, status === "error" ? error : undefined);
    if (plan.span !== null) endRunSpan(plan.span, outcome, { error, cancelled: status === "cancelled" });
    throw error;
  } finally {
    core.activity.leave();
  }
}

/** What the conversation holds comes into the prompt. A run that does not get that far is on no record but its trace. */
async function remind(core: AgentCore, plan: RunPlan, turn: Turn, outcome: RunResult): Promise<void> {
  turn.span = plan.span;
  try {
    await core.memory!.remind(plan, turn);
  } catch (error) {
    if (plan.span !== null) endRunSpan(plan.span, outcome, { error, cancelled: plan.call.signal.aborted });
    throw error;
  }
}

/** Runs for a reader of events. A stop is told as the part `abort`, and is the end of the stream like any other. */
export async function executeStream(core: AgentCore, prepared: PreparedRun, sink: PartSink): Promise<void> {
  try {
    await execute(core, prepared, sink);
  } catch (error) {
    if (!wasStopped(error, prepared.plan.call, sink)) throw error;
    if (!sink.closed) await sink.part({ type: "abort" });
  }
}
