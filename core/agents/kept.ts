/** Decides which runs of an agent are kept, and starts them. */
import { invalid } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { KeptAgent, KeptRequest, ReplyForm, RunKeeper, StartableRun } from "./keeper.ts";
import { type AwaitedCall, awaitedCalls, NO_CALLS } from "./prompt/awaited-calls.ts";
import type { RunCall } from "./run/caller.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, executeStream, prepareRun } from "./run/execute.ts";
import type { PreparedRun } from "./run/run.ts";
import { RawSink } from "./stream/raw.ts";

export const keptAgent = (agent: CompiledAgent): KeptAgent => ({
  id: agent.id,
  recovery: agent.recovery,
  prepare: (request, call, runId, journal) => prepareRun(agent, { ...request, runId, journal }, call),
  execute: (prepared, sink, outcome) => execute(agent, prepared, sink, outcome),
});

/**
 * The run for a request: one that waits for what it answers, or a new one, kept from its begin, from the moment in which it asks a person, or
 * not at all.
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
    return new PassingRun(agent, request, call);
  }
  const isFollowed = streams && keyed !== undefined;
  const chosen = options?.runId;
  const isChosen = chosen !== undefined;
  const asks = agent.asks && request.schema === undefined;
  const isRepeated = keyed?.isRepeated === true;
  // The first request with the key may have asked, and died.
  const isKept = isAsked || isFollowed || (agent.durable && keeper.lasts) || (asks && isRepeated);
  let run: StartableRun;
  if (isKept || asks) {
    const runId = chosen ?? request.runId ?? keyed?.runId ?? agent.newRunId();
    const key = keyed === undefined ? null : isRepeated ? "repeated" : "first";
    const name = { runId, isChosen, isContested: isChosen || isFollowed || isRepeated, keyed: key } as const;
    run = isKept ? keeper.newRun(kept, request, call, name) : keeper.askingRun(kept, request, call, runId, isChosen);
    if (isKept) call.replyWith = { facts: isFollowed && isRepeated ? { runId, isReplayed: true } : { runId } };
  } else run = new PassingRun(agent, request, call);
  const mayAnswer = request.runsTools === true && request.approves !== false;
  const calls = mayAnswer ? awaitedCalls(request.input) : NO_CALLS;
  return calls.length === 0 ? run : answering(keeper, agent, calls, options?.context, call, run);
}

/** A run that ends with its request. */
class PassingRun implements StartableRun {
  readonly id: string;
  readonly prepared: PreparedRun;
  readonly #agent: CompiledAgent;
  readonly #isFree: Promise<void> | undefined;

  constructor(agent: CompiledAgent, request: KeptRequest, call: RunCall) {
    this.prepared = prepareRun(agent, request, call);
    const { id, settings } = this.prepared.plan;
    this.id = id;
    this.#agent = agent;
    // No kept run may have the id that was chosen for one that is not kept.
    const chosen = request.options?.runId;
    if (chosen !== undefined) this.#isFree = agent.keeping.keeper?.requireFree(chosen, settings.memory.userId);
  }

  result(): ReturnType<StartableRun["result"]> {
    if (this.#isFree === undefined) return execute(this.#agent, this.prepared);
    return this.#isFree.then(() => execute(this.#agent, this.prepared));
  }

  events(form = RAW): EventProducer {
    return async (events) => {
      if (this.#isFree !== undefined) await this.#isFree;
      return executeStream(this.#agent, this.prepared, form(events));
    };
  }
}

export const RAW: ReplyForm = (events) => new RawSink(events);

/** Gives the answers of a request to the run that waits for them, if there is one. A function of its own: most requests bring none. */
function answering(
  keeper: RunKeeper,
  { id, defaults }: CompiledAgent,
  calls: readonly AwaitedCall[],
  context: Record<string, unknown> | undefined,
  call: RunCall,
  run: StartableRun,
): StartableRun {
  const meant = async () => {
    const waiting = await keeper.answered(id, calls, context ?? defaults.context, call);
    if (waiting === null) return run;
    call.replyWith = { facts: { runId: waiting.id } };
    return waiting;
  };
  return {
    ...run,
    kept: undefined,
    result: async () => (await meant()).result(),
    events: async (form) => (await meant()).events(form),
  };
}
