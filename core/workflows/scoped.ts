/** The workflows for one principal: what the rows of the API do. */
import { defaults } from "../../generated/defaults.ts";
import type {
  ExecuteWorkflowRequest,
  ExecutionCancellation,
  ExecutionState,
  ExecutionSuspended,
  ReplayExecutionRequest,
  ResumeExecutionRequest,
} from "../../generated/types.ts";
import { permittedUser } from "../identity/ownership.ts";
import type { Principal } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { CommitConflict, invalid, ServiceError } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import { Serialized } from "../lib/serialized.ts";
import { beginExecution } from "./begin.ts";
import { followRemoteExecution } from "./cluster/follow-remote.ts";
import { type StopRequest, stopFromRequest, stopRemoteExecution } from "./cluster/stop-requests.ts";
import type { WorkflowDefinition } from "./definition/definition.ts";
import type { Engine } from "./engine.ts";
import type { ExecutionStart } from "./journal/entries.ts";
import { alreadyEnded, executionIdTaken, notSuspended, resumedMeanwhile, stillRunning } from "./journal/errors.ts";
import { liveKey } from "./journal/ids.ts";
import { type FoundExecution, readExecution } from "./journal/load.ts";
import { executionRecordText, executionResultText, executionStateView } from "./journal/record.ts";
import { parseOpenRow } from "./journal/rows.ts";
import { type JournalState, timeAfter } from "./journal/state.ts";
import { listExecutions } from "./list/list.ts";
import { ExecutionLookup, type StoredExecution } from "./list/lookup.ts";
import type { Execution } from "./run/execution.ts";
import { followLive, followLoaded } from "./run/follow.ts";
import { planReplay } from "./run/replay.ts";
import { checkReplay, planResume } from "./run/resume.ts";
import type { ExecutionQuery, WorkflowAccess, WorkflowCall } from "./workflows.ts";

export class ScopedWorkflows implements WorkflowAccess {
  readonly #engine: Engine;
  readonly #principal: Principal;
  readonly #lookup: ExecutionLookup;

  constructor(engine: Engine, principal: Principal) {
    this.#engine = engine;
    this.#principal = principal;
    this.#lookup = new ExecutionLookup(engine, principal);
  }

  async execute(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Serialized> {
    const execution = await beginExecution(this.#engine, this.#principal, workflowId, body, call);
    return this.#result(execution, call, () => executionIdTaken(execution.state.start.id));
  }

  async stream(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<EventProducer> {
    const execution = await beginExecution(this.#engine, this.#principal, workflowId, body, call);
    while (!execution.isRecorded) {
      const moved = Promise.race([execution.progress(), execution.settled]);
      await this.#unlessLost(execution, moved, () => executionIdTaken(execution.state.start.id));
    }
    return this.#follow(execution, 0);
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
    // It was resumed before this could be said.
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
      const state = rests ? await this.#cancelResting(found, reason) : await this.#stop(found, request);
      // Somebody resumed it meanwhile.
      if (state === null || state.status === "running") continue;
      const { status, cancellation } = state;
      if (cancellation !== null) {
        const cancelledAt = new Date(cancellation.at).toISOString();
        return { executionId: id, status: "cancelled", cancelledAt, reason: cancellation.reason };
      }
      // Unless it suspended itself before it heard of it.
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
    const { found, loaded } = await this.#suspended(workflowId, id, userId);
    const definition = await this.#engine.definitions.pinned(found.start.definition);
    const entry = planResume(loaded.state, definition, body);
    if (this.#engine.live.has(liveKey(found.start))) throw notSuspended(id, "running");
    this.#engine.capacity.requireFree();
    const execution = this.#engine.restore(loaded.state, definition, call, {
      loaded,
      openRow: null,
      recordRow: found.recordRow,
    });
    this.#engine.beginTrace(execution, "resume");
    execution.append(entry);
    this.#engine.run(execution);
    return this.#result(execution, call, () => notSuspended(id, "running"));
  }

  async replay(
    workflowId: string,
    id: string,
    body: ReplayExecutionRequest,
    call: WorkflowCall,
    userId?: string,
  ): Promise<Serialized> {
    const { found, loaded } = await this.#past(workflowId, id, userId);
    this.#engine.capacity.requireFree();
    const { start } = found;
    const outline = await this.#engine.definitions.outline(start.definition);
    const { replay, state } = planReplay(loaded.state, loaded.entries, outline, body);
    const definition = await this.#engine.definitions.pinned(start.definition);
    checkReplay(definition, replay.stepId, body);
    const number = await this.#engine.sequence.next();
    const again: ExecutionStart = {
      ...start,
      trace: undefined,
      id: this.#engine.newId(number),
      ownId: undefined,
      number,
      at: storedTime(),
      state,
      replay,
    };
    return this.#result(this.#engine.begin(again, definition, call, start.trace), call, () => stillRunning(again.id));
  }

  async state(workflowId: string, id: string, userId?: string): Promise<ExecutionState> {
    const { state: current, outline } = await this.#lookup.look(workflowId, id, userId);
    return executionStateView(current, outline);
  }

  async executions(query: ExecutionQuery): Promise<Serialized> {
    const { workflowId } = query;
    if (workflowId !== undefined) this.#engine.declared(workflowId);
    permittedUser(this.#principal, query.userId);
    const { store, live, definitions, remote } = this.#engine;
    const owned = this.#principal.isolated ? { ...query, owner: this.#principal.userId } : query;
    return listExecutions(owned, {
      store,
      *running() {
        for (const { state, definition, isRecorded } of live.values()) {
          if (!isRecorded) continue;
          const record = () => (state.status === "running" ? executionRecordText(state, definition.outline) : null);
          yield { start: state.start, record };
        }
      },
      remote,
      outlineOf: (hash) => definitions.outline(hash),
    });
  }

  async attach(workflowId: string, id: string, after: number, userId?: string): Promise<EventProducer> {
    const { store, environment, definitions } = this.#engine;
    const execution = await this.#lookup.find(workflowId, id, userId);
    if (!("loaded" in execution)) return this.#follow(execution, after);
    const { loaded, found } = execution;
    const outline = await definitions.outline(found.start.definition);
    const follows = found.openRow !== null && environment.shared;
    return follows ? followRemoteExecution(store, found, outline, after) : followLoaded(loaded, outline, after);
  }

  /** When another process takes it over, its events come from there. */
  #follow(execution: Execution, after: number): EventProducer {
    const { store, environment, definitions, abandoned } = this.#engine;
    const { start } = execution.state;
    return followLive(execution, after, store, async (last) => {
      const stands = execution.lifetime.stopped?.kind === "closing" || abandoned.has(start.number);
      const found = environment.shared && !stands ? await readExecution(store, start.number) : null;
      const ours = found?.openRow != null && parseOpenRow(found.openRow.value).process === environment.process;
      if (found === null || ours) throw stillRunning(start.id);
      return followRemoteExecution(store, found, await definitions.outline(start.definition), last);
    });
  }

  /** `data` of a reply that waits for the execution to rest. `lost` explains that somebody else was first. */
  async #result(execution: Execution, call: WorkflowCall, lost: () => ServiceError): Promise<Serialized> {
    // It goes on when the reply cannot wait any longer: who asked must be able to find it.
    call.cutHeaders = { "x-execution-id": execution.state.start.id };
    await this.#settled(execution, lost);
    const { state, definition } = execution;
    const { error, start, status } = state;
    if (error !== null) {
      const message = error.stepId === "" ? error.message : `step ${JSON.stringify(error.stepId)}: ${error.message}`;
      throw new ServiceError("step_failed", message, { headers: { "x-execution-id": start.id } });
    }
    if (status === "running") throw stillRunning(start.id);
    return new Serialized(executionResultText(state, definition.outline));
  }

  /** Waits until it rests, or says why that takes longer than a request should. */
  #settled(execution: Execution, lost: () => ServiceError): Promise<void> {
    return this.#unlessLost(execution, Promise.race([execution.settled, execution.commitFailure()]), lost);
  }

  /** `lost` is for one that did not even begin here; what another process has taken over goes on there. */
  async #unlessLost(execution: Execution, waiting: Promise<void>, lost: () => ServiceError): Promise<void> {
    try {
      await waiting;
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      throw execution.isRecorded ? stillRunning(execution.state.start.id) : lost();
    }
  }

