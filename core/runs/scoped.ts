/** The kept runs of agents for one principal: what the endpoints of the API do. */
import { defaults } from "../../generated/defaults.ts";
import type { AgentRun, RunsQuery } from "../../generated/types.ts";
import { invalid, notFound, ServiceError } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { ExecutionStatus } from "../workflows/journal/entries.ts";
import { RUN_STATUS, runDefinitionId, runExecutionId, runRecordText } from "../workflows/journal/run-record.ts";
import type { ExecutionLookup } from "../workflows/list/lookup.ts";
import type { ScopedWorkflows } from "../workflows/scoped.ts";

/** No client can choose a longer id. */
const MAX_ID_LENGTH = 128;

/** The status of an execution by that of its run. */
const EXECUTION_STATUS = Object.fromEntries(
  Object.entries(RUN_STATUS).map(([status, ofRun]) => [ofRun, status as ExecutionStatus]),
);

/** Every method throws ServiceError `not_found` for a run that does not exist, is another agent's, or belongs to another user. */
export class ScopedRuns {
  readonly #executions: ScopedWorkflows;
  readonly #lookup: ExecutionLookup;
  readonly #onRead: (agentId: string, runId: string) => void;

  /** @param onRead is told of runs whose parts are read while they come */
  constructor(executions: ScopedWorkflows, lookup: ExecutionLookup, onRead: (agentId: string, runId: string) => void) {
    this.#executions = executions;
    this.#lookup = lookup;
    this.#onRead = onRead;
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

  /** The events after the one numbered `after`, then those to come until the run has ended. */
  attach(agentId: string, runId: string, after: number, userId?: string): Promise<EventProducer> {
    this.#onRead(agentId, runId);
    return aboutRun(runId, () =>
      this.#executions.attach(runDefinitionId(agentId), runExecutionId(runId), after, userId),
    );
  }

  /** @throws ServiceError `invalid_input` when it has ended */
  async cancel(agentId: string, runId: string): Promise<{ cancelled: true }> {
    await aboutRun(runId, () => this.#executions.cancel(runDefinitionId(agentId), runExecutionId(runId), "cancelled"));
    return { cancelled: true };
  }
}

/** The same error in the words of runs. */
async function aboutRun<T>(runId: string, work: () => Promise<T>): Promise<T> {
  try {
    if (runId.length > MAX_ID_LENGTH) throw notFound("no run has such a long id");
    return await work();
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (error.kind === "not_found") throw notFound(`run ${JSON.stringify(runId.slice(0, 128))} does not exist`);
    if (error.kind === "invalid_input") throw invalid(error.message.replace("the execution is", "the run is"));
    throw error;
  }
}
