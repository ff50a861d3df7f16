/** The kept runs of agents for one principal: what the endpoints of the API do. */
import { defaults } from "../../generated/defaults.ts";
import type { AgentRun, RunsQuery } from "../../generated/types.ts";
import { STREAM } from "../agents/agent.ts";
import { replyMessageId } from "../agents/conversation/agent-memory.ts";
import type { ToolAnswer } from "../agents/run/journal.ts";
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import { emptyRunResult, type RunResult } from "../agents/run/run.ts";
import { addUsage } from "../agents/run/usage.ts";
import type { KeptRequest, ReplyForm } from "../agents/run-requests.ts";
import { hearing, sending } from "../agents/stream/raw.ts";
import { UiSink } from "../agents/stream/ui-chunks.ts";
import { actingUser, type Principal, requiredUser } from "../identity/principal.ts";
import { invalid, notFound, quoted, ServiceError, unlessNotFound } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import { conversationRuns, executionEntry, indexedEntry, openExecutionKey } from "../storage/keys.ts";
import { Watch } from "../storage/ranges.ts";
import type { Store } from "../storage/store.ts";
import type { ExecutionStart, ExecutionStatus } from "../workflows/journal/entries.ts";
import { RUN_STATUS, runDefinitionId, runExecutionId, runIdOf, runRecordText } from "../workflows/journal/record.ts";
import type { JournalState } from "../workflows/journal/state.ts";
import type { ExecutionLookup } from "../workflows/list/lookup.ts";
import { followLoaded } from "../workflows/run/follow.ts";
import type { WorkflowAccess } from "../workflows/scoped.ts";
import { OUTLINE, RUN_STEP } from "./definition.ts";

/*
 * Finds the runs that answer in a conversation. Each that may be read again has a row while it runs, written and removed in one commit with its open
 * row: so every process finds it, and no crash leaves a row that leads nowhere. A run that is not on disk yet, or whose store is this
 * process alone, is found by being here.
 */

interface Found {
  /** Sorts later than those of older runs. */
  readonly entry: string;
  readonly runId: string;
  /** Whether a chat may read it again. */
  readonly isResumable: boolean;
}

export class ConversationRuns {
  readonly #store: Store;
  readonly #lasts: boolean;
  /** Those that run here, in the order of their begin, by the prefix of their rows. */
  readonly #here = new Map<string, Found[]>();

  /** @param lasts whether the store has rows of what runs */
  constructor(store: Store, lasts: boolean) {
    this.#store = store;
    this.#lasts = lasts;
  }

  /** A run begins here. @returns what is to be called when it is over */
  begin(start: ExecutionStart): () => void {
    const { workflowName, userId = "", conversationId = "", at, number, isResumable = false } = start;
    const key = conversationRuns(workflowName, userId, conversationId);
    const found = { entry: executionEntry(at, number), runId: runIdOf(start), isResumable };
    this.#here.set(key, [...(this.#here.get(key) ?? []), found]);
    return () => {
      const left = this.#here.get(key)!.filter((other) => other !== found);
      if (left.length === 0) this.#here.delete(key);
      else this.#here.set(key, left);
    };
  }

  /** The ids of all that run in a conversation here, and of the newest in another process. */
  async all(agentId: string, userId: string, conversationId: string): Promise<readonly string[]> {
    const key = conversationRuns(agentId, userId, conversationId);
    const stored = this.#lasts ? await this.#stored(key) : undefined;
    const here = (this.#here.get(key) ?? []).map(({ runId }) => runId);
    return stored === undefined || here.includes(stored.runId) ? here : [...here, stored.runId];
  }

  /** The id of the newest run that a chat may read again; null when none runs. */
  async newest(agentId: string, userId: string, conversationId: string): Promise<string | null> {
    const key = conversationRuns(agentId, userId, conversationId);
    const here = this.#here.get(key)?.findLast(({ isResumable }) => isResumable);
    const stored = this.#lasts ? await this.#stored(key) : undefined;
    if (here === undefined || stored === undefined) return (here ?? stored)?.runId ?? null;
    return (here.entry > stored.entry ? here : stored).runId;
  }

  async #stored(prefix: string): Promise<Found | undefined> {
    const [row] = await this.#store.scan({ prefix, reverse: true, limit: 1 });
    if (row === undefined) return undefined;
    return { entry: indexedEntry(row.key), runId: JSON.parse(row.value) as string, isResumable: true };
  }
}

