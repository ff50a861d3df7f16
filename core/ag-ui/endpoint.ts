/** `POST /agents/:id/ag-ui`: a run for an AG-UI client, from its input to its last event. */
import { isDeepStrictEqual } from "node:util";
import type {
  AgUiContext,
  AgUiEvent,
  AgUiInterrupt,
  AgUiOutcome,
  AgUiRequest,
  AgUiResume,
  AnswerApprovalRequest,
  Approval,
  GenerateOptions,
} from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { UPDATE_WORKING_MEMORY } from "../agents/conversation/agent-memory.ts";
import { isInContext } from "../agents/prompt/awaited-calls.ts";
import type { AgentPart, PendingApproval } from "../agents/run/parts.ts";
import { EventPartSink } from "../agents/stream/raw.ts";
import type { Service } from "../app/service.ts";
import type { Approvals } from "../approvals/approvals.ts";
import type { Context } from "../http/route.ts";
import { ANONYMOUS, actingUser, type Principal, principalOf, type Requester } from "../identity/principal.ts";
import { canonicalJson } from "../lib/canonical-json.ts";
import { invalid, ServiceError } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import { isObject } from "../lib/is-object.ts";
import type { Memory } from "../memory/scoped.ts";
import { type PartOf, RunEvents, type RunIdentity, runStarted } from "./events.ts";
import { readMessages, type UiMessage, type UiPart } from "./messages.ts";
import { threadMessages, type WaitingCall } from "./thread-messages.ts";

// The state that an agent and its client share: the working memory of the conversation, if it is JSON.

type State = Record<string, unknown>;

/** Whether an agent with this memory keeps the state of its clients. */
export function keepsState({ settings: { workingMemory } }: Memory): boolean {
  return workingMemory?.format === "json" && workingMemory.scope === "conversation";
}

class SharedState {
  readonly #read: () => Promise<State | null>;
  readonly #stored: State | null;
  /** The state as the client has edited it, which is stored before the run; undefined when it is unchanged. */
  readonly edited: State | undefined;

  private constructor(read: () => Promise<State | null>, stored: State | null, given: unknown) {
    this.#read = read;
    this.#stored = stored;
    // A new client has an empty state, even if the conversation has one.
    const isEdited = isObject(given) && Object.keys(given).length > 0 && !isDeepStrictEqual(given, stored);
    this.edited = isEdited ? given : undefined;
  }

  /** @param given the state that the client sent */
  static async open(memory: Memory, principal: Principal, threadId: string, given: unknown): Promise<SharedState> {
    const conversation = { id: threadId, userId: actingUser(principal, undefined) ?? ANONYMOUS };
    const access = memory.for(principal);
    const read = async () => parsed((await access.workingMemoryIfAny(conversation))?.content ?? null);
    return new SharedState(read, await read(), given);
  }

  /** Whether a tool of this name has changed it. */
  isChangedBy(toolName: string): boolean {
    return toolName === UPDATE_WORKING_MEMORY;
  }

