/** OpenAI's Models, Chat Completions and Responses over agents: `model` is the id of an agent. */
import type { ChatCompletionRequest, CreateResponseRequest } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import { JSON_TYPE } from "../../http/encode.ts";
import type { Context } from "../../http/route.ts";
import { answerChat } from "../../openai/chat.ts";
import { compactConversation, createResponse, estimateInput } from "../../openai/create-response.ts";
import { jsonReply, openaiErrors } from "../../openai/errors.ts";
import { agentOf, embed, modelList, modelOf } from "../../openai/models.ts";
import { del, get, post } from "./row.ts";

const EVENTS = "text/event-stream";
const byStream = ({ stream }: { readonly stream?: boolean | null }) => (stream === true ? "stream" : true);
const WHOLE = { output: { raw: [JSON_TYPE] }, errors: openaiErrors };
const STREAMED = { ...WHOLE, output: { raw: [JSON_TYPE, EVENTS] } };
/** Of bodies that an agent is asked. */
const ASKED = { bodyClass: "generation", failures: ["not_found"] } as const;

/** Of what `responses` keep for the caller. */
const kept = (act: "delete" | "cancel") => ({
  ...WHOLE,
  async handle({ params }: { params: Record<string, string> }, call: Context<Service>) {
    const { responses } = call.service;
    return jsonReply(await responses[act](params.id!, responses.principalOf(call)));
  },
});

export const OPENAI_ROUTES = [
  get("/v1/models", "openai.listModels", "List the agents as OpenAI's models", {
    ...WHOLE,
    handle: (_input, { service }) => jsonReply(modelList(service.agents)),
  }),
  get("/v1/models/:id", "openai.getModel", "An agent as OpenAI's model", {
    ...WHOLE,
    handle: ({ params }, { service }) => jsonReply(modelOf(agentOf(service.agents, params.id!))),
  }),
  post("/v1/chat/completions", "openai.completeChat", "Answer a conversation, as OpenAI's Chat Completions", {
    ...STREAMED,
    description: "Replies and errors are OpenAI's. With `stream` the reply is server-sent events.",
    body: "ChatCompletionRequest",
    ...ASKED,
    idempotent: byStream,
    handle: ({ body }, call) =>
      answerChat(agentOf(call.service.agents, body.model), body as ChatCompletionRequest, call),
  }),
  post("/v1/responses", "openai.createResponse", "Answer items, as OpenAI's Responses", {
    ...STREAMED,
    description:
      "Replies and errors are OpenAI's. With `stream` the reply is server-sent events. Calls of the agent's own tools are items of the type `penstock:tool_call`.",
    body: "CreateResponseRequest",
    ...ASKED,
    idempotent: byStream,
    handle: ({ body }, call) => {
      const { agents, responses } = call.service;
      return createResponse(agentOf(agents, body.model), body as CreateResponseRequest, call, responses);
    },
  }),
  post("/v1/responses/compact", "openai.compactResponse", "Sum up a conversation, which goes on behind the summary", {
    ...WHOLE,
    description:
      "The reply has an item of the type `compaction`, which stands for the conversation in the `input` of `/v1/responses`.",
    body: "CompactResponseRequest",
    ...ASKED,
    idempotent: true,
    async handle({ body }, call) {
      const { agents, responses } = call.service;
      return jsonReply(await compactConversation(agentOf(agents, body.model), body, call, responses));
    },
  }),
  post("/v1/responses/input_tokens", "openai.countInput", "Estimate the tokens of what a response would be asked", {
    ...WHOLE,
    description: "The body is that of `/v1/responses`. What the agent adds of its own is not counted.",
    body: "CreateResponseRequest",
    ...ASKED,
    handle: async ({ body }, call) => jsonReply(await estimateInput(body as CreateResponseRequest, call)),
  }),
  post("/v1/embeddings", "openai.embed", "Embed texts, as OpenAI's Embeddings", {
    ...WHOLE,
    description: "`model` is the `embedding` of a memory's `semantic`.",
    body: "EmbeddingRequest",
    failures: ["not_found"],
    handle: async ({ body }, { service, signal }) => jsonReply(await embed(service.memories.values(), body, signal)),
  }),
  get("/v1/responses/:id", "openai.getResponse", "Read a stored response, or follow one that runs in the background", {
    ...STREAMED,
    query: "ResponseQuery",
    holds: true,
    async handle({ params, query }, call) {
      const { responses } = call.service;
      const principal = responses.principalOf(call);
      if (query.stream === true) return responses.follow(params.id!, query, principal);
      return jsonReply(await responses.get(params.id!, principal, call.charge));
    },
  }),
  del("/v1/responses/:id", "openai.deleteResponse", "Delete a stored response", kept("delete")),
  post(
    "/v1/responses/:id/cancel",
    "openai.cancelResponse",
    "Stop a response that runs in the background",
    kept("cancel"),
  ),
  get("/v1/responses/:id/input_items", "openai.listInputItems", "List the items that a stored response was asked", {
    ...WHOLE,
    query: "ResponseItemsQuery",
    holds: true,
    async handle({ params, query }, call) {
      const { responses } = call.service;
      return jsonReply(await responses.inputItems(params.id!, query, responses.principalOf(call), call.charge));
    },
  }),
];
