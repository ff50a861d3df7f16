/** Runs for protocols with their own reply format: the sink of the protocol makes the reply from the parts. */
import { invalid } from "../lib/errors.ts";
import type { KeptProtocolRun, ProtocolBody, ProtocolRun, RunCall } from "./agent.ts";
import { messageIdForRun } from "./conversation/agent-memory.ts";
import type { KeptAgent, KeptRequest } from "./keeper.ts";
import { keptRun } from "./kept.ts";
import { reasoningOptions } from "./run/bounds.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { executeStream, prepareRun } from "./run/execute.ts";
import { jsonOutput } from "./run/output.ts";
import type { PartSink } from "./run/parts.ts";
import type { RunPlan } from "./run/run.ts";

export function prepareProtocol(
  agent: CompiledAgent,
  kept: KeptAgent,
  { isKept, ...body }: ProtocolBody,
  call: RunCall,
): ProtocolRun {
  const request = protocolRequest(agent, body);
  const run = isKept === true ? keptRun(agent, kept, () => request, request.options, call, true) : null;
  const prepared = run?.prepared ?? prepareHere(agent, request, call);
  const { plan } = prepared;
  const start = (sink: PartSink) => executeStream(agent, prepared, sink);
  return {
    messageId: messageIdForRun(plan.id),
    isJson: isJson(plan),
    isForClient: (tool) => plan.tools.byName.get(tool)?.clientInput !== undefined,
    start,
    events: (form) => run?.events(form) ?? ((events) => start(form(events))),
  };
}

function prepareHere(agent: CompiledAgent, { json, ...request }: KeptRequest, call: RunCall) {
  const output = jsonOutput(agent, json, call);
  return prepareRun(agent, { ...request, ...(output && { output }) }, call);
}

/** @throws ServiceError `invalid_input` */
export function prepareKept(
  agent: CompiledAgent,
  kept: KeptAgent,
  body: ProtocolBody,
  call: RunCall,
  runId: string,
): KeptProtocolRun {
  const { keeper } = agent.keeping;
  if (keeper === null) throw invalid("background is not available here: nothing keeps the runs of agents");
  const name = { runId, isChosen: false, keyed: null };
  const run = keeper.newRun(kept, protocolRequest(agent, body), call, name);
  const { plan } = run.prepared;
  return {
    isJson: isJson(plan),
    clientTools: [...plan.tools.byName.values()]
      .filter((tool) => tool.clientInput !== undefined)
      .map(({ name }) => name),
    start: () => run.start(),
    left: run.left,
  };
}

function protocolRequest(agent: CompiledAgent, { effort, options, ...request }: ProtocolBody) {
  const reasoning = effort && { providerOptions: reasoningOptions(agent.bounds, effort.value, effort.field) };
  const asked = reasoning === undefined ? options : { ...options, ...reasoning };
  return {
    ...request,
    ...(asked && { options: asked }),
    runsTools: true,
    clientKnowsMessageId: true,
  } satisfies KeptRequest;
}

const isJson = ({ output }: RunPlan): boolean => output?.format !== undefined;
