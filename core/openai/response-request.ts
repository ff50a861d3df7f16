/** Reads a request for a response, over HTTP or a WebSocket: prepares the run of the agent, and the response at its start. */
import { randomUUID } from "node:crypto";
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { CreateResponseRequest } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { requireAllResults } from "../agents/prompt/results.ts";
import { BYTES_PER_TOKEN, messageBytes } from "../agents/prompt/size.ts";
import type { ClientTool } from "../agents/run/tool-set.ts";
import type { ProtocolBody } from "../agents/run-requests.ts";
import type { Charge } from "../http/exchange.ts";
import type { KeyedWork } from "../http/idempotency.ts";
import { ownerOf, type Principal, type Requester } from "../identity/principal.ts";
import { systemTime } from "../lib/clock.ts";
import { ServiceError } from "../lib/errors.ts";
import type { Fields } from "../lib/is-object.ts";
import { responseRunId } from "./background.ts";
import type { FieldNames } from "./errors.ts";
import type { ConversationItem, EarlierItems } from "./items.ts";
import { agentOf } from "./models.ts";
import { optionsOf, readFormat, SAMPLING } from "./options.ts";
import type { InputMessage } from "./places.ts";
import { beginResource } from "./resource.ts";
import { conversationOf, readEarlier, requireChain, resolveReferences } from "./response-context.ts";
import { readInput } from "./response-input.ts";
import { ResponseOutput } from "./response-output.ts";
import { MAX_STORED_CHARACTERS, type ResponseRecord } from "./response-rows.ts";
import type { Responses } from "./responses.ts";
import { chooseTools, isNothing, readFunction, requireFunction } from "./tools.ts";

type Body = CreateResponseRequest;

/** The request's names for options of agents. */
export const FIELDS: FieldNames = {
  ...SAMPLING,
  maxOutputTokens: "max_output_tokens",
};

/** A response that is about to start. */
export interface NewResponse {
  readonly record: ResponseRecord;
  readonly earlier: EarlierItems;
  readonly output: ResponseOutput;
  /** The messages for the agent. */
  readonly messages: readonly InputMessage[];
  readonly asked: ProtocolBody;
}

interface Asking {
  /** What the connection has of the response that is continued, if it has it. */
  readonly recent?: EarlierItems | undefined;
  /** Requests with one key are about one response. */
  readonly keyed?: KeyedWork | undefined;
  /** Counts what is read. */
  readonly charge?: Charge | undefined;
}

/**
 * @throws ServiceError `invalid_input` that names the field
 */
export async function readResponseRequest(
  body: Body,
  principal: Principal,
  responses: Responses,
  { recent, keyed, charge }: Asking,
): Promise<NewResponse> {
  const id = `resp_${(keyed?.runId ?? randomUUID()).replaceAll("-", "")}`;
  const tools = (body.tools ?? []).map((tool, index) => {
    requireFunction(tool as Fields, `tools[${index}]`);
    return readFunction(tool as Fields, `tools[${index}]`);
  });
  const input = await resolveReferences(responses.rows, readInput(body.input, id), principal, charge);
  const { previous_response_id: previous } = body;
  const earlier = recent ?? (await readEarlier(responses, previous, principal, charge));
  requireChain(earlier.chain);
  const messages = conversationOf(body.instructions, earlier, input);
  requireAllResults(messages, "input");
  const asked = { ...protocolBody(body, tools, messages), runId: responseRunId(id) };
  const createdAt = keyed?.at ?? systemTime();
  const store = isStored(body, input);
  const resource = beginResource({ id, createdAt: toSeconds(createdAt), body, tools, store });
  const output = new ResponseOutput(id, () => toSeconds(systemTime()));
  const record = { resource, owner: ownerOf(principal), createdAt, input, chain: earlier.chain };
  return { record, earlier, output, messages, asked };
}

export interface ServiceOfResponses {
  readonly agents: ReadonlyMap<string, Agent>;
  readonly responses: Responses;
}

/** An estimate of the tokens that a request has for a model: of the conversation, its instructions and its tools. */
export async function estimateInput(body: Body, call: Requester & Asking & { service: ServiceOfResponses }) {
  const { agents, responses } = call.service;
  agentOf(agents, body.model);
  const { messages, record } = await readResponseRequest(body, responses.principalOf(call), responses, call);
  let bytes = Buffer.byteLength(JSON.stringify(record.resource.tools));
  for (const message of messages) bytes += messageBytes(message as LanguageModelV3Message);
  return { object: "response.input_tokens", input_tokens: Math.ceil(bytes / BYTES_PER_TOKEN) };
}

function protocolBody(body: Body, tools: readonly ClientTool[], messages: readonly InputMessage[]): ProtocolBody {
  const { text, reasoning, tool_choice: choice } = body;
  const effort = reasoning?.effort;
  return {
    input: messages,
    field: "input",
    options: optionsOf(body, FIELDS),
    json: readFormat(text?.format?.type, text?.format?.schema, "text.format.schema"),
    approves: false,
    effort: isNothing(effort) ? undefined : { value: effort, field: "reasoning.effort" },
    ...chooseTools(tools, choice, ({ name }) => name),
  };
}

/** Whether the response is stored. One that is too large is not stored by default, which the response shows. */
function isStored(body: Body, input: readonly ConversationItem[]): boolean {
  const { store, background } = body;
  if (store === false) return false;
  const size = JSON.stringify(input).length + JSON.stringify({ ...body, input: null }).length;
  if (size <= MAX_STORED_CHARACTERS / 2) return true;
  if (store === true || background === true)
    throw new ServiceError(
      "too_large",
      "input, instructions and tools are too large to be stored: send them with store false",
    );
  return false;
}

const toSeconds = (time: number): number => Math.floor(time / 1000);
