/** The methods of an agent that the API calls: each is a run with its own kind of sink. */
import { ownerOf } from "../identity/ownership.ts";
import { invalid } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Agent, ChatBody, GenerateBody, ObjectBody, ProtocolBody, ProtocolRun, RunCall } from "./agent.ts";
import { messageIdForRun } from "./conversation/agent-memory.ts";
import type { Description } from "./describe.ts";
import { reasoningOptions } from "./run/bounds.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, executeStream, type PreparedRun, prepareRun, type RunRequest } from "./run/execute.ts";
import { objectOutput, schemaRateKey } from "./run/output.ts";
import { ObjectSink } from "./stream/object.ts";
import { RawSink } from "./stream/raw.ts";
import { textResult } from "./stream/text.ts";
import { UiSink } from "./stream/ui-chunks.ts";

export function createAgent(agent: CompiledAgent, description: Description): Agent {
  const { id, name } = agent;
  const prepareObject = (body: ObjectBody, call: RunCall) => {
    const result = objectOutput(agent.prepareSchema(body.schema, "schema", schemaRateKey(call)));
    return prepareRun(agent, { input: body.input, options: body.options, result }, call);
  };
  return {
    id,
    name,
    description: agent.description,
    summary: () => description.summary(),
    detail: () => description.detail(),
    onStatusChange: (listener) => agent.activity.onChange(listener),
    async generateText(body, call, approves = true) {
      return textResult(await execute(agent, prepareRun(agent, answerRequest(body, approves), call)));
    },
    async run({ result, ...body }, call, sink) {
      const output = result === undefined ? undefined : objectOutput(result);
      return execute(agent, prepareRun(agent, { ...body, output }, call), sink);
    },
    prepare: (body, call) => prepareProtocol(agent, body, call),
    async generateObject(body, call) {
      return (await execute(agent, prepareObject(body, call))).output;
    },
    stream(body: GenerateBody, call): EventProducer {
      const prepared = prepareRun(agent, answerRequest(body), call);
      return (events) => executeStream(agent, prepared, new RawSink(events));
    },
    chat(body, call): EventProducer {
      const prepared = prepareChat(agent, body, call);
      const messageId = replyMessageId(prepared);
      return (events) => executeStream(agent, prepared, new UiSink(events, messageId));
    },
    streamObject(body, call): EventProducer {
      const prepared = prepareObject(body, call);
      return async (events) => {
        const sink = new ObjectSink(events, prepared.plan.output?.bracket);
        try {
          await executeStream(agent, prepared, sink);
        } finally {
          sink.close();
        }
      };
    },
    history: async (page, limit, principal) =>
      agent.history.page(page, limit, principal.isolated ? ownerOf(principal) : undefined),
  };
}

/** Not with a spread: copying a parsed body takes longer than all else that is done with it. */
const answerRequest = ({ input, options }: GenerateBody, approves = true): RunRequest => ({
  input,
  options,
  runsTools: true,
  approves,
});

function prepareProtocol(agent: CompiledAgent, body: ProtocolBody, call: RunCall): ProtocolRun {
  const { json, effort, options, ...request } = body;
  const schema = json?.schema && agent.prepareSchema(json.schema, json.field, schemaRateKey(call));
  const reasoning = effort && { providerOptions: reasoningOptions(agent.bounds, effort.value, effort.field) };
  const prepared = prepareRun(
    agent,
    {
      ...request,
      options: { ...options, ...reasoning },
      ...(json !== undefined && { output: objectOutput(schema) }),
      runsTools: true,
      approves: false,
    },
    call,
  );
  return {
    isJson: prepared.plan.output?.format !== undefined,
    isForClient: (tool) => prepared.plan.tools.byName.get(tool)?.clientInput !== undefined,
    run: (sink) => executeStream(agent, prepared, sink),
  };
}

/** Accepts our own body, and the one that a chat hook posts: `{id, messages, trigger, messageId}`. */
function prepareChat(agent: CompiledAgent, body: ChatBody, call: RunCall): PreparedRun {
  const { options, id } = body;
  const [field, input] = body.input !== undefined ? ["input", body.input] : ["messages", body.messages];
  if (input === undefined) throw invalid("input is required (or messages, as a chat hook sends them)");
  const request: RunRequest = { input: throughMessage(input, body), field };
  if (options !== undefined) request.options = options;
  if (typeof id === "string") request.conversationId = id;
  request.clientKnowsMessageId = true;
  request.runsTools = true;
  const prepared = prepareRun(agent, request, call);
  if (options?.resumableStream === true) rejectResumable(prepared);
  return prepared;
}

/**
 * The messages up to the one that the client edits, or whose answer it wants anew: hooks leave out what comes after it, and so does a
 * client that sends the whole list.
 */
function throughMessage(input: unknown, { trigger, messageId }: ChatBody): unknown {
  if (!Array.isArray(input) || messageId === undefined) return input;
  const index = input.findIndex((message) => message?.id === messageId);
  if (index === -1) return input;
  const again = trigger === "regenerate-message" && input[index].role === "assistant";
  const kept = input.slice(0, again ? index : index + 1);
  return kept.length === 0 || kept.length === input.length ? input : kept;
}

function rejectResumable({ plan }: PreparedRun): never {
  const { userId, conversationId } = plan.settings.memory;
  if (userId === undefined || conversationId === undefined) {
    throw invalid("options.resumableStream needs memory.userId and memory.conversationId");
  }
  throw invalid("options.resumableStream is not available in this version");
}

/** A reply that continues the last assistant message keeps the id of that message. */
function replyMessageId({ input, plan }: PreparedRun): string {
  const last = Array.isArray(input) ? (input.at(-1) as { role?: unknown; id?: unknown }) : undefined;
  return last?.role === "assistant" && typeof last.id === "string" ? last.id : messageIdForRun(plan.id);
}
