/** Decides which runs of an agent are kept, and starts them. */
import { REPLAYED } from "../http/idempotency.ts";
import { invalid } from "../lib/errors.ts";
import type { RunCall } from "./agent.ts";
import type { KeptAgent, KeptRequest, KeptRun, RunName } from "./keeper.ts";
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
 * The run for a request, if it is to be kept; else null.
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
  if (!isAsked && !isFollowed && !(agent.durable && keeper.lasts)) return null;
  const chosen = options?.runId;
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

export const keyedAs = ({ keyed }: RunCall): RunName["keyed"] =>
  keyed === undefined ? null : keyed.isRepeated ? "repeated" : "first";

/** Checks that no kept run has the id that was chosen for one that is not kept. */
export function requireFreeId({ keeping }: CompiledAgent, { plan }: PreparedRun, options: KeptRequest["options"]) {
  if (options?.runId === undefined || keeping.keeper === null) return undefined;
  return keeping.keeper.requireFree(options.runId, plan.settings.memory.userId);
}
