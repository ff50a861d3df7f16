/** Decides which runs of an agent are kept, and starts them. */
import { REPLAYED } from "../http/idempotency.ts";
import { invalid } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { RunCall } from "./agent.ts";
import type { AnsweredRun, KeptAgent, KeptRequest, ReplyForm, RunKeeper, StartableRun } from "./keeper.ts";
import { type AwaitedCall, awaitedCalls, NO_CALLS } from "./prompt/awaited-calls.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, executeStream, prepareRun } from "./run/execute.ts";
import type { PartSink } from "./run/parts.ts";
import { RawSink } from "./stream/raw.ts";

export const keptAgent = (agent: CompiledAgent): KeptAgent => ({
  id: agent.id,
  recovery: agent.recovery,
  prepare: (request, call, runId, journal) => prepareRun(agent, { ...request, runId, journal }, call),
  execute: (prepared, sink, outcome) => execute(agent, prepared, sink, outcome),
});

/**
 * The run for a request: kept from its begin, from the moment in which it asks a person, or not at all.
 *
 * @param streams whether the reply is the stream of the run, which a repeated request with its key follows
 *
 * @throws ServiceError `invalid_input` for an invalid request
 */
export function startable(
  agent: CompiledAgent,
  kept: KeptAgent,
  request: KeptRequest,
  call: RunCall,
  streams: boolean,
): StartableRun {
  const { keeper } = agent.keeping;
  const { options } = request;
  const { keyed } = call;
  const isAsked = options?.background === true || options?.resumableStream === true;
  if (keeper === null) {
    if (isAsked) throw invalid("options.background and options.resumableStream are not available here");
    return passing(agent, request, call);
  }
  const isFollowed = streams && keyed !== undefined;
  const chosen = options?.runId;
  const isChosen = chosen !== undefined;
  const named = chosen ?? request.runId;
  if (!isAsked && !isFollowed && !(agent.durable && keeper.lasts))
    return agent.asks && request.schema === undefined
      ? keeper.askingRun(kept, request, call, named ?? agent.newRunId(), isChosen)
      : passing(agent, request, call);
  const run = keeper.newRun(kept, request, call, {
    runId: named ?? keyed?.runId ?? agent.newRunId(),
    isChosen,
    isContested: isChosen || isFollowed || keyed?.isRepeated === true,
    keyed: keyed === undefined ? null : keyed.isRepeated ? "repeated" : "first",
  });
  const replayed = isFollowed && keyed.isRepeated ? REPLAYED : [];
  call.replyWith = { headers: ["x-run-id", run.id, ...replayed] };
  return run;
}

/** A run that ends with its request. */
function passing(agent: CompiledAgent, request: KeptRequest, call: RunCall): StartableRun {
  const prepared = prepareRun(agent, request, call);
  const { id, settings } = prepared.plan;
  const { keeper } = agent.keeping;
  // No kept run may have the id that was chosen for one that is not kept.
  const isFree =
    request.options?.runId === undefined
      ? undefined
      : keeper?.requireFree(request.options.runId, settings.memory.userId);
  const into = async (sink: PartSink) => {
    if (isFree !== undefined) await isFree;
    return executeStream(agent, prepared, sink);
  };
  return {
    id,
    prepared,
    async result() {
      if (isFree !== undefined) await isFree;
      return execute(agent, prepared);
    },
    into,
    events:
      (form = RAW) =>
      (events) =>
        into(form(events)),
  };
}

export const RAW: ReplyForm = (events) => new RawSink(events);

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
  form: ReplyForm | undefined,
  produce: EventProducer,
): EventProducer | Promise<EventProducer> =>
  answers === null ? produce : answers().then((run) => run?.events(form) ?? produce);
