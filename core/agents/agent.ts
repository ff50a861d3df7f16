/** An agent, as the rest of the service uses it: each method that runs it is a run with its own kind of sink. */
import type { HistoryPage, StartedRun, TextResult } from "../../generated/types.ts";
import { ownerOf, type Principal } from "../identity/principal.ts";
import { invalid, ServiceError } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import { messageIdForRun, replyMessageId } from "./conversation/agent-memory.ts";
import { type Summary, summarizeLines } from "./conversation/recall.ts";
import type { Description } from "./describe.ts";
import { type AwaitedCall, awaitedCalls, NO_CALLS } from "./prompt/awaited-calls.ts";
import type { Activity } from "./run/activity.ts";
import type { RunCall } from "./run/caller.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, executeStream, prepareRun } from "./run/execute.ts";
import { objectOutput } from "./run/options.ts";
import type { PartSink } from "./run/parts.ts";
import { reasoningOptions } from "./run/prompt-bounds.ts";
import type { PreparedRun, RunResult } from "./run/run.ts";
import { shownUsage } from "./run/usage.ts";
import type {
  ChatBody,
  GenerateBody,
  KeptAgent,
  KeptRequest,
  ObjectBody,
  ProtocolBody,
  ProtocolRun,
  ReplyForm,
  RunKeeper,
  StartableRun,
  TaskBody,
} from "./run-requests.ts";
import { ObjectSink } from "./stream/object.ts";
import { RawSink, StreamSink } from "./stream/raw.ts";
import { UiSink } from "./stream/ui-chunks.ts";

// Decides which runs of an agent are kept, and starts them.

const keptAgent = (agent: CompiledAgent): KeptAgent => ({
  id: agent.id,
  recovery: agent.recovery,
  prepare: (request, call, runId, journal) => prepareRun(agent, { ...request, runId, journal }, call),
  execute: (prepared, sink, outcome) => execute(agent, prepared, sink, outcome),
});

/**
 * The run for a request: one that waits for what it answers, or a new one, kept from its begin, from the moment in which it asks a person, or
 * not at all.
 *
 * @param streams whether the reply is the stream of the run, which a repeated request with its key follows
 *
 * @throws ServiceError `invalid_input` for an invalid request
 */
function startable(
  agent: CompiledAgent,
  kept: KeptAgent,
  request: KeptRequest,
  call: RunCall,
  streams: boolean,
): StartableRun {
  const { keeper } = agent.keeping;
  const { options } = request;
  const { keyed } = call;
  const isAsked = options?.background === true || options?.resumableStream === true;
  if (keeper === null) {
    if (isAsked) throw invalid("options.background and options.resumableStream are not available here");
    return new PassingRun(agent, request, call);
  }
  const isFollowed = streams && keyed !== undefined;
  const chosen = options?.runId;
  const isChosen = chosen !== undefined;
  const asks = agent.asks && request.schema === undefined;
  const isRepeated = keyed?.isRepeated === true;
  // The first request with the key may have asked, and died.
  const isKept = isAsked || isFollowed || (agent.durable && keeper.lasts) || (asks && isRepeated);
  let run: StartableRun;
  if (isKept || asks) {
    const runId = chosen ?? request.runId ?? keyed?.runId ?? agent.newRunId();
    const key = keyed === undefined ? null : isRepeated ? "repeated" : "first";
    const name = { runId, isChosen, isContested: isChosen || isFollowed || isRepeated, keyed: key } as const;
    run = isKept ? keeper.newRun(kept, request, call, name) : keeper.askingRun(kept, request, call, runId, isChosen);
    if (isKept) call.replyWith = { facts: isFollowed && isRepeated ? { runId, isReplayed: true } : { runId } };
  } else run = new PassingRun(agent, request, call);
  const mayAnswer = request.runsTools === true && request.approves !== false;
  const calls = mayAnswer ? awaitedCalls(request.input) : NO_CALLS;
  return calls.length === 0 ? run : answering(keeper, agent, calls, options?.context, call, run);
}

/** A run that ends with its request. */
class PassingRun implements StartableRun {
  readonly id: string;
  readonly prepared: PreparedRun;
  readonly #agent: CompiledAgent;
  readonly #isFree: Promise<void> | undefined;