  async #suspended(workflowId: string, id: string, userId: string | undefined): Promise<StoredExecution> {
    const record = await this.#lookup.find(workflowId, id, userId);
    if (!("loaded" in record)) throw notSuspended(id, "running");
    const { status } = record.loaded.state;
    if (record.found.openRow !== null || status !== "suspended") throw notSuspended(id, status);
    return record;
  }

  async #past(workflowId: string, id: string, userId: string | undefined): Promise<StoredExecution> {
    const record = await this.#lookup.find(workflowId, id, userId);
    if ("loaded" in record && record.found.openRow === null) return record;
    throw invalid("the execution is still running: it can be replayed once it rests");
  }

  /** Stops what runs, and waits until it rests. @throws ServiceError `invalid_input` when it rests already */
  async #stop(execution: Execution | StoredExecution, request: StopRequest): Promise<JournalState> {
    if ("loaded" in execution) {
      const { found, loaded } = execution;
      if (found.openRow === null) throw alreadyEnded(loaded.state.status);
      return this.#stopElsewhere(found, request);
    }
    const { state } = execution;
    execution.stop(stopFromRequest(request));
    await this.#settled(execution, () => stillRunning(state.start.id));
    if (state.status === "running") throw stillRunning(state.start.id);
    return state;
  }

  #stopElsewhere(found: FoundExecution, request: StopRequest): Promise<JournalState> {
    const { store, environment } = this.#engine;
    // In a store of our own it is one that could not go on here.
    if (!environment.shared) throw stillRunning(found.start.id);
    return stopRemoteExecution(store, found, request);
  }

  /** @returns null when it does not rest any more */
  async #cancelResting({ found, loaded }: StoredExecution, reason: string): Promise<JournalState | null> {
    // What is gone of its definition does not matter: nothing runs any more.
    const definition = {
      outline: await this.#engine.definitions.outline(found.start.definition),
    } as WorkflowDefinition;
    const caller = { requestId: "", logger: this.#engine.logger };
    const execution = this.#engine.restore(loaded.state, definition, caller, {
      loaded,
      openRow: null,
      recordRow: found.recordRow,
    });
    execution.append(["cancel", "", timeAfter(execution.state), reason]);
    try {
      await execution.writeRecord();
    } catch (error) {
      if (error instanceof CommitConflict) return null;
      throw error;
    }
    return execution.state;
  }
}