// The events of a run in another form: its parts, given to a sink that writes them as it does for a run that is not kept.

/** A sink for the raw events. What `form` makes of a part has the number of that part. */
export function partEvents(events: EventSink, form: (sink: EventSink) => PartSink): EventSink {
  let number = 0;
  const sink = form(sending(events, (json) => events.send(json, number)));
  return hearing((part, id) => {
    number = id;
    return sink.part(part);
  }, events);
}

const ANSWERS: ReadonlySet<string> = new Set<ToolAnswer["type"]>(["tool-result", "tool-error", "tool-output-denied"]);
const ENDS: ReadonlySet<string> = new Set<AgentPart["type"]>(["finish", "error", "abort"]);

/**
 * The events of a run as the reply to a request. Where the run waits for a person, the reply ends as that of a run that leaves a call to
 * its client.
 *
 * @param asked approvals of which the client knows already, and of all that came before: the reply goes on behind them
 */
export async function replyWith(
  follow: EventProducer,
  events: EventSink,
  form: ReplyForm,
  asked: readonly string[] = [],
): Promise<void> {
  const known = new Set(asked);
  const open = new Map<string, AgentPart>();
  const { usage } = emptyRunResult();
  let isInStep = asked.length > 0;
  let sink!: PartSink;
  let last!: AgentPart | undefined;
  const reply = (to: EventSink): PartSink => {
    const reader = form(to);
    sink = reader;
    return {
      get closed() {
        return reader.closed;
      },
      part(part) {
        let isKnown = known.size > 0 && part.type !== "start";
        if (part.subAgentId === undefined) {
          if (part.type === "tool-approval-request") {
            open.set(part.toolCallId, part);
            known.delete(part.approvalId);
          } else if (ANSWERS.has(part.type)) open.delete((part as ToolAnswer).toolCallId);
          else if (part.type === "finish-step") {
            addUsage(usage, part.usage);
            // With the question the client has seen the end of the step.
            isKnown ||= isInStep;
            isInStep &&= known.size > 0;
          }
          last = part;
        }
        return isKnown ? undefined : reader.part(part);
      },
    };
  };
  await follow(partEvents(events, reply));
  if (last !== undefined && ENDS.has(last.type)) return;
  if (asked.length > 0) for (const part of open.values()) sink.part(part);
  // What a client that cannot answer was told is a step of its own. A question is the middle of one.
  const words = last?.type === "finish-step" ? last : undefined;
  await endReply(sink, { usage, model: words?.model ?? "", finishReason: words?.finishReason ?? "tool-calls" });
}

/** The end of a reply whose run waits for a person. */
export async function endReply(
  reader: PartSink,
  {
    usage,
    model,
    finishReason,
    output,
    messageId,
    userMessageId,
  }: Partial<RunResult> & Pick<RunResult, "usage" | "model" | "finishReason">,
): Promise<void> {
  if (reader.closed) return;
  const end = { finishReason, ...(model !== "" && { model }) };
  if (finishReason === "tool-calls") reader.part({ type: "finish-step", usage, ...end });
  const ids = { ...(messageId && { messageId }), ...(userMessageId && { userMessageId }) };
  await reader.part({ type: "finish", totalUsage: usage, ...end, ...(output !== undefined && { output }), ...ids });
}

/** No client can choose a longer id. */
const MAX_ID_LENGTH = 128;

/** How long a follower of a run that rests looks no further, when nobody tells that the run goes on. */
const REST_MS = 1_000;

