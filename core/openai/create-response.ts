/** `POST /v1/responses`: an agent answers items, and what is stored can be continued. */
import { randomUUID } from "node:crypto";
import type { CreateResponseRequest } from "../../generated/types.ts";
import type { Agent, ProtocolRun, RunCall } from "../agents/agent.ts";
import type { ClientTool } from "../agents/run/client-tools.ts";
import type { RawReply } from "../http/route.ts";
import { ownerOf } from "../identity/ownership.ts";
import { systemTime } from "../lib/clock.ts";
import { invalid, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { errorFields, type FieldNames, inOwnWords, jsonReply, unsupported } from "./errors.ts";
import type { ConversationItem } from "./items.ts";
import { readFormat, samplingOptions } from "./options.ts";
import { beginResource, failedEnd, type ResponseResource } from "./resource.ts";
import {
  conversationOf,
  type EarlierItems,
  NOTHING_EARLIER,
  readEarlier,
  resolveReferences,
} from "./response-context.ts";
import { readInput } from "./response-input.ts";
import { ResponseOutput } from "./response-output.ts";
import { MAX_STORED_CHARACTERS, type ResponseRecord } from "./response-rows.ts";
import { ResponseStream } from "./response-stream.ts";
import { RESPONSE_INTERRUPTED, type Responses } from "./responses.ts";
import { hearRun, streamTranslated } from "./run-sink.ts";
import { chooseTools, isNothing, readFunction, requireFunction } from "./tools.ts";

type Fields = Readonly<Record<string, unknown>>;
type Body = CreateResponseRequest;

const FIELDS: FieldNames = {
  temperature: "temperature",
  maxOutputTokens: "max_output_tokens",
  topP: "top_p",
  frequencyPenalty: "frequency_penalty",
  presencePenalty: "presence_penalty",
};

/** A response that begins. */
interface Begun {
  readonly resource: ResponseResource;
  readonly output: ResponseOutput;
  readonly record: ResponseRecord;
}

export async function createResponse(agent: Agent, body: Body, call: RunCall, responses: Responses): Promise<RawReply> {
  const isBackground = body.background === true;
  if (isBackground) requireBackground(body);
  const principal = responses.principalOf(call);
  const id = `resp_${randomUUID().replaceAll("-", "")}`;
  const tools = readTools(body);
  const input = await resolveReferences(responses.rows, readInput(body.input, id), principal);
  const { previous_response_id: previous } = body;
  const earlier = isNothing(previous) ? NOTHING_EARLIER : await readEarlier(responses.rows, previous, principal);
  const abort = new AbortController();
  const run = prepare(agent, body, { tools, input, earlier }, isBackground ? detached(call, abort.signal) : call);

  const createdAt = systemTime();
  const store = isStored(body, input);
  const resource = beginResource({ id, createdAt: toSeconds(createdAt), body, tools, store });
  const output = new ResponseOutput(id, () => toSeconds(systemTime()));
  const record: ResponseRecord = { resource, owner: ownerOf(principal), createdAt, input, chain: earlier.chain };
  const begun: Begun = { resource, output, record };
  if (isBackground) {
    const working = { ...record, process: responses.background.process };
    await responses.background.begin(working, abort, () => runAlone(run, begun, call, abort.signal));
    return jsonReply(resource);
  }
  const finish = () => finished(begun, responses);
  if (body.stream === true) return streamTranslated(run, new ResponseStream(resource, output, finish));
  await hearRun(run, (said) => output.of(said));
  return jsonReply(shown(await finish(), body));
}

const OWN_CALLS = "penstock:tool_call";

/** Released clients refuse a whole reply with items that they do not know, and skip such items in streams. */
function shown(resource: ResponseResource, { include }: Body): ResponseResource {
  if (include?.includes(OWN_CALLS)) return resource;
  return { ...resource, output: resource.output.filter(({ type }) => type !== OWN_CALLS) };
}

function requireBackground({ store, stream }: Body): void {
  if (store === false)
    throw invalid("background must not be true where store is false: nobody could read the response");
  if (stream === true) throw unsupported("stream", "is not available in the background: ask for the response again");
}

/** What a run in the background has of its request: all but its end. */
const detached = ({ user, caller, requestId, logger, trace, client }: RunCall, signal: AbortSignal): RunCall => ({
  user,
  caller,
  requestId,
  logger,
  trace,
  signal,
  ...(client !== undefined && { client }),
});

interface Conversation {
  readonly tools: readonly ClientTool[];
  readonly input: readonly ConversationItem[];
  readonly earlier: EarlierItems;
}

function prepare(agent: Agent, body: Body, { tools, input, earlier }: Conversation, call: RunCall): ProtocolRun {
  const { text, reasoning, instructions, tool_choice: choice } = body;
  const effort = reasoning?.effort;
  return inOwnWords(FIELDS, () =>
    agent.prepare(
      {
        input: conversationOf(instructions, earlier, input),
        field: "input",
        options: samplingOptions(body, body.max_output_tokens),
        json: readFormat(text?.format?.type, text?.format?.schema, "text.format.schema"),
        approves: false,
        effort: isNothing(effort) ? undefined : { value: effort, field: "reasoning.effort" },
        ...chooseTools(tools, choice, ({ name }) => name),
      },
      call,
    ),
  );
}

function readTools({ tools }: Body): ClientTool[] {
  return (tools ?? []).map((tool, index) => {
    requireFunction(tool as Fields, `tools[${index}]`);
    return readFunction(tool as Fields, `tools[${index}]`);
  });
}

/** Whether the response is stored. By default one that is too large is not, and says so. */
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

/** The resource of a run that has ended, stored if it is to be. */
async function finished({ resource, output, record }: Begun, { rows }: Responses): Promise<ResponseResource> {
  const whole = wholeResource(resource, output);
  if (!whole.store) return whole;
  const stored = { ...record, resource: whole };
  const text = JSON.stringify(stored);
  if (text.length > MAX_STORED_CHARACTERS) return { ...whole, store: false };
  try {
    await rows.create(stored, text);
  } catch (cause) {
    // What the run did must not be done again.
    const message = `the response could not be stored: ${messageOf(cause)}`;
    throw new ServiceError("unavailable", message, { headers: { "x-should-retry": "false" }, cause });
  }
  return whole;
}

function wholeResource(resource: ResponseResource, { end, items, usage }: ResponseOutput): ResponseResource {
  if (end === null) throw unavailable("the run was stopped");
  return { ...resource, ...end, output: items, usage };
}

/** Never rejects: how the run has failed is told by the resource. */
async function runAlone(
  run: ProtocolRun,
  { resource, output }: Begun,
  call: RunCall,
  signal: AbortSignal,
): Promise<ResponseResource> {
  try {
    await hearRun(run, (said) => output.of(said));
    const whole = wholeResource(resource, output);
    if (JSON.stringify(whole).length <= MAX_STORED_CHARACTERS / 2) return whole;
    return { ...resource, ...failedEnd("server_error", "the response is too large to be stored"), usage: output.usage };
  } catch (error) {
    if (!(error instanceof ServiceError)) call.logger.error({ err: error, response: resource.id }, messageOf(error));
    else if (error.cause !== undefined) call.logger.warn({ ...error.logged, err: error.cause }, error.message);
    const told = error instanceof ServiceError ? error.message : `internal error (request id ${call.requestId})`;
    const message = signal.aborted ? RESPONSE_INTERRUPTED : told;
    return {
      ...resource,
      ...failedEnd(errorFields(error).code, message),
      output: output.cutOff(),
      usage: output.usage,
    };
  }
}
