/** The workflow operations for one principal, as the endpoints of the API need them. */
import { defaults } from "../../generated/defaults.ts";
import type {
  ExecuteWorkflowRequest,
  ExecutionCancellation,
  ExecutionStarted,
  ExecutionState,
  ExecutionSuspended,
  ReplayExecutionRequest,
  ResumeExecutionRequest,
  WorkflowDetail,
} from "../../generated/types.ts";
import type { Charge } from "../http/exchange.ts";
import type { KeyedWork } from "../http/idempotency.ts";
import { lendToken, type Principal, permittedUser } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { CommitConflict, invalid, ServiceError, unlessNotFound } from "../lib/errors.ts";
import { nextTurn } from "../lib/event-loop-turns.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import { Serialized } from "../lib/serialized.ts";
import { openExecutionKey } from "../storage/keys.ts";
import { Watch } from "../storage/ranges.ts";
import { withFreeNumber } from "../storage/sequence.ts";
import {
  acknowledge,
  beginExecution,
  type Lost,
  lostBegin,
  resumeExecution,
  unlessLost,
  untilRecorded,
} from "./begin.ts";
import { cancelResting } from "./cancel-resting.ts";
import { followRemoteExecution, type StopRequest, stopFromRequest, stopRemoteExecution } from "./cluster/requests.ts";
import type { Outline } from "./definition/definition.ts";
import type { Engine } from "./engine.ts";
import { type ExecutionStart, inputOfRow } from "./journal/entries.ts";
import {
  alreadyEnded,
  type FoundExecution,
  loadExecution,
  notSuspended,
  readExecution,
  resumedMeanwhile,
  stillRunning,
} from "./journal/load.ts";
import { executionRecord, executionResultText, executionStateView } from "./journal/record.ts";
import { valuesInSlices } from "./journal/slice.ts";
import type { JournalState } from "./journal/state.ts";
import { listExecutions } from "./list/list.ts";
import { bytesOf, type ExecutionLookup, type StoredExecution } from "./list/lookup.ts";
import type { Execution } from "./run/execution.ts";
import { executionNumberRows, unlessNumberTaken } from "./run/execution-rows.ts";
import { followLive, followLoaded } from "./run/follow.ts";
import { checkReplay, planReplay } from "./run/replay.ts";
import type { ExecutionQuery, WorkflowCall } from "./workflows.ts";

// The outcome of an execution, as the reply to the request that started it.

/** Pause between two reads of an execution in another process when the store does not notify of its end. */
const POLL_INTERVAL_MS = 500;

/** `data` of the reply. @throws ServiceError `step_failed` when a step failed, `unavailable` when the execution has not settled */
function outcomeOf(state: JournalState, outline: Outline): Serialized {
  const { error, start, status } = state;
  if (error !== null) {
    const message = error.stepId === "" ? error.message : `step ${JSON.stringify(error.stepId)}: ${error.message}`;
    throw new ServiceError("step_failed", message, { facts: { executionId: start.id } });
  }
  if (status === "running") throw stillRunning(start.id);
  return new Serialized(executionResultText(state, outline));
}

/**
 * The outcome of an execution that an earlier try of the same request may have started, once it has settled. Null when there is no
 * such execution.
 */
async function earlierOutcome(
  engine: Engine,
  lookup: ExecutionLookup,
  { workflowId, id, userId }: { workflowId: string; id: string; userId: string | undefined },
  call: WorkflowCall,
): Promise<Serialized | null> {
  if (call.keyed?.isRepeated !== true) return null;
  call.cutShort = { executionId: id };
  for (;;) {
    const known = await unlessNotFound(lookup.find(workflowId, id, userId));
    if (known === undefined) return null;
    if (!("loaded" in known)) {
      await known.outcome().catch((error: unknown) => {
        throw error instanceof CommitConflict ? stillRunning(id) : error;
      });
      return outcomeOf(known.state, known.definition.outline);
    }
    const { found, loaded } = known;
    if (found.openRow === null)
      return outcomeOf(loaded.state, await engine.definitions.outline(found.start.definition));
    if (!engine.environment.shared) throw stillRunning(id);
    await restsElsewhere(engine, found, call.signal);
  }
}

async function restsElsewhere(
  { store }: Engine,
  { start: { number, id } }: FoundExecution,
  signal: AbortSignal | undefined,
): Promise<void> {
  const watch = new Watch(store, openExecutionKey(number));
  try {
    while ((await readExecution(store, number, id))?.openRow != null) {
      await watch.wait(POLL_INTERVAL_MS, signal);
      signal?.throwIfAborted();
    }
  } finally {
    watch.end();
  }
}

