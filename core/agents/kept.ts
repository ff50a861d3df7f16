/** Decides which runs of an agent are kept, and starts them. */
import { REPLAYED } from "../http/idempotency.ts";
import { invalid } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { RunCall } from "./agent.ts";
import type { AnsweredRun, KeptAgent, KeptRequest, KeptRun, RunKeeper, RunName } from "./keeper.ts";
import { type AwaitedCall, awaitedCalls, NO_CALLS } from "./prompt/awaited-calls.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, type PreparedRun, prepareRun } from "./run/execute.ts";
import { jsonOutput, objectOutput, schemaRateKey } from "./run/output.ts";

export const keptAgent = (agent: CompiledAgent): KeptAgent => ({
  id: agent.id,
  recovery: agent.recovery,
  prepare({ schema, json, waits: _, ...request }, call, runId, journal) {
    const result =
      schema === undefined ? undefined : objectOutput(agent.prepareSchema(schema, "schema", schemaRateKey(call)));
    const output = jsonOutput(agent, json, call);
    return prepareRun(
      agent,
      { ...request, ...(result && { result }), ...(output && { output }), runId, journal },
      call,
    );
  },
  execute: (prepared, sink, outcome) => execute(agent, prepared, sink, outcome),
});

/**
 * The run for a request, if it is to be kept, from now on or once it asks a person; else null.
 *
 * @param streams whether the reply is the stream of the run, which a repeated request with its key follows
 *
 * @throws ServiceError `invalid_input` for an invalid request
 */
export function keptRun(
  agent: CompiledAgent,
  kept: KeptAgent,
  request: () => KeptRequest,
  options: KeptRequest["options"],
  call: RunCall,
  streams: boolean,
): KeptRun | null {
  const { keeper } = agent.keeping;
  const { keyed } = call;
  const isAsked = options?.background === true || options?.resumableStream === true;
  if (keeper === null) {
    if (isAsked) throw invalid("options.background and options.resumableStream are not available here");
    return null;
  }
  const isFollowed = streams && keyed !== undefined;
  const chosen = options?.runId;
  if (!isAsked && !isFollowed && !(agent.durable && keeper.lasts)) {
    const asking = agent.asks ? request() : null;
    if (asking === null || asking.approves === false || asking.schema !== undefined) return null;
    return keeper.askingRun(kept, asking, call, chosen ?? agent.newRunId(), chosen !== undefined);
  }
  const run = keeper.newRun(kept, request(), call, {
    runId: chosen ?? keyed?.runId ?? agent.newRunId(),
    isChosen: chosen !== undefined,
    isContested: chosen !== undefined || isFollowed || keyed?.isRepeated === true,
    keyed: keyedAs(call),
  });
  const replayed = isFollowed && keyed.isRepeated ? REPLAYED : [];
  call.replyWith = { headers: ["x-run-id", run.id, ...replayed] };
  return run;
}

type Answers = () => Promise<AnsweredRun | null>;

/** Gives the answers of a request to the run that waits for them. Null for a request without any. */
export function answersOf(
  agent: CompiledAgent,
  { input, options, approves }: Pick<KeptRequest, "input" | "options" | "approves">,
  call: RunCall,
): Answers | null {
  const { keeper } = agent.keeping;
  const calls = keeper === null || approves === false ? NO_CALLS : awaitedCalls(input);
  return calls.length === 0 ? null : answersTo(keeper!, agent, calls, options?.context, call);
}

/** A function of its own: most requests make none of this. */
const answersTo =
  (
    keeper: RunKeeper,
    { id, defaults }: CompiledAgent,
    calls: readonly AwaitedCall[],
    context: Record<string, unknown> | undefined,
    call: RunCall,
  ): Answers =>
  async () => {
    const run = await keeper.answered(id, calls, context ?? defaults.context, call);
    if (run !== null) call.replyWith = { headers: ["x-run-id", run.id] };
    return run;
  };

/** @param produce the reply where no run waits for the answers */
export const orAnswered = (
  answers: Answers | null,
  form: Parameters<KeptRun["events"]>[0],
  produce: EventProducer,
): EventProducer | Promise<EventProducer> =>
  answers === null ? produce : answers().then((run) => run?.events(form) ?? produce);

export const keyedAs = ({ keyed }: RunCall): RunName["keyed"] =>
  keyed === undefined ? null : keyed.isRepeated ? "repeated" : "first";

/** Checks that no kept run has the id that was chosen for one that is not kept. */
export function requireFreeId({ keeping }: CompiledAgent, { plan }: PreparedRun, options: KeptRequest["options"]) {
  if (options?.runId === undefined || keeping.keeper === null) return undefined;
  return keeping.keeper.requireFree(options.runId, plan.settings.memory.userId);
}
