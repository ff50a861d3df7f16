/** Runs for protocols with their own reply format: the sink of the protocol makes the reply from the parts. */
import { ServiceError } from "../lib/errors.ts";
import type { ProtocolBody, ProtocolRun } from "./agent.ts";
import { messageIdForRun } from "./conversation/agent-memory.ts";
import type { KeptAgent, KeptRequest, StartableRun } from "./keeper.ts";
import { startable } from "./kept.ts";
import { reasoningOptions } from "./run/bounds.ts";
import type { RunCall } from "./run/caller.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import type { PartSink } from "./run/parts.ts";

export function prepareProtocol(
  agent: CompiledAgent,
  kept: KeptAgent,
  { streams = false, ...body }: ProtocolBody,
  call: RunCall,
): ProtocolRun {
  const request = protocolRequest(agent, body);
  const run = startable(agent, kept, request, call, streams);
  const { output, tools } = run.prepared.plan;
  return {
    messageId: messageIdForRun(run.id),
    isJson: output?.format !== undefined,
    get clientTools() {
      return [...tools.byName.values()].flatMap(({ name, clientInput }) => (clientInput === undefined ? [] : [name]));
    },
    start: (sink) => partsInto(run, sink),
    events: (form) => run.events(form),
    kept: run.kept,
  };
}

/**
 * The sink of one that is kept from its begin gets the parts that are recorded.
 *
 * @throws ServiceError `provider_failed` when that has failed after its beginning, otherwise what made it fail
 */
async function partsInto(run: StartableRun, sink: PartSink): Promise<void> {
  let failure: string | undefined;
  const recorded: PartSink = {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (part.type !== "error") return sink.part(part);
      failure = part.error;
      return undefined;
    },
  };
  const follow = await run.events(() => (run.kept === undefined ? sink : recorded));
  await follow({
    open: () => sink.accepted?.(),
    send: () => undefined,
    get closed() {
      return sink.closed;
    },
    onLeave: (listener) => sink.onLeave?.(listener),
  });
  if (failure !== undefined) throw new ServiceError("provider_failed", failure);
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
