/** `POST /v1/responses`: an agent answers items, stored responses can be continued, and a conversation can be summed up. */

import { randomUUID } from "node:crypto";
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { CompactResponseRequest, CreateResponseRequest } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { TooLongToSumUp } from "../agents/conversation/recall.ts";
import { requireAllResults } from "../agents/prompt/results.ts";
import { BYTES_PER_TOKEN, messageBytes } from "../agents/prompt/size.ts";
import type { RunCall } from "../agents/run/caller.ts";
import type { ClientTool } from "../agents/run/tool-set.ts";
import type { ProtocolBody, ProtocolRun } from "../agents/run-requests.ts";
import type { Charge } from "../http/exchange.ts";
import type { KeyedWork } from "../http/idempotency.ts";
import type { RawReply } from "../http/route.ts";
import { mayAccess, ownerOf, type Principal, type Requester } from "../identity/principal.ts";
import { systemTime } from "../lib/clock.ts";
import { invalid, messageOf, quoted, ServiceError, unavailable } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { type FieldNames, type InputMessage, type InputPart, inOwnWords, jsonReply, OpenaiError } from "./errors.ts";
import { type InputItem, partsOf, readInput, sealed, unansweredCalls } from "./item-parts.ts";
import {
  beginResource,
  type CompactionItem,
  type ConversationItem,
  type EarlierItems,
  itemId,
  messagesOf,
  type ReadItem,
  type ResponseResource,
  responseOfItem,
  responseUsage,
} from "./items.ts";
import { agentOf } from "./models.ts";
import { ResponseEvents, ResponseOutput, responseStream } from "./response-events.ts";
import { MAX_STORED_CHARACTERS, type ResponseRecord, type ResponseRows } from "./response-rows.ts";
import { type Responses, responseRunId } from "./responses.ts";
import { hearRun, streamTranslated } from "./run-parts.ts";
import { chooseTools, isNothing, optionsOf, readFormat, readFunction, requireFunction, SAMPLING } from "./tools.ts";

// The context of a response: the responses before it, and the items to which its request refers.

/** Most responses that one may continue, and most responses to whose items one request may refer. */
const MAX_CHAIN = 500;
/** Most characters that are read for one request. */
const MAX_CHARACTERS = 32 * 1024 * 1024;

/** Statuses of responses that can be continued, because they have ended. */
const CONTINUED: ReadonlySet<string> = new Set(["completed", "incomplete"]);

const NOTHING_EARLIER: EarlierItems = { items: [], chain: [], size: 0 };

/** The conversation up to the end of a response. What is read from the store later starts after one that is not stored. */
export function continued({ items, chain, size }: EarlierItems, record: ResponseRecord): EarlierItems {
  const { id, store } = record.resource;
  const own = itemsOf(record);
  return { items: [...items, ...own], chain: store ? [...chain, id] : [], size: size + JSON.stringify(own).length };
}

/**
 * The items of the response and of those before it; none without an id. If one of them no longer exists, starts after that.
 *
 * @throws OpenaiError when the response does not exist for this principal, has not ended, or has too much before it
 */
async function readEarlier(
  responses: Responses,
  id: string | null | undefined,
  principal: Principal,
  charge: Charge | undefined,
): Promise<EarlierItems> {
  if (isNothing(id)) return NOTHING_EARLIER;
  const { rows } = responses;
  const found = await responses.lookUp(id, principal, charge);
  if (found === undefined)
    throw unusable("previous_response_not_found", `previous response ${quoted(id)} does not exist`);
  const { record } = found;
  if (!CONTINUED.has(record.resource.status))
    throw unusable("invalid_value", `previous_response_id is that of a response that is ${record.resource.status}`);
  const chain = [...record.chain, id];
  requireChain(chain);
  let items: ConversationItem[] = [];
  let expected = 0;
  let size = 0;
  for await (const group of rows.readAll(chain)) {
    for (const each of group) {
      const place = chain.indexOf(each.record.resource.id, expected);
      if (place !== expected) items = [];
      expected = place + 1;
      items.push(...itemsOf(each.record));
      size += each.size;
    }
    if (size > MAX_CHARACTERS) throw tooLong("previous_response_id has too much text before it");
    charge?.copies(size);
  }
  return { items: withTheirCalls(items), chain, size };
}

/** @throws OpenaiError for a conversation of too many responses */
function requireChain(chain: readonly string[]): void {
  if (chain.length > MAX_CHAIN) throw tooLong(`previous_response_id has more than ${MAX_CHAIN} responses before it`);
}

