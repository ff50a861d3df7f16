/** The kept runs of agents for one principal: what the endpoints of the API do. */
import { defaults } from "../../generated/defaults.ts";
import type { AgentRun, RunsQuery } from "../../generated/types.ts";
import { replyMessageId } from "../agents/conversation/agent-memory.ts";
import type { KeptRequest } from "../agents/keeper.ts";
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
import type { ExecutionLookup } from "../workflows/list/lookup.ts";
import type { ScopedWorkflows } from "../workflows/scoped.ts";
import type { ConversationRuns } from "./conversation-runs.ts";
import { RUN_STEP } from "./definition.ts";
import { followOn, partEvents, THE_END } from "./events.ts";

/** No client can choose a longer id. */
const MAX_ID_LENGTH = 128;

/** The status of an execution by that of its run. */
const EXECUTION_STATUS = Object.fromEntries(
  Object.entries(RUN_STATUS).map(([status, ofRun]) => [ofRun, status as ExecutionStatus]),
);

interface RunParts {
  readonly executions: ScopedWorkflows;
  readonly lookup: ExecutionLookup;
  readonly conversations: ConversationRuns;
  /** Told of runs whose parts are read while they come. */
  onRead(agentId: string, runId: string, userId: string | undefined): void;
  /** Wakes when a run goes on after a rest. */
  readonly watched: Pick<Store, "watch">;
}

interface Reading {
  /** Whose run is meant, for a caller that sees those of several users. */
  readonly userId?: string | undefined;
  /** `chat`: the UI message stream. Default: the raw parts. */
  readonly format?: "raw" | "chat";
}

/** How a run has ended. */
interface RunEnding {
  readonly status: "completed" | "error" | "cancelled";
  /** Milliseconds since 1970. */
  readonly at: number;
  /** With the kind of the failure, where it was one of the run itself. */
  readonly error: { readonly message: string; readonly kind: string | null } | null;
}

/** Every method throws ServiceError `not_found` for a run that does not exist, is another agent's, or belongs to another user. */
export class ScopedRuns {
  readonly #principal: Principal;
  readonly #executions: ScopedWorkflows;
  readonly #lookup: ExecutionLookup;
  readonly #conversations: ConversationRuns;
  readonly #onRead: RunParts["onRead"];
  readonly #watched: RunParts["watched"];

  constructor(principal: Principal, { executions, lookup, conversations, onRead, watched }: RunParts) {
    this.#principal = principal;
    this.#executions = executions;
    this.#lookup = lookup;
    this.#conversations = conversations;
    this.#onRead = onRead;
    this.#watched = watched;
  }

  /** Newest first. */
  list(agentId: string, query: RunsQuery): Promise<Serialized> {
    const { status, limit = defaults.RunsQuery.limit, offset = defaults.RunsQuery.offset } = query;
    const wanted = status === undefined ? undefined : EXECUTION_STATUS[status];
    const filter = { workflowId: runDefinitionId(agentId), limit, offset };
    return this.#executions.executions(wanted === undefined ? filter : { ...filter, status: wanted });
  }

  async get(agentId: string, runId: string): Promise<AgentRun> {
    const find = () => this.#lookup.readState(runDefinitionId(agentId), runExecutionId(runId));
    return JSON.parse(runRecordText((await aboutRun(runId, find)).state)) as AgentRun;
  }

  /** Null while it goes on, or waits. */
  async ending(agentId: string, runId: string, userId?: string): Promise<RunEnding | null> {
    const find = () => this.#lookup.readState(runDefinitionId(agentId), runExecutionId(runId), userId);
    const { status, endedAt: at, error, steps } = (await aboutRun(runId, find)).state;
    if (status === "running" || status === "suspended" || at === null) return null;
    return { status, at, error: error && { message: error.message, kind: steps.get(RUN_STEP)?.code ?? null } };
  }

  /** The events after the one numbered `after`, then those to come until the run has ended. */
  attach(agentId: string, runId: string, after: number, { userId, format }: Reading = {}): Promise<EventProducer> {
    this.#onRead(agentId, runId, userId ?? this.#principal.userId ?? undefined);
    const form = format === "chat" ? chatEvents : undefined;
    return aboutRun(runId, () =>
      this.#executions.attach(runDefinitionId(agentId), runExecutionId(runId), after, userId, form),
    );
  }

  /** As `followOn` of events.ts. */
  followOn(
    agentId: string,
    runId: string,
    userId: string | undefined,
    awaited: readonly string[] = THE_END,
    from: Parameters<typeof followOn>[1] = {},
  ): EventProducer {
    const find = () => this.#lookup.readState(runDefinitionId(agentId), runExecutionId(runId), userId);
    return followOn(
      awaited,
      from,
      (after) => this.attach(agentId, runId, after, { userId }),
      async () => new Watch(this.#watched, openExecutionKey((await aboutRun(runId, find)).state.start.number)),
    );
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