export interface Workflows {
  /** `data` of `GET /workflows`. Built again only when the status of a workflow has changed. */
  list(): Serialized | Promise<Serialized>;
  /** @throws ServiceError `not_found` */
  detail(id: string): WorkflowDetail | Promise<WorkflowDetail>;
  /** Whether the execution with this number runs in this process. */
  runsHere(number: number): boolean;
  /** @param charge counts what is held of the executions that are read */
  for(principal: Principal, charge?: Charge): WorkflowAccess;
}

/**
 * The workflows for one principal. Errors are ServiceErrors:
 * - `not_found`: the workflow or execution is unknown, or belongs to another user or another workflow.
 * - `invalid_input`: the input is invalid, or several users have an execution with this id and `userId` does not say whose is meant.
 * - `conflict`: the id of a new execution is taken.
 * - `step_failed`, with the header `x-execution-id`: a step failed.
 * - `unavailable`: the store cannot be used, or too many executions run.
 */
export class WorkflowAccess {
  readonly #engine: Engine;
  readonly #principal: Principal;
  readonly #lookup: ExecutionLookup;

  constructor(engine: Engine, principal: Principal, lookup: ExecutionLookup) {
    this.#engine = engine;
    this.#principal = principal;
    this.#lookup = lookup;
  }

  /** Resolves with `data` of the reply when the execution has settled. It continues when the client leaves. */
  async execute(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Serialized> {
    if (call.keyed === undefined) return this.#execute(workflowId, body, call);
    const { executionId = call.keyed.runId, userId } = body.options ?? {};
    const earlier = await this.#earlier({ workflowId, id: executionId, userId }, call);
    return earlier ?? this.#execute(workflowId, { ...body, options: { ...body.options, executionId } }, call);
  }

  #earlier(meant: Parameters<typeof earlierOutcome>[2], call: WorkflowCall): Promise<Serialized | null> {
    return earlierOutcome(this.#engine, this.#lookup, meant, call);
  }

  #execute(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Serialized> {
    return this.#withFreeNumber(async (number) => {
      const execution = await beginExecution(this.#engine, this.#principal, number, workflowId, body, call);
      return this.#result(execution, call, lostBegin(execution));
    });
  }

  /** Resolves when the execution is in the store: with `data` of the reply. */
  async begin(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<ExecutionStarted> {
    const begin = async (keyed: ExecuteWorkflowRequest) =>
      acknowledge((await this.#recorded(workflowId, keyed, call)).state);
    if (call.keyed === undefined) return begin(body);
    return beginOnce(this.#lookup, { workflowId, body, keyed: call.keyed }, begin, async (id, userId) =>
      acknowledge((await this.#lookup.readState(workflowId, id, userId)).state),
    );
  }

  /** Resolves when the execution is in the store. */
  async stream(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<EventProducer> {
    if (body.options?.background === true) throw invalid("options.background is for /execute, which does not stream");
    if (call.keyed === undefined) return liveEvents(this.#engine, await this.#recorded(workflowId, body, call), 0);
    const begin = async (keyed: ExecuteWorkflowRequest) =>
      liveEvents(this.#engine, await this.#recorded(workflowId, keyed, call), 0);
    return beginOnce(this.#lookup, { workflowId, body, keyed: call.keyed }, begin, (id, userId) => {
      call.replyWith = { facts: { isReplayed: true } };
      return this.attach(workflowId, id, 0, userId);
    });
  }

  /** Waits until a new execution is in the store. */
  #recorded(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Execution> {
    return this.#withFreeNumber(async (number) => {
      return untilRecorded(await beginExecution(this.#engine, this.#principal, number, workflowId, body, call));
    });
  }

  async suspend(
    workflowId: string,
    id: string,
    reason: string = defaults.SuspendExecutionRequest.reason,
    userId?: string,
  ): Promise<ExecutionSuspended> {
    const request: StopRequest = { kind: "suspend", reason };
    const found = await this.#lookup.find(workflowId, id, userId);
    const { suspension, status } = await this.#stop(found, request);
    // The execution was resumed before this could be reported.
    if (status === "running") throw resumedMeanwhile(id);
    if (suspension === null) throw alreadyEnded(status);
    const suspendedAt = new Date(suspension.at).toISOString();
    return { executionId: id, status: "suspended", suspension: { suspendedAt, reason: suspension.reason } };
  }

  async cancel(
    workflowId: string,
    id: string,
    reason: string = defaults.CancelExecutionRequest.reason,
    userId?: string,
  ): Promise<ExecutionCancellation> {
    const request: StopRequest = { kind: "cancel", reason };
    for (;;) {
      const found = await this.#lookup.find(workflowId, id, userId);
      const rests = "loaded" in found && found.loaded.state.status === "suspended" && found.found.openRow === null;
      const state = rests ? await cancelResting(this.#engine, found, reason) : await this.#stop(found, request);
      // The execution was resumed meanwhile: cancel the new run.
      if (state === null || state.status === "running") continue;
      const { status, cancellation } = state;
      if (cancellation !== null) {
        const cancelledAt = new Date(cancellation.at).toISOString();
        return { executionId: id, status: "cancelled", cancelledAt, reason: cancellation.reason };
      }
      // The execution suspended itself first: then cancel it in the next round.
      if (status !== "suspended") throw alreadyEnded(status);
    }
  }

  async resume(
    workflowId: string,
    id: string,
    body: ResumeExecutionRequest,
    call: WorkflowCall,
    userId?: string,
  ): Promise<Serialized> {
    if (call.keyed?.isRepeated === true) {
      const found = await this.#lookup.find(workflowId, id, userId);
      const isDone = await wasResumed(this.#engine, found, call.keyed.runId);
      const earlier = isDone ? await this.#earlier({ workflowId, id, userId }, call) : null;
      if (earlier !== null) return earlier;
    }
    const resumed = await resumeExecution(this.#engine, () => this.#lookup.find(workflowId, id, userId), body, call);
    if ("outline" in resumed) return outcomeOf(resumed.state, resumed.outline);
    return this.#result(resumed, call, () => notSuspended(id, "running"));
  }

  async replay(
    workflowId: string,
    id: string,
    body: ReplayExecutionRequest,
    call: WorkflowCall,
    userId?: string,
  ): Promise<Serialized> {
    const own = call.keyed?.runId;
    const earlier = own === undefined ? null : await this.#earlier({ workflowId, id: own, userId }, call);
    if (earlier !== null) return earlier;
    // Its turn ends when the replay is stored: what it copies may be as large as an execution.
    const leave = await this.#engine.copies.enter(this.#principal.userId ?? userId ?? "");
    try {
      const source = await this.#atRest(workflowId, id, userId);
      const { found, loaded } = source;
      const { start } = found;
      await nextTurn();
      await this.#engine.store.requireRoom?.(start.userId, () => bytesOf(source));
      this.#engine.capacity.requireFree(start.user);
      const outline = await this.#engine.definitions.outline(start.definition);
      const { replay, state } = planReplay(loaded.state, loaded.entries, outline, body);
      const definition = await this.#engine.definitions.pinned(start.definition);
      checkReplay(definition, replay.stepId, body);
      lendToken(call.user, start.user);
      const kept = `[${[...(await valuesInSlices(replay.kept)).values()].join()}]`;
      const input = inputOfRow(found.recordRow!.value);
      return await this.#withFreeNumber((number) => {
        const again: ExecutionStart = {
          ...start,
          trace: undefined,
          id: own ?? this.#engine.newId(number),
          ownId: own !== undefined && this.#engine.spaces.isolated ? true : undefined,
          number,
          at: storedTime(),
          state,
          replay,
        };
        const execution = this.#engine.begin(again, definition, call, undefined, { trace: start.trace, kept, input });
        untilRecorded(execution).then(leave, leave);
        return this.#result(execution, call, (conflict) => unlessNumberTaken(conflict, number, stillRunning(again.id)));
      });
    } finally {
      leave();
    }
  }

  async state(workflowId: string, id: string, userId?: string): Promise<ExecutionState> {
    const { state: current, outline } = await this.#lookup.readState(workflowId, id, userId);
    return executionStateView(current, outline);
  }

  async executions(query: ExecutionQuery): Promise<Serialized> {
    const { workflowId } = query;
    if (workflowId !== undefined) this.#lookup.declared(workflowId);
    permittedUser(this.#principal, query.userId);
    const { store, live, definitions, remote } = this.#engine;
    const owned = this.#principal.isolated ? { ...query, owner: this.#principal.userId } : query;
    return listExecutions(owned, {
      store,
      *running() {
        for (const { state, definition, isRecorded, mayBeElsewhere } of live.values()) {
          if (!isRecorded || mayBeElsewhere) continue;
          const record = () => (state.status === "running" ? executionRecord(state, definition.outline) : null);
          yield { start: state.start, record };
        }
      },
      remote,
      outlineOf: (hash) => definitions.outline(hash),
    });
  }

  /** @param form converts the events to another format, for example for a chat */
  async attach(
    workflowId: string,
    id: string,
    after: number,
    userId?: string,
    form?: (start: ExecutionStart, reader: EventSink) => EventSink,
  ): Promise<EventProducer> {
    const execution = await this.#lookup.find(workflowId, id, userId);
    const follow = await executionEvents(this.#engine, execution, after);
    if (form === undefined) return follow;
    const { start } = ("loaded" in execution ? execution.loaded : execution).state;
    return (reader) => follow(form(start, reader));
  }

  /** Starts again with another number if the first is taken: nothing has had an effect before the first commit. */
  #withFreeNumber<T>(begin: (number: number) => Promise<T>): Promise<T> {
    return withFreeNumber(this.#engine.sequence, executionNumberRows, begin);
  }

  /** `data` of the reply once the execution has settled. `lost` makes the error when the first commit lost to another process. */
  async #result(execution: Execution, call: WorkflowCall, lost: Lost): Promise<Serialized> {
    // If the reply is cut short, the execution continues, and the client needs its id to find it.
    call.cutShort = { executionId: execution.state.start.id };
    await unlessLost(execution, execution.outcome(), lost);
    return outcomeOf(execution.state, execution.definition.outline);
  }

  async #atRest(workflowId: string, id: string, userId: string | undefined): Promise<StoredExecution> {
    const record = await this.#lookup.find(workflowId, id, userId);
    if ("loaded" in record && record.found.openRow === null) return record;
    throw invalid("the execution is still running: it can be replayed once it has ended or is suspended");
  }

  /**
   * Stops a running execution, and waits until it has settled.
   *
   * @throws ServiceError `invalid_input` when it has settled already
   */
  async #stop(execution: Execution | StoredExecution, request: StopRequest): Promise<JournalState> {
    if ("loaded" in execution) {
      const { found, loaded } = execution;
      if (found.openRow === null) throw alreadyEnded(loaded.state.status);
      return this.#stopRemote(found, request);
    }
    const { state } = execution;
    execution.stop(stopFromRequest(request));
    await unlessLost(execution, execution.outcome(), () => stillRunning(state.start.id));
    if (state.status === "running") throw stillRunning(state.start.id);
    return state;
  }

  #stopRemote(found: FoundExecution, request: StopRequest): Promise<JournalState> {
    const { store, environment } = this.#engine;
    // Without other processes, this process must have given the execution up.
    if (!environment.shared) throw stillRunning(found.start.id);
    return stopRemoteExecution(store, found, request);
  }
}

interface KeyedBegin {
  readonly workflowId: string;
  readonly body: ExecuteWorkflowRequest;
  readonly keyed: KeyedWork;
}

/**
 * Starts an execution with the id that belongs to the `Idempotency-Key`, or finds the one that an earlier request with the key has
 * started: its process may have died since.
 */
async function beginOnce<T>(
  lookup: ExecutionLookup,
  { workflowId, body, keyed }: KeyedBegin,
  begin: (body: ExecuteWorkflowRequest) => Promise<T>,
  find: (id: string, userId: string | undefined) => Promise<T>,
): Promise<T> {
  const { executionId = keyed.runId, userId } = body.options ?? {};
  if (keyed.isRepeated && (await unlessNotFound(lookup.find(workflowId, executionId, userId))) !== undefined)
    return find(executionId, userId);
  try {
    return await begin({ ...body, options: { ...body.options, executionId } });
  } catch (error) {
    // Of two simultaneous requests with one key, the other was faster.
    const isTaken = error instanceof ServiceError && error.kind === "conflict";
    if (!isTaken || body.options?.executionId !== undefined) throw error;
    return find(executionId, userId);
  }
}

/** Whether the journal has a resume with this token, which `resumeBeside` records. */
async function wasResumed({ store }: Engine, execution: Execution | StoredExecution, token: string): Promise<boolean> {
  const { start } = "loaded" in execution ? execution.loaded.state : execution.state;
  const found = await readExecution(store, start.number, start.id);
  const loaded = found === null ? null : await loadExecution(store, found);
  return loaded?.entries.some(([kind, , , given]) => kind === "answer" && given === token) === true;
}

// The events of an execution for a reader, wherever the execution runs.

/** The events after the one numbered `after`, then new ones until the execution settles. */
async function executionEvents(
  engine: Engine,
  execution: Execution | StoredExecution,
  after: number,
): Promise<EventProducer> {
  if (!("loaded" in execution)) return liveEvents(engine, execution, after);
  const { store, environment, definitions } = engine;
  const { loaded, found } = execution;
  const outline = await definitions.outline(found.start.definition);
  const follows = found.openRow !== null && environment.shared;
  return follows ? followRemoteExecution(store, found, outline, after) : followLoaded(loaded, outline, after);
}

/** The events of an execution that runs here. When another process recovers it, they continue from its journal. */
function liveEvents(engine: Engine, execution: Execution, after: number): EventProducer {
  const { store, environment, definitions, abandoned } = engine;
  const { start } = execution.state;
  return followLive(execution, after, store, async (last) => {
    const isInterrupted = execution.lifetime.stopped?.kind === "closing" || abandoned.has(start.number);
    const found = environment.shared && !isInterrupted ? await readExecution(store, start.number, start.id) : null;
    const ours = found?.open != null && found.open.process === environment.process;
    if (found === null || ours) throw stillRunning(start.id);
    return followRemoteExecution(store, found, await definitions.outline(start.definition), last);
  });
}