  /** The events at the start of the run. */
  begun(): AgUiEvent[] {
    return snapshot(this.edited ?? this.#stored);
  }

  /** The events after a change. */
  async changed(): Promise<AgUiEvent[]> {
    return snapshot(await this.#read());
  }
}

const snapshot = (state: State | null): AgUiEvent[] =>
  state === null ? [] : [{ type: "STATE_SNAPSHOT", snapshot: state }];

/** @param content JSON text from the memory */
function parsed(content: string | null): State | null {
  return content === null ? null : JSON.parse(content);
}

// Approvals as interrupts: the questions with which a run ends, and the answers in the client's next run.

/** Schema of a client's answer. */
const RESPONSE_SCHEMA = {
  type: "object",
  properties: {
    approved: { type: "boolean", description: "Whether the tool may run." },
    reason: { type: "string", description: "Why, for the model.", maxLength: 1000 },
    editedArgs: { type: "object", description: "Runs in place of the input that was asked." },
  },
  required: ["approved"],
};

/** The interrupts for calls whose questions are open, but for those that the requester cannot answer. */
async function interruptsOf(
  calls: readonly Omit<PendingApproval, "input">[],
  approvals: Approvals,
  requester: Requester,
): Promise<AgUiInterrupt[]> {
  const found = await Promise.all(calls.map(({ approvalId }) => approvals.find(approvalId, requester)));
  return calls.flatMap(({ toolCallId, toolName }, index) => {
    const asked = found[index];
    if (asked?.status !== "open" || !approvals.mayAnswer(asked, requester)) return [];
    const { approvalId: id, expiresAt } = asked;
    const message = `The tool ${toolName} waits for approval.`;
    return [{ id, reason: "tool_call", message, toolCallId, expiresAt, responseSchema: RESPONSE_SCHEMA }];
  });
}

interface ResumeAnswer {
  readonly approvalId: string;
  readonly body: AnswerApprovalRequest;
  /** Path of the edited input in the request. */
  readonly field: string;
}

/** @throws ServiceError `invalid_input` that names the field */
function readResume(resume: readonly AgUiResume[]): ResumeAnswer[] {
  return resume.map(({ interruptId: approvalId, status, payload }, index) => {
    const path = `resume[${index}].payload`;
    const field = `${path}.editedArgs`;
    if (status === "cancelled") return { approvalId, body: { approved: false }, field };
    if (!isObject(payload) || typeof payload.approved !== "boolean")
      throw invalid(`${path} must be an object with approved, true or false`);
    const { approved, reason, editedArgs } = payload;
    if (reason !== undefined && (typeof reason !== "string" || reason.length > MAX_REASON))
      throw invalid(`${path}.reason must be a string of at most ${MAX_REASON} characters`);
    const edited = editedArgs === undefined || editedArgs === null ? undefined : { input: editedArgs };
    return { approvalId, body: { approved, ...(reason !== undefined && { reason }), ...(approved && edited) }, field };
  });
}

const MAX_REASON = 1000;

interface KnownAnswer extends ResumeAnswer {
  readonly asked: Approval;
}

/** The agent and conversation of the run, and the requester that continues it. */
interface Resumed {
  readonly agentId: string;
  readonly threadId: string;
  readonly approvals: Approvals;
  readonly requester: Requester;
}

/** How many open questions are searched for those of unanswered calls. */
const MAX_OPEN = 500;

/**
 * Marks the calls at the end of the messages that wait for a person, so that the run continues with them: those that the request
 * answers, and those that are still open. A call with an answer that does not belong to it is refused by the run.
 *
 * @returns the answers that belong to them
 * @throws ServiceError `invalid_input` for an answer to a call that is not at the end of the messages
 */
async function markAwaited(
  messages: readonly UiMessage[],
  answers: readonly ResumeAnswer[],
  { agentId, threadId, approvals, requester }: Resumed,
): Promise<KnownAnswer[]> {
  const calls = openCalls(messages.at(-1));
  const known: KnownAnswer[] = [];
  let unknown: string | undefined;
  for (const [index, answer] of answers.entries()) {
    const approval = await approvals.find(answer.approvalId, requester);
    // The question may have been answered long ago and deleted.
    const call = approval?.agentId === agentId ? calls.get(approval.toolCallId ?? "") : undefined;
    if (call === undefined) {
      if (approval?.agentId === agentId && approval.status === "open")
        throw invalid(`resume[${index}]: the call ${approval.toolCallId} is not the last of messages`);
      unknown ??= answer.approvalId;
      continue;
    }
    wait(call, answer.approvalId);
    calls.delete(approval!.toolCallId!);
    if (fits(call, approval!)) known.push({ ...answer, asked: approval! });
  }
  if (calls.size === 0) return known;
  const newest = { status: "open", agentId, limit: MAX_OPEN, order: "desc" } as const;
  const { data: open } = await approvals.list(newest, requester);
  for (const { approvalId, toolCallId = "", conversationId } of open) {
    const call = conversationId === threadId ? calls.get(toolCallId) : undefined;
    if (call === undefined) continue;
    wait(call, approvalId);
    calls.delete(toolCallId);
  }
  if (unknown !== undefined) for (const call of calls.values()) wait(call, unknown);
  return known;
}

/** Whether the client shows the call as it was asked. */
const fits = ({ type, input }: UiPart, approval: Approval): boolean =>
  type === `tool-${approval.toolName}` && canonicalJson(input) === canonicalJson(approval.input);

/** Calls without a result in the last answer of the messages, by id. */
function openCalls(last: UiMessage | undefined): Map<string, UiPart> {
  const calls = new Map<string, UiPart>();
  if (last?.role !== "assistant") return calls;
  for (const part of last.parts) if (part.state === "input-available") calls.set(part.toolCallId as string, part);
  return calls;
}

const wait = (call: UiPart, id: string) => Object.assign(call, { state: "approval-requested", approval: { id } });

/** Passes an answer on. It is ignored when somebody was first, or when the user may not answer: the run then uses what was decided. */
async function giveAnswer(approvals: Approvals, answer: ResumeAnswer, requester: Requester): Promise<void> {
  const { approvalId, body, field } = answer;
  try {
    await approvals.answer(approvalId, body, requester);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.kind === "unavailable") throw error;
    if (error.kind === "invalid_input") throw invalid(error.message.replace(INPUT_FIELD, `$1${field}`));
  }
}

/** The name of the edited input in problems that the approvals report, to be replaced with the field of the request. */
const INPUT_FIELD = /(^|; )input(?=[ .[:])/g;

// The context of the client's application, for the model.

/** Makes a system message, or null when there is no context. @param state null when the agent keeps the state itself */
function tellContext(context: readonly AgUiContext[], state: unknown): string | null {
  const sections = context.map(({ description, value }) => section(description ?? "Context", value));
  if (saysSomething(state)) sections.push(section("The state of the application, as JSON", JSON.stringify(state)));
  if (sections.length === 0) return null;
  return ["# The application", "What the application says of itself. It is information.", ...sections].join("\n\n");
}

const section = (title: string, value: unknown): string =>
  `## ${title}\n${typeof value === "string" ? value : JSON.stringify(value)}`;

function saysSomething(state: unknown): boolean {
  return isObject(state) ? Object.keys(state).length > 0 : state !== undefined && state !== null;
}

// `POST /agents/:id/ag-ui`: sends a run as AG-UI events.

/** Gives the interrupts that the client gets for the approvals with which the run ends. */
type Asking = (approvals: readonly PendingApproval[]) => Promise<AgUiInterrupt[]>;

class AgUiSink extends EventPartSink {
  readonly #run: RunEvents;
  readonly #asking: Asking;
  readonly #state: SharedState | null;

  /** @param state of an agent that keeps one, else null */
  constructor(events: EventSink, run: RunEvents, asking: Asking, state: SharedState | null) {
    super(events);
    this.#run = run;
    this.#asking = asking;
    this.#state = state;
  }

  override part(part: AgentPart): Promise<void> | undefined {
    if (part.type === "finish" && part.subAgentId === undefined) return this.#finish(part);
    const wait = this.#send(this.#run.of(part));
    if (this.#state === null || part.subAgentId !== undefined) return wait;
    if (part.type === "start") return this.#send(this.#state.begun());
    return part.type === "tool-result" && this.#state.isChangedBy(part.toolName) ? this.#changed(this.#state) : wait;
  }

  #finish(part: PartOf<"finish">): Promise<void> | undefined {
    const { approvals } = this.#run;
    if (approvals.length === 0) return this.#send(this.#run.finish(part, []));
    return this.#asking(approvals).then((interrupts) => this.#send(this.#run.finish(part, interrupts)));
  }

  async #changed(state: SharedState): Promise<void> {
    await this.#send(await state.changed());
  }

  /** @returns a promise to wait for before the next part, if the reader is behind */
  #send(events: readonly AgUiEvent[]): Promise<void> | undefined {
    let wait: Promise<void> | undefined;
    for (const event of events) wait = this.events.send(JSON.stringify(event));
    return wait;
  }
}

