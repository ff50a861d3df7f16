/** The methods of an agent that the API calls: each is a run with its own kind of sink. */

import type { StartedRun } from "../../generated/types.ts";
import { ownerOf } from "../identity/ownership.ts";
import { invalid } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { Agent, ChatBody, GenerateBody, ObjectBody, RunCall } from "./agent.ts";
import { replyMessageId } from "./conversation/agent-memory.ts";
import { summarizeLines } from "./conversation/write-summary.ts";
import type { Description } from "./describe.ts";
import type { KeptRequest, KeptRun } from "./keeper.ts";
import { answersOf, keptAgent, keptRun, orAnswered, requireFreeId } from "./kept.ts";
import { prepareKept, prepareProtocol } from "./protocol-run.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, executeStream, type PreparedRun, prepareRun, type RunRequest } from "./run/execute.ts";
import { objectOutput, schemaRateKey } from "./run/output.ts";
import { ObjectSink } from "./stream/object.ts";
import { RawSink } from "./stream/raw.ts";
import { textResult } from "./stream/text.ts";
import { UiSink } from "./stream/ui-chunks.ts";

export function createAgent(agent: CompiledAgent, description: Description): Agent {
  const { id, name } = agent;
  const kept = keptAgent(agent);
  const prepareObject = (body: ObjectBody, call: RunCall) => {
    const result = objectOutput(agent.prepareSchema(body.schema, "schema", schemaRateKey(call)));
    return prepareRun(agent, { input: body.input, options: body.options, result, runId: body.options?.runId }, call);
  };
  const newAnswer = ({ input, options }: GenerateBody, call: RunCall, streams: boolean, approves = true) =>
    keptRun(
      agent,
      kept,
      () => ({ input, options, runsTools: true, ...(approves ? { waits: true } : { approves }) }),
      options,
      call,
      streams,
    );
  const newObject = ({ input, options, schema }: ObjectBody, call: RunCall, streams: boolean) =>
    keptRun(agent, kept, () => ({ input, options, schema }), options, call, streams);
  return {
    id,
    name,
    description: agent.description,
    kept,
    summary: () => description.summary(),
    detail: () => description.detail(),
    onStatusChange: (listener) => agent.activity.onChange(listener),
    async generateText(body, call, approves = true) {
      const answers = approves ? answersOf(agent, body, call) : null;
      const answered = answers === null ? null : await answers();
      if (answered !== null) return textResult(await answered.result());
      const run = newAnswer(body, call, false, approves);
      if (run !== null) return body.options?.background === true ? started(run, call) : textResult(await run.result());
      const prepared = prepareRun(agent, answerRequest(body, approves), call);
      const isFree = requireFreeId(agent, prepared, body.options);
      if (isFree !== undefined) await isFree;
      return textResult(await execute(agent, prepared));
    },
    async run({ result, ...body }, call, sink) {
      const output = result === undefined ? undefined : objectOutput(result);
      return execute(agent, prepareRun(agent, { ...body, output }, call), sink);
    },
    prepare: (body, call) => prepareProtocol(agent, kept, body, call),
    async summarize(lines, call) {
      const chain = agent.chain({ context: {}, user: call.user });
      agent.activity.enter();
      try {
        return await summarizeLines(chain, lines, call);
      } finally {
        agent.activity.leave();
      }
    },
    prepareKept: (body, call, runId) => prepareKept(agent, kept, body, call, runId),
    async generateObject(body, call) {
      const run = newObject(body, call, false);
      if (run !== null) return body.options?.background === true ? started(run, call) : (await run.result()).output;
      const prepared = prepareObject(body, call);
      const isFree = requireFreeId(agent, prepared, body.options);
      if (isFree !== undefined) await isFree;
      return (await execute(agent, prepared)).output;
    },
    stream(body, call) {
      requireForeground(body);
      const answers = answersOf(agent, body, call);
      const run = newAnswer(body, call, true);
      if (run !== null) return orAnswered(answers, undefined, run.events());
      const prepared = prepareRun(agent, answerRequest(body), call);
      const isFree = requireFreeId(agent, prepared, body.options);
      return orAnswered(answers, undefined, async (events) => {
        if (isFree !== undefined) await isFree;
        return executeStream(agent, prepared, new RawSink(events));
      });
    },
    chat(body, call) {
      requireForeground(body);
      const request = chatRequest(body, agent.asks);
      const { options } = body;
      const answers = answersOf(agent, request, call);
      const run = keptRun(agent, kept, () => request, options, call, true);
      if (run !== null) {
        if (options?.resumableStream === true) requireConversation(run.prepared);
        const form = (events: EventSink) => new UiSink(events, replyMessageId(request.input, run.id));
        return orAnswered(answers, form, run.events(form));
      }
      const prepared = prepareRun(agent, { ...request, runId: options?.runId }, call);
      const messageId = replyMessageId(request.input, prepared.plan.id);
      const isFree = requireFreeId(agent, prepared, options);
      const form = (events: EventSink) => new UiSink(events, messageId);
      return orAnswered(answers, form, async (events) => {
        if (isFree !== undefined) await isFree;
        return executeStream(agent, prepared, form(events));
      });
    },
    streamObject(body, call): EventProducer {
      requireForeground(body);
      const run = newObject(body, call, true);
      const prepared = run?.prepared ?? prepareObject(body, call);
      const isFree = run === null ? requireFreeId(agent, prepared, body.options) : undefined;
      return async (events) => {
        if (isFree !== undefined) await isFree;
        let sink: ObjectSink | null = null;
        const open = (to: typeof events) => {
          sink = new ObjectSink(to, prepared.plan.output?.bracket);
          return sink;
        };
        try {
          if (run === null) await executeStream(agent, prepared, open(events));
          else await run.events(open)(events);
        } finally {
          (sink as ObjectSink | null)?.close();
        }
      };
    },
    history: async (page, limit, principal) =>
      agent.history.page(page, limit, principal.isolated ? ownerOf(principal) : undefined),
  };
}

