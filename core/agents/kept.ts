/** Which runs of an agent are kept, and how one begins. */
import { invalid } from "../lib/errors.ts";
import type { RunCall } from "./agent.ts";
import type { KeptAgent, KeptRequest, KeptRun } from "./keeper.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, type PreparedRun, prepareRun } from "./run/execute.ts";
import { objectOutput, schemaRateKey } from "./run/output.ts";

export const keptAgent = (agent: CompiledAgent): KeptAgent => ({
  id: agent.id,
  recovery: agent.recovery,
  prepare({ schema, waits: _, ...request }, call, runId, journal) {
    const result =
      schema === undefined ? undefined : objectOutput(agent.prepareSchema(schema, "schema", schemaRateKey(call)));
    return prepareRun(agent, { ...request, ...(result !== undefined && { result }), runId, journal }, call);
  },
  execute: (prepared, sink, outcome) => execute(agent, prepared, sink, outcome),
});

/**
 * The run that a request asks for, where it is to be kept; else null.
 *
 * @throws ServiceError `invalid_input` for an invalid request
 */
export function keptRun(
  agent: CompiledAgent,
  kept: KeptAgent,
  request: () => KeptRequest,
  options: KeptRequest["options"],
  call: RunCall,
): KeptRun | null {
  const { keeper } = agent.keeping;
  const isAsked = options?.background === true || options?.resumableStream === true;
  if (keeper === null) {
    if (isAsked) throw invalid("options.background and options.resumableStream are not available here");
    return null;
  }
  if (!isAsked && !(agent.durable && keeper.lasts)) return null;
  const runId = options?.runId;
  const run = keeper.newRun(kept, request(), call, runId ?? agent.newRunId(), runId !== undefined);
  call.replyWith = { headers: ["x-run-id", run.id] };
  return run;
}

/** Names a run that is not kept in the reply, and waits until it is known that no kept one has its id. */
export function named(
  { keeping }: CompiledAgent,
  { plan }: PreparedRun,
  call: RunCall,
  options: KeptRequest["options"],
) {
  call.replyWith = { headers: ["x-run-id", plan.id] };
  if (options?.runId === undefined || keeping.keeper === null) return undefined;
  return keeping.keeper.requireFree(options.runId, plan.settings.memory.userId);
}
