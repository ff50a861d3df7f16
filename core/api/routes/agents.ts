/** Agents: text, objects, streams and chats, and their history. */
import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import type { EventOutput } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { notFound, quoted } from "../../lib/errors.ts";
import { manage, post } from "./row.ts";

export const STREAM_FAILURE = (error: string) => ({ type: "error", error });

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