// The stored conversation for a client that sends no messages: it has been reloaded, or runs elsewhere.

interface Thread {
  readonly run: Omit<RunIdentity, "messageId" | "open">;
  readonly memory: Memory;
  readonly principal: Principal;
  /** The state of an agent that keeps one, else null. */
  readonly state: SharedState | null;
  readonly approvals: Approvals;
  readonly requester: Requester;
}

/** Most messages; the limit of other lists. */
const MAX_MESSAGES = 1000;
/** Most characters of these messages together, the same as when an agent summarizes. */
const MAX_CHARACTERS = 8 * 1024 * 1024;

const THREAD = { limit: MAX_MESSAGES, most: MAX_CHARACTERS };

/** @throws ServiceError `not_found` for the conversation of another user, `unavailable` when the store fails */
async function sendStored({ run, memory, principal, state, ...asking }: Thread): Promise<EventProducer> {
  const { threadId, runId, isCurrent } = run;
  const userId = actingUser(principal, undefined) ?? ANONYMOUS;
  const { messages: stored } = await memory.for(principal).earlier(threadId, THREAD, userId);
  const { messages, waiting } = threadMessages(stored);
  const { interrupts, pending } = await openQuestions(waiting, asking);
  const outcome: AgUiOutcome =
    interrupts.length > 0
      ? { type: "interrupt", interrupts }
      : { type: "success", ...(isCurrent && pending.length > 0 && { pendingToolCallIds: pending }) };
  const events: AgUiEvent[] = [
    runStarted(run),
    { type: "MESSAGES_SNAPSHOT", messages },
    ...(state?.begun() ?? []),
    { type: "RUN_FINISHED", threadId, runId, outcome },
  ];
  return async (sink) => {
    for (const event of events) await sink.send(JSON.stringify(event));
  };
}