/** Removes outputs without a call: the call may have been in an earlier response that no longer exists. */
function withTheirCalls(items: readonly ConversationItem[]): ConversationItem[] {
  const calls = unansweredCalls(items);
  return items.filter((item) => item.type !== "function_call_output" || calls.has(item.call_id));
}

const itemsOf = ({ input, resource }: ResponseRecord): readonly ConversationItem[] => [...input, ...resource.output];

const unusable = (code: string, message: string) =>
  new OpenaiError("invalid_input", message, code, "previous_response_id");
const tooLong = (message: string) => unusable("context_length_exceeded", `${message}: begin a new one`);

/** Replaces references to items by these items. @throws OpenaiError for an item that does not exist for this principal */
async function resolveReferences(
  rows: ResponseRows,
  items: readonly InputItem[],
  principal: Principal,
  charge: Charge | undefined,
): Promise<ConversationItem[]> {
  const references = items.filter((item) => item.type === "item_reference");
  if (references.length === 0) return items as ConversationItem[];
  const responses = [...new Set(references.map(({ id }) => responseOfItem(id)))].filter((id) => id !== undefined);
  if (responses.length > MAX_CHAIN) throw referenceError("context_length_exceeded", "refers to too many responses");
  const known = new Map<string, ConversationItem>();
  let size = 0;
  for await (const group of rows.readAll(responses)) {
    for (const { record, size: own } of group) {
      size += own;
      if (!mayAccess(principal, record.owner, undefined)) continue;
      for (const item of itemsOf(record)) known.set(item.id, item);
    }
    if (size > MAX_CHARACTERS) throw referenceError("context_length_exceeded", "refers to too much text");
    charge?.copies(size);
  }
  const used = new Set<string>();
  return items.map((item, index) => {
    if (item.type !== "item_reference") return item;
    if (used.has(item.id)) {
      const twice = `input[${index}].id: item ${quoted(item.id)} is referred to twice`;
      throw new OpenaiError("invalid_input", twice, "invalid_value", "input");
    }
    used.add(item.id);
    const found = known.get(item.id);
    if (found !== undefined) return found;
    const message = `input[${index}].id: item ${quoted(item.id)} does not exist`;
    throw new OpenaiError("not_found", message, "item_not_found", "input");
  });
}

const referenceError = (code: string, message: string) =>
  new OpenaiError("invalid_input", `input ${message}`, code, "input");

/** The whole conversation as messages. @throws ServiceError `invalid_input` that names the field of the request */
function conversationOf(
  instructions: string | null | undefined,
  { items: earlier }: EarlierItems,
  input: readonly ConversationItem[],
): InputMessage[] {
  const open = unansweredCalls([...earlier, ...input]);
  const read = (items: readonly ConversationItem[], pathOf: (index: number) => string): ReadItem[] =>
    items.map((item, index) => ({ item, path: pathOf(index), parts: partsOf(item, pathOf(index), open) }));
  const messages = messagesOf([...read(earlier, () => "previous_response_id"), ...read(input, (at) => `input[${at}]`)]);
  return instructions ? [{ role: "system", content: instructions }, ...messages] : messages;
}

// Reads a request for a response, over HTTP or a WebSocket: prepares the run of the agent, and the response at its start.

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

// `POST /v1/responses/compact`: the agent's model summarizes a conversation, which continues after the summary.

/** Most characters of the text to summarize, because a model reads all of it. */
const MAX_SUMMED_CHARACTERS = 2 * 1024 * 1024;

export async function compactConversation(
  agent: Agent,
  { input: given, previous_response_id: previous, instructions }: CompactResponseRequest,
  call: RunCall,
  responses: Responses,
) {
  const principal = responses.principalOf(call);
  const id = `resp_${randomUUID().replaceAll("-", "")}`;
  if (isNothing(given) && isNothing(previous)) throw invalid("input is required without previous_response_id");
  const read = isNothing(given) ? [] : readInput(given, id);
  const input = await resolveReferences(responses.rows, read, principal, call.charge);
  const earlier = await readEarlier(responses, previous, principal, call.charge);
  const lines = conversationOf(instructions, earlier, input).flatMap(messageLine);
  if (lines.length === 0) throw invalid("input must have a text to sum up");
  if (lines.reduce((sum, line) => sum + line.length, 0) > MAX_SUMMED_CHARACTERS)
    throw unsummable(`more than ${MAX_SUMMED_CHARACTERS} characters of text, which cannot be summed up`);
  const { summary, usage } = await agent.summarize(lines, call).catch((error: unknown) => {
    throw error instanceof TooLongToSumUp ? unsummable(error.message) : error;
  });
  const item: CompactionItem = {
    type: "compaction",
    id: itemId("compaction", id, "0"),
    status: "completed",
    encrypted_content: sealed({ summary }),
  };
  const createdAt = Math.floor(systemTime() / 1000);
  return { id, object: "response.compaction", created_at: createdAt, output: [item], usage: responseUsage(usage) };
}

