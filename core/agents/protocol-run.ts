/** Runs for protocols with their own reply format: the sink of the protocol makes the reply from the parts. */
import type { ProtocolBody, ProtocolRun, RunCall } from "./agent.ts";
import { messageIdForRun } from "./conversation/agent-memory.ts";
import type { KeptAgent, KeptRequest } from "./keeper.ts";
import { answersOf, startable } from "./kept.ts";
import { reasoningOptions } from "./run/bounds.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";

export function prepareProtocol(
  agent: CompiledAgent,
  kept: KeptAgent,
  { streams = false, ...body }: ProtocolBody,
  call: RunCall,
): ProtocolRun {
  const request = protocolRequest(agent, body);
  const answers = answersOf(agent, request, call);
  const run = startable(agent, kept, request, call, streams);
  const { output, tools } = run.prepared.plan;
  return {
    messageId: messageIdForRun(run.id),
    isJson: output?.format !== undefined,
    isForClient: (tool) => tools.byName.get(tool)?.clientInput !== undefined,
    clientTools: () =>
      [...tools.byName.values()].flatMap(({ name, clientInput }) => (clientInput === undefined ? [] : [name])),
    start: run.into,
    events: run.events,
    answered: async (form) => (await answers?.())?.events(form) ?? null,
    kept: run.kept,
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
