/** Runs for protocols with their own reply format: the sink of the protocol makes the reply from the parts. */
import { invalid, ServiceError } from "../lib/errors.ts";
import type { KeptProtocolRun, ProtocolBody, ProtocolRun, RunCall } from "./agent.ts";
import { messageIdForRun } from "./conversation/agent-memory.ts";
import type { KeptAgent, KeptRequest, KeptRun } from "./keeper.ts";
import { answersOf, keptRun, keyedAs } from "./kept.ts";
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
  const answers = answersOf(agent, request, call);
  const run = isKept === true ? keptRun(agent, kept, () => request, request.options, call, true) : null;
  const prepared = run?.prepared ?? prepareHere(agent, request, call);
  const { plan } = prepared;
  const start = (sink: PartSink) => (run === null ? executeStream(agent, prepared, sink) : tellKept(run, sink));
  return {
    messageId: messageIdForRun(plan.id),
    isJson: isJson(plan),
    isForClient: (tool) => plan.tools.byName.get(tool)?.clientInput !== undefined,
    start,
    events: (form) => run?.events(form) ?? ((events) => start(form(events))),
    answered: async (form) => (await answers?.())?.events(form) ?? null,
  };
}

/** @throws ServiceError `provider_failed` when the run has failed after its beginning, otherwise what made it fail */
async function tellKept(run: KeptRun, sink: PartSink): Promise<void> {
  let failure: string | undefined;
  const parts: PartSink = {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (part.type !== "error") return sink.part(part);
      failure = part.error;
      return undefined;
    },
  };
  await run.events(() => parts)({
    open: () => sink.accepted?.(),
    send: () => undefined,
    get closed() {
      return sink.closed;
    },
    onLeave: (listener) => sink.onLeave?.(listener),
  });
  if (failure !== undefined) throw new ServiceError("provider_failed", failure);
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
  const name = { runId, isChosen: false, isContested: call.keyed?.isRepeated === true, keyed: keyedAs(call) };
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
    ...(request.approves !== false && { waits: true as const }),
    runsTools: true,
    clientKnowsMessageId: true,
  } satisfies KeptRequest;
}

const isJson = ({ output }: RunPlan): boolean => output?.format !== undefined;