  constructor(agent: CompiledAgent, request: KeptRequest, call: RunCall) {
    this.prepared = prepareRun(agent, request, call);
    const { id, settings } = this.prepared.plan;
    this.id = id;
    this.#agent = agent;
    // No kept run may have the id that was chosen for one that is not kept.
    const chosen = request.options?.runId;
    if (chosen !== undefined) this.#isFree = agent.keeping.keeper?.requireFree(chosen, settings.memory.userId);
  }

  result(): ReturnType<StartableRun["result"]> {
    if (this.#isFree === undefined) return execute(this.#agent, this.prepared);
    return this.#isFree.then(() => execute(this.#agent, this.prepared));
  }

  events(form = RAW): EventProducer {
    return async (events) => {
      if (this.#isFree !== undefined) await this.#isFree;
      return executeStream(this.#agent, this.prepared, form(events));
    };
  }
}

const rawForm = (sink: ReplyForm): ReplyForm => Object.assign(sink, { isRaw: true as const });
export const RAW = rawForm((events) => new RawSink(events));
/** As `POST /agents/:id/stream` replies. */
export const STREAM = rawForm((events) => new StreamSink(events));
const STREAM_WITH_TEXT = rawForm((events) => new StreamSink(events, true));

/** Gives the answers of a request to the run that waits for them, if there is one. A function of its own: most requests bring none. */
function answering(
  keeper: RunKeeper,
  { id, defaults }: CompiledAgent,
  calls: readonly AwaitedCall[],
  context: Record<string, unknown> | undefined,
  call: RunCall,
  run: StartableRun,
): StartableRun {
  const meant = async () => {
    const waiting = await keeper.answered(id, calls, context ?? defaults.context, call);
    if (waiting === null) return run;
    call.replyWith = { facts: { runId: waiting.id } };
    return waiting;
  };
  return {
    ...run,
    kept: undefined,
    result: async () => (await meant()).result(),
    events: async (form) => (await meant()).events(form),
  };
}

/**
 * One agent. Every method that runs it throws ServiceError: `invalid_input` at once for an invalid body, later `provider_failed` when the
 * model fails, `not_found` for another user's conversation, and `unavailable` when the conversation cannot be read or stored. Event
 * producers throw the last three while they run, so that they become an error reply or an error event.
 */
export class Agent {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** As the API shows it. */
  readonly summary: Description["summary"];
  readonly detail: Description["detail"];
  readonly activity: Activity;
  /** Prepares and executes its kept runs. */
  readonly kept: KeptAgent;
  readonly #agent: CompiledAgent;

  constructor(agent: CompiledAgent, shown: Description) {
    this.id = agent.id;
    this.name = agent.name;
    this.description = agent.description;
    this.summary = shown.summary;
    this.detail = shown.detail;
    this.activity = agent.activity;
    this.kept = keptAgent(agent);
    this.#agent = agent;
  }

  /**
   * With `options.background` it resolves to a `StartedRun` once the start of the run is on disk.
   *
   * @param approves false where the client cannot answer for a person. Default: it can
   */
  async generateText(body: GenerateBody, call: RunCall, approves?: false): Promise<TextResult> {
    const run = this.#startable(answerRequest(body, approves), call, false);
    return body.options?.background === true && run.kept !== undefined
      ? started(run, call)
      : textResult(await run.result());
  }

  /** For workflow steps: the text, and `output` when `body.result` is given. `sink` receives the parts as they come. */
  async run({ result, ...body }: TaskBody, call: RunCall, sink?: PartSink): Promise<RunResult> {
    const output = result === undefined ? undefined : objectOutput(result);
    return execute(this.#agent, prepareRun(this.#agent, { ...body, output }, call), sink);
  }

  /** Resolves to a value that is valid against `body.schema`. */
  async generateObject(body: ObjectBody, call: RunCall): Promise<unknown> {
    const run = this.#startable(objectRequest(body), call, false);
    return body.options?.background === true && run.kept !== undefined
      ? started(run, call)
      : (await run.result()).output;
  }

  /** The typed parts of the run, one event each. */
  stream(body: GenerateBody, call: RunCall): EventProducer | Promise<EventProducer> {
    const form = body.options?.textInDeltas === true ? STREAM_WITH_TEXT : STREAM;
    return this.#stream(answerRequest(body), call, () => form);
  }

  /** The UI message stream. */
  chat(body: ChatBody, call: RunCall): EventProducer | Promise<EventProducer> {
    const request = chatRequest(body, this.#agent.asks);
    return this.#stream(request, call, (run) => {
      if (body.options?.resumableStream === true) requireConversation(run);
      const messageId = replyMessageId(request.input, run.id);
      return (events) => new UiSink(events, messageId);
    });
  }

  /** Growing partial objects, then the final one. */
  streamObject(body: ObjectBody, call: RunCall): EventProducer {
    requireForeground(body);
    const run = this.#startable(objectRequest(body), call, true);
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
  }

  /** For protocols with their own reply format: their sink makes the reply from the parts. */
  prepare({ streams = false, ...body }: ProtocolBody, call: RunCall): ProtocolRun {
    const run = this.#startable(protocolRequest(this.#agent, body), call, streams);
    const { output, tools, settings } = run.prepared.plan;
    return {
      messageId: messageIdForRun(run.id),
      isJson: output?.format !== undefined,
      context: settings.context,
      get clientTools() {
        return [...tools.byName.values()].flatMap(({ name, clientInput }) => (clientInput === undefined ? [] : [name]));
      },
      start: (sink) => partsInto(run, sink),
      events: (form) => run.events(form),
      kept: run.kept,
    };
  }

  /** Lets its model summarize lines, each of which stands for one or more messages. Runs none of its tools. */
  async summarize(lines: readonly string[], call: RunCall): Promise<Summary> {
    const chain = this.#agent.chain({ context: {}, user: call.user });
    this.activity.enter();
    try {
      return await summarizeLines(chain, lines, call);
    } finally {
      this.activity.leave();
    }
  }

  /** The last runs that a principal may see, newest first. `page` counts from 0. */
  async history(page: number, limit: number, principal: Principal): Promise<HistoryPage | Serialized> {
    return this.#agent.history.page(page, limit, principal.isolated ? ownerOf(principal) : undefined);
  }

  #stream(
    request: KeptRequest,
    call: RunCall,
    form: (run: StartableRun) => ReplyForm,
  ): ReturnType<StartableRun["events"]> {
    requireForeground(request);
    const run = this.#startable(request, call, true);
    return run.events(form(run));
  }

  #startable(request: KeptRequest, call: RunCall, streams: boolean): StartableRun {
    return startable(this.#agent, this.kept, request, call, streams);
  }
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

// Runs for protocols with their own reply format: the sink of the protocol makes the reply from the parts.

/**
 * The sink of one that is kept from its begin gets the parts that are recorded.
 *
 * @throws ServiceError `provider_failed` when that has failed after its beginning, otherwise what made it fail
 */
async function partsInto(run: StartableRun, sink: PartSink): Promise<void> {
  let failure: string | undefined;
  const recorded: PartSink = {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (part.type !== "error") return sink.part(part);
      failure = part.error;
      return undefined;
    },
  };
  const follow = await run.events(() => (run.kept === undefined ? sink : recorded));
  await follow({
    open: () => sink.accepted?.(),
    send: () => undefined,
    get closed() {
      return sink.closed;
    },
    onLeave: (listener) => sink.onLeave?.(listener),
  });
  if (failure !== undefined) throw new ServiceError("provider_failed", failure);
}

function protocolRequest(agent: CompiledAgent, { effort, options, ...request }: ProtocolBody) {
  const reasoning = effort && { providerOptions: reasoningOptions(agent.bounds, effort.value, effort.field) };
  const asked = reasoning === undefined ? options : { ...options, ...reasoning };
  return {
    ...request,
    ...(asked && { options: asked }),
    runsTools: true,
    clientKnowsMessageId: true,
  } satisfies KeptRequest;
}

// `POST /agents/:id/text`: the result of a finished run.

function textResult(outcome: RunResult): TextResult {
  const { approvals, runId, messageId, userMessageId } = outcome;
  const result = finished(outcome);
  if (approvals.length > 0) result.approvals = approvals;
  if (runId !== undefined) result.runId = runId;
  if (messageId !== undefined) result.messageId = messageId;
  if (userMessageId !== undefined) result.userMessageId = userMessageId;
  return result;
}

function finished(outcome: RunResult): TextResult {
  const { text, model, finishReason, toolCalls, toolResults } = outcome;
  const usage = shownUsage(outcome.usage);
  if (outcome.output === undefined) return { text, usage, model, finishReason, toolCalls, toolResults };
  return { text, output: outcome.output, usage, model, finishReason, toolCalls, toolResults };
}
