/** Agents: text, objects, streams and chats, their history, and the runs that are kept. */
import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import type { Context, EventOutput, EventReply } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { notFound, quoted } from "../../lib/errors.ts";
import { parseEventCursor } from "../../workflows/begin.ts";
import { get, manage, post } from "./row.ts";

export const STREAM_FAILURE = (error: string) => ({ type: "error", error });

/** The events of the UI message stream. */
const CHAT_EVENTS = {
  events: "UIMessageChunk",
  headers: ["x-vercel-ai-ui-message-stream", "v1"],
  last: "[DONE]",
  failure: (errorText: string) => ({ type: "error", errorText }),
} as const satisfies EventOutput;

/** @throws ServiceError `not_found` */
export function findAgent(service: Service, id: string) {
  const agent = service.agents.get(id);
  if (agent === undefined) throw notFound(`agent ${quoted(id)} does not exist`);
  return agent;
}

/** What all rows say that ask models. */
export const GENERATION = { bodyClass: "generation", failures: ["conflict"] } as const;

export const AGENT_ROUTES = [
  manage("/agents", "agents.list", "List agents", {
    output: "AgentList",
    handle: (_input, { service }) => service.agentList(),
  }),
  manage("/agents/:id", "agents.get", "Inspect an agent", {
    output: "AgentDetail",
    handle: ({ params }, { service }) => findAgent(service, params.id!).detail(),
  }),
  post("/agents/:id/text", "agents.generateText", "Generate text", {
    body: "GenerateRequest",
    idempotent: true,
    ...GENERATION,
    output: { json: "TextResult", accepted: "StartedRun" },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).generateText(body, call),
  }),
  post("/agents/:id/stream", "agents.stream", "Stream the raw parts of a run", {
    body: "GenerateRequest",
    idempotent: "stream",
    ...GENERATION,
    output: { events: "RawStreamPart", failure: STREAM_FAILURE },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).stream(body, call),
  }),
  post("/agents/:id/chat", "agents.chat", "Stream a run in the UI message stream format", {
    body: "ChatRequest",
    idempotent: "stream",
    ...GENERATION,
    output: CHAT_EVENTS,
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).chat(body, call),
  }),
  post("/agents/:id/object", "agents.generateObject", "Generate an object that conforms to a JSON Schema", {
    body: "ObjectRequest",
    idempotent: true,
    ...GENERATION,
    output: { json: "GeneratedObject", accepted: "StartedRun" },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).generateObject(body, call),
  }),
  post("/agents/:id/stream-object", "agents.streamObject", "Stream an object as it grows", {
    body: "ObjectRequest",
    idempotent: "stream",
    ...GENERATION,
    output: { events: "ObjectStreamEvent", failure: STREAM_FAILURE },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).streamObject(body, call),
  }),
  manage("/agents/:id/history", "agents.history", "List the runs of an agent, newest first", {
    query: "HistoryQuery",
    output: "HistoryPage",
    handle({ params, query }, call) {
      const { service } = call;
      const principal = principalOf(call, service.isolated);
      const { page = defaults.HistoryQuery.page, limit = defaults.HistoryQuery.limit } = query;
      return findAgent(service, params.id!).history(page, limit, principal);
    },
  }),
];

// The runs of agents that are kept.

/** The runs as the caller sees them. @throws ServiceError `not_found` for an unknown agent */
function open(agentId: string, call: Context<Service>) {
  findAgent(call.service, agentId);
  return call.service.runs.for(principalOf(call, call.service.isolated), call);
}

export const RUN_ROUTES = [
  manage("/agents/:id/runs", "runs.list", "List the kept runs of an agent, newest first", {
    query: "RunsQuery",
    output: "AgentRunList",
    handle: ({ params: { id }, query }, call) => open(id!, call).list(id!, query),
  }),
  get("/agents/:id/runs/:runId", "runs.get", "Inspect a kept run", {
    holds: true,
    output: "AgentRun",
    handle: ({ params: { id, runId } }, call) => open(id!, call).get(id!, runId!),
  }),
  get("/agents/:id/runs/:runId/stream", "runs.attach", "Read the parts of a kept run again, and follow it", {
    description:
      "Begins after the event that the header `Last-Event-ID` or `fromSequence` names. The stream of a run that has ended ends with its last part.",
    query: "RunStreamQuery",
    readsHeaders: true,
    holds: true,
    output: {
      events: "RawStreamPart",
      failure: STREAM_FAILURE,
      resumable: true,
      others: { chat: { ...CHAT_EVENTS, resumable: true } },
    },
    async handle({ params: { id, runId }, query }, call): Promise<EventReply> {
      const format = query.format ?? defaults.RunStreamQuery.format;
      const events = await open(id!, call).attach(id!, runId!, parseEventCursor(query, call.headers), { format });
      return format === "raw" ? events : { form: format, events };
    },
  }),
  post("/agents/:id/runs/:runId/cancel", "runs.cancel", "Cancel a kept run", {
    description: "What it has said so far is stored. A tool that does not heed its signal is given up after 5 s.",
    output: "RunCancelled",
    handle: ({ params: { id, runId } }, call) => open(id!, call).cancel(id!, runId!),
  }),
  get(
    "/agents/:id/chat/:conversationId/stream",
    "runs.attachChat",
    "Read the answer that a chat is getting, and follow it",
    {
      description:
        "The newest run of the conversation that `POST /agents/:id/chat` has begun with `options.resumableStream`, from its begin. 204 when none runs.",
      query: "ChatStreamQuery",
      holds: true,
      output: { ...CHAT_EVENTS, mayBeEmpty: true },
      handle: ({ params: { id, conversationId }, query }, call): Promise<EventReply> =>
        open(id!, call).attachChat(id!, conversationId!, query.userId),
    },
  ),
  post("/agents/:id/chat/:conversationId/cancel", "runs.cancelChat", "Cancel the answer that a chat is getting", {
    description: "What it has said so far is stored. 404 when nothing runs.",
    body: "CancelChatRequest",
    bodyOptional: true,
    output: "RunCancelled",
    handle: ({ params: { id, conversationId }, body }, call) =>
      open(id!, call).cancelChat(id!, conversationId!, body.userId),
  }),
];
