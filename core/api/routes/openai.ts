/** OpenAI's Models, Chat Completions and Responses over agents: `model` is the id of an agent. */
import type { ChatCompletionRequest, CreateResponseRequest } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import { JSON_TYPE } from "../../http/encode.ts";
import { type InputSchemaId, type Route, typedRoute } from "../../http/route.ts";
import { answerChat } from "../../openai/chat.ts";
import { compactConversation } from "../../openai/compact.ts";
import { createResponse } from "../../openai/create-response.ts";
import { jsonReply, openaiErrors } from "../../openai/errors.ts";
import { agentOf, modelList, modelOf } from "../../openai/models.ts";

const EVENTS = "text/event-stream";
const STREAMED: ReadonlySet<string> = new Set(["openai.completeChat", "openai.createResponse", "openai.getResponse"]);

/** The properties that all of these rows share. */
function openaiRoute<
  const Q extends InputSchemaId | undefined = undefined,
  const B extends InputSchemaId | undefined = undefined,
>(row: Omit<Route<Service, Q, B>, "group" | "output" | "errors">): Route<Service> {
  const raw = STREAMED.has(row.operation) ? [JSON_TYPE, EVENTS] : [JSON_TYPE];
  return typedRoute<Service, Q, B>({ ...row, group: "execution", output: { raw }, errors: openaiErrors });
}

export const OPENAI_ROUTES: readonly Route<Service>[] = [
  openaiRoute({
    operation: "openai.listModels",
    method: "GET",
    path: "/v1/models",
    summary: "List the agents as OpenAI's models",
    handle: (_input, { service }) => jsonReply(modelList(service.agents)),
  }),
  openaiRoute({
    operation: "openai.getModel",
    method: "GET",
    path: "/v1/models/:id",
    summary: "An agent as OpenAI's model",
    handle: ({ params }, { service }) => jsonReply(modelOf(agentOf(service.agents, params.id!))),
  }),
  openaiRoute<undefined, "ChatCompletionRequest">({
    operation: "openai.completeChat",
    method: "POST",
    path: "/v1/chat/completions",
    summary: "Answer a conversation, as OpenAI's Chat Completions",
    description: "Replies and errors are OpenAI's. With `stream` the reply is server-sent events.",
    body: "ChatCompletionRequest",
    bodyClass: "generation",
    failures: ["not_found"],
    handle: ({ body }, call) =>
      answerChat(agentOf(call.service.agents, body.model), body as ChatCompletionRequest, call),
  }),
  openaiRoute<undefined, "CreateResponseRequest">({
    operation: "openai.createResponse",
    method: "POST",
    path: "/v1/responses",
    summary: "Answer items, as OpenAI's Responses",
    description:
      "Replies and errors are OpenAI's. With `stream` the reply is server-sent events. Calls of the agent's own tools are items of the type `penstock:tool_call`.",
    body: "CreateResponseRequest",
    bodyClass: "generation",
    failures: ["not_found"],
    handle: ({ body }, call) => {
      const { agents, responses } = call.service;
      return createResponse(agentOf(agents, body.model), body as CreateResponseRequest, call, responses);
    },
  }),
  openaiRoute<undefined, "CompactResponseRequest">({
    operation: "openai.compactResponse",
    method: "POST",
    path: "/v1/responses/compact",
    summary: "Sum up a conversation, which goes on behind the summary",
    description:
      "The reply has an item of the type `compaction`, which stands for the conversation in the `input` of `/v1/responses`.",
    body: "CompactResponseRequest",
    bodyClass: "generation",
    failures: ["not_found"],
    async handle({ body }, call) {
      const { agents, responses } = call.service;
      return jsonReply(await compactConversation(agentOf(agents, body.model), body, call, responses));
    },
  }),
  openaiRoute<"ResponseQuery">({
    operation: "openai.getResponse",
    method: "GET",
    path: "/v1/responses/:id",
    summary: "Read a stored response, or follow one that runs in the background",
    query: "ResponseQuery",
    async handle({ params, query }, call) {
      const { responses } = call.service;
      const principal = responses.principalOf(call);
      if (query.stream === true) return responses.follow(params.id!, query, principal);
      return jsonReply(await responses.get(params.id!, principal));
    },
  }),
  openaiRoute({
    operation: "openai.deleteResponse",
    method: "DELETE",
    path: "/v1/responses/:id",
    summary: "Delete a stored response",
    async handle({ params }, call) {
      const { responses } = call.service;
      return jsonReply(await responses.delete(params.id!, responses.principalOf(call)));
    },
  }),
  openaiRoute({
    operation: "openai.cancelResponse",
    method: "POST",
    path: "/v1/responses/:id/cancel",
    summary: "Stop a response that runs in the background",
    async handle({ params }, call) {
      const { responses } = call.service;
      return jsonReply(await responses.cancel(params.id!, responses.principalOf(call)));
    },
  }),
  openaiRoute<"ResponseItemsQuery">({
    operation: "openai.listInputItems",
    method: "GET",
    path: "/v1/responses/:id/input_items",
    summary: "List the items that a stored response was asked",
    query: "ResponseItemsQuery",
    async handle({ params, query }, call) {
      const { responses } = call.service;
      return jsonReply(await responses.inputItems(params.id!, query, responses.principalOf(call)));
    },
  }),
];
