/** The methods of an agent that the API calls: each is a run with its own kind of sink. */

import type { StartedRun } from "../../generated/types.ts";
import { ownerOf } from "../identity/ownership.ts";
import { invalid } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Agent, ChatBody, GenerateBody, ObjectBody } from "./agent.ts";
import { replyMessageId } from "./conversation/agent-memory.ts";
import { summarizeLines } from "./conversation/write-summary.ts";
import type { Description } from "./describe.ts";
import type { KeptRequest, ReplyForm, StartableRun } from "./keeper.ts";
import { keptAgent, startable } from "./kept.ts";
import { prepareProtocol } from "./protocol-run.ts";
import type { RunCall } from "./run/caller.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, prepareRun } from "./run/execute.ts";
import { objectOutput } from "./run/output.ts";
import { ObjectSink } from "./stream/object.ts";
import { textResult } from "./stream/text.ts";
import { UiSink } from "./stream/ui-chunks.ts";

export function createAgent(agent: CompiledAgent, description: Description): Agent {
  const { id, name } = agent;
  const kept = keptAgent(agent);
  const stream = (request: KeptRequest, call: RunCall, form?: (run: StartableRun) => ReplyForm) => {
    requireForeground(request);
    const run = startable(agent, kept, request, call, true);
    return run.events(form?.(run));
  };
  return {
    id,
    name,
    description: agent.description,
    kept,
    summary: () => description.summary(),
    detail: () => description.detail(),
    onStatusChange: (listener) => agent.activity.onChange(listener),
    async generateText(body, call, approves) {
      const run = startable(agent, kept, answerRequest(body, approves), call, false);
      return body.options?.background === true && run.kept !== undefined
        ? started(run, call)
        : textResult(await run.result());
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
    async generateObject(body, call) {
      const run = startable(agent, kept, objectRequest(body), call, false);
      return body.options?.background === true && run.kept !== undefined
        ? started(run, call)
        : (await run.result()).output;
    },
    stream: (body, call) => stream(answerRequest(body), call),
    chat(body, call) {
      const request = chatRequest(body, agent.asks);
      return stream(request, call, (run) => {
        if (body.options?.resumableStream === true) requireConversation(run);
        const messageId = replyMessageId(request.input, run.id);
        return (events) => new UiSink(events, messageId);
      });
    },
    streamObject(body, call): EventProducer {
      requireForeground(body);
      const run = startable(agent, kept, objectRequest(body), call, true);
      return async (events) => {
        let sink: ObjectSink | null = null;
        const open: ReplyForm = (to) => {
          sink = new ObjectSink(to, run.prepared.plan.output?.bracket);
          return sink;
        };
        try {
          await (await run.events(open))(events);
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
async function started(run: StartableRun, call: RunCall): Promise<never> {
  await run.kept!.start();
  call.replyWith = { facts: { runId: run.id }, status: 202 };
  const { id: runId } = run;
  return { runId, status: "running" } satisfies StartedRun as never;
}

function requireForeground({ options }: Pick<KeptRequest, "options">): void {
  if (options?.background === true) throw invalid("options.background is for /text and /object, which do not stream");
}

/** Not made with a spread: copying a parsed body takes longer than all else that is done with it. */
const answerRequest = ({ input, options }: GenerateBody, approves?: false): KeptRequest => ({
  input,
  options,
  runsTools: true,
  approves,
});

const objectRequest = ({ input, options, schema }: ObjectBody): KeptRequest => ({ input, options, schema });

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

function requireConversation({ prepared: { plan } }: StartableRun): void {
  const { userId, conversationId } = plan.settings.memory;
  if (userId === undefined || conversationId === undefined)
    throw invalid("options.resumableStream needs memory.userId and memory.conversationId");
}