/** The status of an execution by that of its run. */
const EXECUTION_STATUS = Object.fromEntries(
  Object.entries(RUN_STATUS).map(([status, ofRun]) => [ofRun, status as ExecutionStatus]),
);

interface LiveRuns extends Pick<Store, "watch"> {
  /** Told of runs whose parts are read while they come. */
  read(agentId: string, runId: string, userId: string | undefined): void;
}

interface RunParts {
  readonly executions: WorkflowAccess;
  readonly lookup: ExecutionLookup;
  readonly conversations: ConversationRuns;
  readonly live: LiveRuns;
}

interface Reading {
  /** Whose run is meant, for a caller that sees those of several users. */
  readonly userId?: string | undefined;
  /** `chat`: the UI message stream; `raw`: as `POST /agents/:id/stream` replies. Default: the parts as they are. */
  readonly format?: "raw" | "chat";
}

/** How a run stands. */
export interface RunStanding {
  readonly state: JournalState;
  /** The kind of its failure, where it was one of the run itself. */
  readonly failure: string | null;
  /** Of one at rest: its events after the one numbered `after`. */
  said(after: number): EventProducer;
}

/** Every method throws ServiceError `not_found` for a run that does not exist, is another agent's, or belongs to another user. */
export class ScopedRuns {
  readonly #principal: Principal;
  readonly #executions: WorkflowAccess;
  readonly #lookup: ExecutionLookup;
  readonly #conversations: ConversationRuns;
  readonly #live: LiveRuns;

  constructor(principal: Principal, { executions, lookup, conversations, live }: RunParts) {
    this.#principal = principal;
    this.#executions = executions;
    this.#lookup = lookup;
    this.#conversations = conversations;
    this.#live = live;
  }

  /** Newest first. */
  list(agentId: string, query: RunsQuery): Promise<Serialized> {
    const { status, limit = defaults.RunsQuery.limit, offset = defaults.RunsQuery.offset } = query;
    const wanted = status === undefined ? undefined : EXECUTION_STATUS[status];
    const filter = { workflowId: runDefinitionId(agentId), limit, offset };
    return this.#executions.executions(wanted === undefined ? filter : { ...filter, status: wanted });
  }

  async get(agentId: string, runId: string): Promise<AgentRun> {
    return JSON.parse(runRecordText((await this.standing(agentId, runId)).state)) as AgentRun;
  }

  async standing(agentId: string, runId: string, userId?: string): Promise<RunStanding> {
    const found = await aboutRun(runId, () =>
      this.#lookup.find(runDefinitionId(agentId), runExecutionId(runId), userId),
    );
    const isLive = !("loaded" in found);
    // It has ended since it was found: what it has said is in the store.
    if (isLive && found.state.status !== "running") return this.standing(agentId, runId, userId);
    // Its own state goes on changing.
    const loaded = isLive ? { state: { ...found.state }, entries: [] } : found.loaded;
    const failure = loaded.state.steps.get(RUN_STEP)?.code ?? null;
    return { state: loaded.state, failure, said: (after) => followLoaded(loaded, OUTLINE, after) };
  }

  /** The events after the one numbered `after`, then those to come until the run has ended. */
  attach(agentId: string, runId: string, after: number, { userId, format }: Reading = {}): Promise<EventProducer> {
    this.#live.read(agentId, runId, userId ?? this.#principal.userId ?? undefined);
    const form = format && FORMS[format];
    return aboutRun(runId, () =>
      this.#executions.attach(runDefinitionId(agentId), runExecutionId(runId), after, userId, form),
    );
  }

