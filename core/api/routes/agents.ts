/** Agents: text, objects, streams and chats, and their history. */
import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import { type EventOutput, typedRoute } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { notFound } from "../../lib/errors.ts";

const STREAM_FAILURE = (error: string) => ({ type: "error", error });

/** The events of the UI message stream. */
export const CHAT_EVENTS = {
  events: "UIMessageChunk",
  headers: ["x-vercel-ai-ui-message-stream", "v1"],
  last: "[DONE]",
  failure: (errorText: string) => ({ type: "error", errorText }),
} as const satisfies EventOutput;

/** @throws ServiceError `not_found` */
export function findAgent(service: Service, id: string) {
  const agent = service.agents.get(id);
  if (agent === undefined) throw notFound(`agent ${JSON.stringify(id.slice(0, 128))} does not exist`);
  return agent;
}

export const AGENT_ROUTES = [
  typedRoute<Service>({
    operation: "agents.list",
    method: "GET",
    path: "/agents",
    group: "management",
    summary: "List agents",
    output: { json: "AgentList" },
    handle: (_input, { service }) => service.agentList(),
  }),
  typedRoute<Service>({
    operation: "agents.get",
    method: "GET",
    path: "/agents/:id",
    group: "management",
    summary: "Inspect an agent",
    output: { json: "AgentDetail" },
    handle: ({ params }, { service }) => findAgent(service, params.id!).detail(),
  }),
  typedRoute<Service, undefined, "GenerateRequest">({
    operation: "agents.generateText",
    method: "POST",
    path: "/agents/:id/text",
    group: "execution",
    summary: "Generate text",
    body: "GenerateRequest",
    idempotent: true,
    bodyClass: "generation",
    failures: ["conflict"],
    output: { json: "TextResult", accepted: "StartedRun" },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).generateText(body, call),
  }),
  typedRoute<Service, undefined, "GenerateRequest">({
    operation: "agents.stream",
    method: "POST",
    path: "/agents/:id/stream",
    group: "execution",
    summary: "Stream the raw parts of a run",
    body: "GenerateRequest",
    idempotent: "stream",
    bodyClass: "generation",
    failures: ["conflict"],
    output: { events: "RawStreamPart", failure: STREAM_FAILURE },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).stream(body, call),
  }),
  typedRoute<Service, undefined, "ChatRequest">({
    operation: "agents.chat",
    method: "POST",
    path: "/agents/:id/chat",
    group: "execution",
    summary: "Stream a run in the UI message stream format",
    body: "ChatRequest",
    idempotent: "stream",
    bodyClass: "generation",
    failures: ["conflict"],
    output: CHAT_EVENTS,
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).chat(body, call),
  }),
  typedRoute<Service, undefined, "ObjectRequest">({
    operation: "agents.generateObject",
    method: "POST",
    path: "/agents/:id/object",
    group: "execution",
    summary: "Generate an object that conforms to a JSON Schema",
    body: "ObjectRequest",
    idempotent: true,
    bodyClass: "generation",
    failures: ["conflict"],
    output: { json: "GeneratedObject", accepted: "StartedRun" },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).generateObject(body, call),
  }),
  typedRoute<Service, undefined, "ObjectRequest">({
    operation: "agents.streamObject",
    method: "POST",
    path: "/agents/:id/stream-object",
    group: "execution",
    summary: "Stream an object as it grows",
    body: "ObjectRequest",
    idempotent: "stream",
    bodyClass: "generation",
    failures: ["conflict"],
    output: { events: "ObjectStreamEvent", failure: STREAM_FAILURE },
    handle: ({ params, body }, call) => findAgent(call.service, params.id!).streamObject(body, call),
  }),
  typedRoute<Service, "HistoryQuery">({
    operation: "agents.history",
    method: "GET",
    path: "/agents/:id/history",
    group: "management",
    summary: "List the runs of an agent, newest first",
    query: "HistoryQuery",
    output: { json: "HistoryPage" },
    handle({ params, query }, call) {
      const { service } = call;
      const principal = principalOf(call, service.isolated);
      const { page = defaults.HistoryQuery.page, limit = defaults.HistoryQuery.limit } = query;
      return findAgent(service, params.id!).history(page, limit, principal);
    },
  }),
];