const unsummable = (how: string) =>
  new OpenaiError("invalid_input", `input is ${how}`, "context_length_exceeded", "input");

function messageLine({ role, content }: InputMessage): string[] {
  const texts = typeof content === "string" ? [content] : content.flatMap(partText);
  return texts.length === 0 ? [] : [`${role}: ${texts.join("\n")}`];
}

/** A part as text. Parts that are not text are named; reasoning is left out, because its result is in the answer. */
function partText({ type, text, mediaType, toolName, input, output }: InputPart): string[] {
  switch (type) {
    case "text":
      return (text as string).trim() === "" ? [] : [text as string];
    case "image":
      return ["(an image)"];
    case "file":
      return [`(a file: ${String(mediaType ?? "of some type")})`];
    case "tool-call":
      return [`(calls ${String(toolName)}: ${JSON.stringify(input)})`];
    case "tool-result":
      return [`(result of ${String(toolName)}: ${resultText(output)})`];
    default:
      return [];
  }
}

/** A result as text, without the bytes of images and files. */
function resultText(output: unknown): string {
  const { type, value } = isObject(output) ? output : {};
  if (type !== "content" || !Array.isArray(value))
    return typeof value === "string" ? value : JSON.stringify(value ?? null);
  return value.map((part) => (part.type === "text" ? part.text : `(${String(part.type).split("-")[0]})`)).join("\n");
}

export async function createResponse(agent: Agent, body: Body, call: RunCall, responses: Responses): Promise<RawReply> {
  const { store, background, stream } = body;
  if (background === true && store === false)
    throw invalid("background must not be true where store is false: nobody could read the response");
  const principal = responses.principalOf(call);
  const begun = await readResponseRequest(body, principal, responses, call);
  const { record, output, asked, messages } = begun;
  const { resource } = record;
  if (background === true) {
    // It is read later: with what came of the answer.
    const inBackground = { ...asked, approves: undefined, options: { ...asked.options, background: true } };
    const run = inOwnWords(FIELDS, messages, () => agent.prepare(inBackground, call));
    const stored = await responses.background.begin({ ...record, run: readingOf(run) }, run.kept!, principal);
    return stream === true ? responses.follow(resource.id, {}, principal) : jsonReply(stored.resource);
  }
  const streams = stream === true;
  const run = inOwnWords(FIELDS, messages, () => agent.prepare({ ...asked, streams }, call));
  const finish = () => finished(begun, run, responses);
  if (streams) {
    const events = responseStream(new ResponseEvents(resource, output), finish);
    const isShared = call.keyed !== undefined && resource.store;
    return streamTranslated(run, events, isShared ? responses.storing : undefined);
  }
  await hearRun(run, (said) => output.of(said));
  return jsonReply(shown(await finish(), body));
}

const OWN_CALLS = "penstock:tool_call";

/** Hides items that clients may not know: released clients refuse a whole reply with such items, but skip them in streams. */
function shown(resource: ResponseResource, { include }: Body): ResponseResource {
  if (include?.includes(OWN_CALLS)) return resource;
  return { ...resource, output: resource.output.filter(({ type }) => type !== OWN_CALLS) };
}

/** How the parts of a run are read later. */
const readingOf = ({ isJson, clientTools }: ProtocolRun) => ({ isJson, clientTools });

/** The resource of a run that has ended, or waits; it is stored if requested. */
export async function finished(
  { record, output }: NewResponse,
  run: ProtocolRun,
  { rows }: Responses,
): Promise<ResponseResource> {
  const { end, items, usage } = output;
  if (end === null) throw unavailable("the run was stopped");
  const whole = { ...record.resource, ...end, output: items, usage };
  if (!whole.store) return whole;
  const stored = { ...record, resource: whole, ...(output.waits && { run: readingOf(run), waits: true as const }) };
  const text = JSON.stringify(stored);
  if (text.length > MAX_STORED_CHARACTERS) return { ...whole, store: false };
  try {
    return (await rows.createOnce(stored, text)).record.resource;
  } catch (cause) {
    // The request must not be repeated, because the run has happened.
    const message = `the response could not be stored: ${messageOf(cause)}`;
    throw new ServiceError("unavailable", message, { headers: { "x-should-retry": "false" }, cause });
  }
}