  /**
   * All events of a run, also of what it does when it goes on after a rest.
   *
   * @param awaited ids of calls: it ends in a rest when it has told of all of them. Left out: it ends with the run
   */
  followOn(
    agentId: string,
    runId: string,
    userId: string | undefined,
    awaited = [""],
    signal?: AbortSignal,
  ): EventProducer {
    return async (events) => {
      const left = new Set(awaited);
      let last = 0;
      const sink = hearing((part, id, json) => {
        last = id;
        if (ANSWERS.has(part.type)) left.delete((part as ToolAnswer).toolCallId);
        else if (ENDS.has(part.type) && part.subAgentId === undefined) left.clear();
        return events.send(json, id);
      }, events);
      const { number } = (await this.standing(agentId, runId, userId)).state.start;
      const resting = new Watch(this.#live, openExecutionKey(number));
      try {
        for (;;) {
          await (await this.attach(agentId, runId, last, { userId }))(sink);
          if (left.size === 0 || events.closed || signal?.aborted) return;
          await resting.wait(REST_MS, signal);
        }
      } finally {
        resting.end();
      }
    };
  }

  /** @throws ServiceError `invalid_input` when it has ended */
  async cancel(agentId: string, runId: string, userId?: string): Promise<{ cancelled: true }> {
    await aboutRun(runId, () =>
      this.#executions.cancel(runDefinitionId(agentId), runExecutionId(runId), "cancelled", userId),
    );
    return { cancelled: true };
  }

  /** The newest run in a conversation of a user, from its begin, as the UI message stream; null when none runs. */
  async attachChat(agentId: string, conversationId: string, named: string | undefined): Promise<EventProducer | null> {
    // The chat hook asks without a user, and before anything may have begun: an error would be shown on each page.
    const userId = actingUser(this.#principal, named);
    if (userId === undefined) return null;
    const runId = await this.#conversations.newest(agentId, userId, conversationId);
    if (runId === null) return null;
    // It may have ended, and be gone already.
    return (await unlessNotFound(this.attach(agentId, runId, 0, { userId, format: "chat" }))) ?? null;
  }

  /** Cancels all that run in a conversation of a user. @returns whether any did */
  async cancelAll(agentId: string, conversationId: string, userId: string, elsewhere: string | null): Promise<boolean> {
    const runIds = await this.#conversations.all(agentId, userId, conversationId);
    for (const runId of elsewhere === null ? runIds : [...runIds, elsewhere]) {
      await this.cancel(agentId, runId, userId).catch((error: unknown) => {
        if (!isOver(error)) throw error;
      });
    }
    return runIds.length > 0;
  }

  /** Cancels that run. @throws ServiceError `not_found` when none runs */
  async cancelChat(agentId: string, conversationId: string, named: string | undefined): Promise<{ cancelled: true }> {
    const userId = requiredUser(this.#principal, named);
    const runId = await this.#conversations.newest(agentId, userId, conversationId);
    if (runId === null) throw nothingRuns(conversationId);
    try {
      return await this.cancel(agentId, runId, userId);
    } catch (error) {
      throw isOver(error) ? nothingRuns(conversationId) : error;
    }
  }
}

const chatEvents = (start: ExecutionStart, reader: EventSink): EventSink => {
  const messageId = replyMessageId((start.input as KeptRequest).input, runIdOf(start));
  return partEvents(reader, (sink) => new UiSink(sink, messageId));
};

const FORMS = { chat: chatEvents, raw: (_start: ExecutionStart, reader: EventSink) => partEvents(reader, STREAM) };

/** Whether a run could not be cancelled because it has ended meanwhile. */
const isOver = (error: unknown): boolean =>
  error instanceof ServiceError && (error.kind === "not_found" || error.kind === "invalid_input");

const nothingRuns = (conversationId: string) => notFound(`nothing runs in conversation ${quoted(conversationId)}`);

/** The same error in the words of runs. */
async function aboutRun<T>(runId: string, work: () => Promise<T>): Promise<T> {
  try {
    if (runId.length > MAX_ID_LENGTH) throw notFound("no run has such a long id");
    return await work();
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (error.kind === "not_found") throw notFound(`run ${quoted(runId)} does not exist`);
    if (error.kind === "invalid_input") throw invalid(error.message.replace("the execution is", "the run is"));
    throw error;
  }
}
