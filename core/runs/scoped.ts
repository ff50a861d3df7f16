/** The kept runs of agents for one principal: what the endpoints of the API do. */
import { defaults } from "../../generated/defaults.ts";
import type { AgentRun, RunsQuery } from "../../generated/types.ts";
import { replyMessageId } from "../agents/conversation/agent-memory.ts";
import type { KeptRequest } from "../agents/keeper.ts";
import type { ToolAnswer } from "../agents/run/journal.ts";
import { hearing } from "../agents/stream/raw.ts";
import { UiSink } from "../agents/stream/ui-chunks.ts";
import { requiredUser } from "../identity/acting-user.ts";
import type { Principal } from "../identity/principal.ts";
import { invalid, notFound, quoted, ServiceError, unlessNotFound } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import { openExecutionKey } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { Watch } from "../storage/watch.ts";
import type { ExecutionStart, ExecutionStatus } from "../workflows/journal/entries.ts";
import {
  RUN_STATUS,
  runDefinitionId,
  runExecutionId,
  runIdOf,
  runRecordText,
} from "../workflows/journal/run-record.ts";
import type { JournalState } from "../workflows/journal/state.ts";
import type { ExecutionLookup } from "../workflows/list/lookup.ts";
import { followLoaded } from "../workflows/run/follow.ts";
import type { ScopedWorkflows } from "../workflows/scoped.ts";
import type { ConversationRuns } from "./conversation-runs.ts";
import { OUTLINE, RUN_STEP } from "./definition.ts";
import { ANSWERS, ENDS, partEvents } from "./events.ts";

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
  readonly executions: ScopedWorkflows;
  readonly lookup: ExecutionLookup;
  readonly conversations: ConversationRuns;
  readonly live: LiveRuns;
}

interface Reading {
  /** Whose run is meant, for a caller that sees those of several users. */
  readonly userId?: string | undefined;
  /** `chat`: the UI message stream. Default: the raw parts. */
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
  readonly #executions: ScopedWorkflows;
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
    const loaded = "loaded" in found ? found.loaded : { state: found.state, entries: [] };
    const failure = loaded.state.steps.get(RUN_STEP)?.code ?? null;
    return { state: loaded.state, failure, said: (after) => followLoaded(loaded, OUTLINE, after) };
  }

  /** The events after the one numbered `after`, then those to come until the run has ended. */
  attach(agentId: string, runId: string, after: number, { userId, format }: Reading = {}): Promise<EventProducer> {
    this.#live.read(agentId, runId, userId ?? this.#principal.userId ?? undefined);
    const form = format === "chat" ? chatEvents : undefined;
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

  /**
   * The newest run in a conversation of a user, from its begin, as the UI message stream; null when none runs.
   *
   * @throws ServiceError `invalid_input` when nobody says whose conversation
   */
  async attachChat(agentId: string, conversationId: string, named: string | undefined): Promise<EventProducer | null> {
    const userId = requiredUser(this.#principal, named);
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