/** The reply to a request whose run continues in the background. */
async function started(run: KeptRun, call: RunCall): Promise<never> {
  await run.start();
  call.replyWith = { headers: ["x-run-id", run.id], status: 202 };
  const { id: runId } = run;
  return { runId, status: "running" } satisfies StartedRun as never;
}

function requireForeground({ options }: Pick<GenerateBody, "options">): void {
  if (options?.background === true) throw invalid("options.background is for /text and /object, which do not stream");
}

/** Not made with a spread: copying a parsed body takes longer than all else that is done with it. */
const answerRequest = ({ input, options }: GenerateBody, approves = true): RunRequest => ({
  input,
  options,
  runsTools: true,
  approves,
  runId: options?.runId,
});

/** Accepts our own body, and the one that a chat hook posts: `{id, messages, trigger, messageId}`. */
function chatRequest(body: ChatBody, asks: boolean): KeptRequest {
  const { options, id } = body;
  const [field, input] = body.input !== undefined ? ["input", body.input] : ["messages", body.messages];
  if (input === undefined) throw invalid("input is required (or messages, as a chat hook sends them)");
  const conversationId = typeof id === "string" ? id : undefined;
  return {
    input: throughMessage(input, body),
    field,
    options,
    conversationId,
    clientKnowsMessageId: true,
    runsTools: true,
    waits: true,
    ...((asks || options?.resumableStream === true) && { isResumable: true }),
  };
}

/**
 * The messages up to the one that the client edits or whose answer it wants regenerated: hooks omit later ones, and so may a client
 * that sends the whole list.
 */
function throughMessage(input: unknown, { trigger, messageId }: ChatBody): unknown {
  if (!Array.isArray(input) || messageId === undefined) return input;
  const index = input.findIndex((message) => message?.id === messageId);
  if (index === -1) return input;
  const again = trigger === "regenerate-message" && input[index].role === "assistant";
  const kept = input.slice(0, again ? index : index + 1);
  return kept.length === 0 || kept.length === input.length ? input : kept;
}

function requireConversation({ plan }: PreparedRun): void {
  const { userId, conversationId } = plan.settings.memory;
  if (userId === undefined || conversationId === undefined)
    throw invalid("options.resumableStream needs memory.userId and memory.conversationId");
}
