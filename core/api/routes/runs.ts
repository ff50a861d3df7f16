/** Contract, "Agents": the runs of an agent that are kept. */
import type { Service } from "../../app/service.ts";
import { type Context, typedRoute } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { parseEventCursor } from "../../workflows/input.ts";
import { findAgent } from "./agents.ts";

const STREAM_FAILURE = (error: string) => ({ type: "error", error });

/** The runs as the caller sees them. @throws ServiceError `not_found` for an unknown agent */
function open(agentId: string, call: Context<Service>) {
  findAgent(call.service, agentId);
  return call.service.runs.for(principalOf(call, call.service.isolated));
}

export const RUN_ROUTES = [
  typedRoute<Service, "RunsQuery">({
    operation: "runs.list",
    method: "GET",
    path: "/agents/:id/runs",
    group: "management",
    summary: "List the kept runs of an agent, newest first",
    query: "RunsQuery",
    output: { json: "AgentRunList" },
    handle: ({ params: { id }, query }, call) => open(id!, call).list(id!, query),
  }),
  typedRoute<Service>({
    operation: "runs.get",
    method: "GET",
    path: "/agents/:id/runs/:runId",
    group: "execution",
    summary: "Inspect a kept run",
    output: { json: "AgentRun" },
    handle: ({ params: { id, runId } }, call) => open(id!, call).get(id!, runId!),
  }),
  typedRoute<Service, "RunStreamQuery">({
    operation: "runs.attach",
    method: "GET",
    path: "/agents/:id/runs/:runId/stream",
    group: "execution",
    summary: "Read the parts of a kept run again, and follow it",
    description:
      "Begins after the event that the header `Last-Event-ID` or `fromSequence` names. The stream of a run that has ended ends with its last part.",
    query: "RunStreamQuery",
    readsHeaders: true,
    output: { events: "RawStreamPart", failure: STREAM_FAILURE, resumable: true },
    handle: ({ params: { id, runId }, query }, call) =>
      open(id!, call).attach(id!, runId!, parseEventCursor(query, call.headers)),
  }),
  typedRoute<Service>({
    operation: "runs.cancel",
    method: "POST",
    path: "/agents/:id/runs/:runId/cancel",
    group: "execution",
    summary: "Cancel a kept run",
    description: "What it has said so far is stored. A tool that does not heed its signal is given up after 5 s.",
    output: { json: "RunCancelled" },
    handle: ({ params: { id, runId } }, call) => open(id!, call).cancel(id!, runId!),
  }),
];