/** What the calls of the last answer wait for: a person, or the client. */
async function openQuestions(
  waiting: readonly WaitingCall[],
  { approvals, requester }: Pick<Thread, "approvals" | "requester">,
) {
  const pending = waiting.flatMap(({ approvalId, toolCallId }) => (approvalId === undefined ? [toolCallId] : []));
  const asked = waiting.flatMap(({ approvalId, ...call }) =>
    approvalId === undefined ? [] : [{ ...call, approvalId }],
  );
  return { interrupts: await interruptsOf(asked, approvals, requester), pending };
}

/** @throws ServiceError `invalid_input` that names the field, and the errors of `Agent.prepare` */
export async function answerAgUi(agent: Agent, body: AgUiRequest, call: Context<Service>): Promise<EventProducer> {
  const { service } = call;
  const { threadId, runId, parentRunId, tools = [], context = [], resume = [] } = body;
  const run = { threadId, runId, parentRunId, isCurrent: isCurrentVersion(body.protocolVersion) };
  const memory = agent.detail().memory === null ? null : service.chooseMemory(agent.id).memory;
  const principal = principalOf(call, service.isolated);
  const state =
    memory !== null && keepsState(memory) ? await SharedState.open(memory, principal, threadId, body.state) : null;
  if (body.messages.length === 0 && memory !== null)
    return sendStored({ run, memory, principal, state, approvals: service.approvals, requester: call });

  const messages = readMessages(body.messages);
  if (messages.length === 0) throw invalid("messages must not be empty");
  const answers = readResume(resume);
  const resumed = { agentId: agent.id, threadId, approvals: service.approvals, requester: call };
  const known =
    answers.length === 0 && openCalls(messages.at(-1)).size === 0 ? [] : await markAwaited(messages, answers, resumed);
  if (known.length < answers.length)
    call.logger.warn({ agentId: agent.id, conversationId: threadId }, "a run answers interrupts that nobody waits for");

  const prepared = agent.prepare(
    {
      input: [...systemMessage(tellContext(context, state === null ? body.state : null)), ...messages],
      field: "messages",
      options: optionsOf(body),
      clientTools: { field: "tools", list: tools },
      workingMemory: state?.edited === undefined ? undefined : { field: "state", content: state.edited },
      streams: true,
    },
    call,
  );
  const asking: Asking = (approvals) => interruptsOf(approvals, service.approvals, call);
  const identity = { ...run, messageId: prepared.messageId, open: openCalls(messages.at(-1)).keys() };
  const form = (events: EventSink) => new AgUiSink(events, new RunEvents(identity), asking, state);
  for (const answer of known)
    if (isInContext(answer.asked, answer.body.approved, prepared.context))
      await giveAnswer(service.approvals, answer, call);
  return prepared.events(form);
}

/** Whether the client speaks version 1.0 or later. Older clients name no version. */
function isCurrentVersion(version: string | undefined): boolean {
  const major = /^(\d+)\.\d+/.exec(version ?? "")?.[1];
  return major !== undefined && Number(major) >= 1;
}

/** Options for the run: `forwardedProps` corresponds to `options.context` of other clients. */
function optionsOf({ threadId, forwardedProps }: AgUiRequest): GenerateOptions {
  const options: GenerateOptions = { memory: { conversationId: threadId } };
  if (isObject(forwardedProps)) options.context = forwardedProps as NonNullable<GenerateOptions["context"]>;
  return options;
}

const systemMessage = (text: string | null): UiMessage[] =>
  text === null ? [] : [{ role: "system", parts: [{ type: "text", text }] }];
