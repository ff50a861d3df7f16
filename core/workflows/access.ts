/** The workflows for one principal: what the rows of the API do. */
import type {
  ExecuteWorkflowRequest,
  ExecutionCancellation,
  ExecutionState,
  ExecutionSuspended,
  ReplayExecutionRequest,
  ResumeExecutionRequest,
} from "../../generated/types.ts";
import { CommitConflict, invalid, ServiceError, unavailable } from "../errors.ts";
import { type EventProducer, Serialized } from "../http/route.ts";
import type { Principal } from "../memory/memory.ts";
import { actingUser, ownerOf } from "../memory/ownership.ts";
import type { Definition } from "./definition.ts";
import type { Engine } from "./engine.ts";
import type { Execution } from "./execution.ts";
import { followLive, followLoaded } from "./follow.ts";
import type { Start } from "./journal.ts";
import type { Stop } from "./lifetime.ts";
import { listExecutions } from "./list.ts";
import { findExecution } from "./load.ts";
import { Lookup, type OnRecord } from "./lookup.ts";
import { recordText, resultText, stateOf } from "./record.ts";
import { already, goesOn, notSuspended, taken } from "./refusals.ts";
import { planReplay } from "./replay.ts";
import { planResume } from "./resume.ts";
import type { ExecutionQuery, WorkflowAccess, WorkflowCall } from "./workflows.ts";

/** Milliseconds that steps may take to heed a cancel. */
const GRACE = 5_000;

export class Access implements WorkflowAccess {
  readonly #engine: Engine;
  readonly #principal: Principal;
  readonly #lookup: Lookup;

  constructor(engine: Engine, principal: Principal) {
    this.#engine = engine;
    this.#principal = principal;
    this.#lookup = new Lookup(engine, principal);
  }

  async execute(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Serialized> {
    const execution = await this.#begin(workflowId, body, call);
    return this.#result(execution, () => taken(execution.fold.start.id));
  }

  async stream(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<EventProducer> {
    const execution = await this.#begin(workflowId, body, call);
    while (!execution.recorded) {
      const moved = Promise.race([execution.more(), execution.settled]);
      await this.#unlessLost(moved, () => taken(execution.fold.start.id));
    }
    return followLive(execution, 0, this.#engine.store);
  }

  async suspend(workflowId: string, id: string, reason = "API request"): Promise<ExecutionSuspended> {
    const { fold } = await this.#stop(workflowId, id, { kind: "suspend", reason, patience: Number.POSITIVE_INFINITY });
    const { suspension, status } = fold;
    if (suspension === null) throw already(status);
    const suspendedAt = new Date(suspension.at).toISOString();
    return { executionId: id, status: "suspended", suspension: { suspendedAt, reason: suspension.reason } };
  }

  async cancel(workflowId: string, id: string, reason = "API request"): Promise<ExecutionCancellation> {
    const stop: Stop = { kind: "cancel", reason, patience: GRACE };
    for (;;) {
      const runs = this.#lookup.here(workflowId, id) !== undefined;
      const execution = runs
        ? await this.#stop(workflowId, id, stop)
        : await this.#cancelResting(workflowId, id, reason);
      // Null: somebody resumed it meanwhile.
      if (execution === null) continue;
      const { status, cancellation } = execution.fold;
      if (cancellation !== null) {
        const cancelledAt = new Date(cancellation.at).toISOString();
        return { executionId: id, status: "cancelled", cancelledAt, reason: cancellation.reason };
      }
      // Unless it suspended itself before it heard of it.
      if (status !== "suspended") throw already(status);
    }
  }

  async resume(workflowId: string, id: string, body: ResumeExecutionRequest, call: WorkflowCall): Promise<Serialized> {
    const { found, loaded } = await this.#suspended(workflowId, id);
    const definition = await this.#engine.definitions.pinned(found.start.definition);
    const entry = planResume(loaded.fold, definition, body);
    if (this.#engine.live.has(id)) throw notSuspended(id, "running");
    const execution = this.#engine.restore(loaded.fold, definition, call, { loaded, open: null, rest: found.rest });
    execution.append(entry);
    this.#engine.run(execution);
    return this.#result(execution, () => notSuspended(id, "running"));
  }

  async replay(workflowId: string, id: string, body: ReplayExecutionRequest, call: WorkflowCall): Promise<Serialized> {
    const { found, loaded } = await this.#past(workflowId, id);
    const { start } = found;
    const outline = await this.#engine.definitions.outline(start.definition);
    const { replay, state } = planReplay(loaded.fold, loaded.entries, outline, body);
    const definition = await this.#engine.definitions.pinned(start.definition);
    const number = await this.#engine.sequence.next();
    const again: Start = { ...start, id: this.#engine.newId(number), number, at: Date.now(), state, replay };
    return this.#result(this.#engine.begin(again, definition, call), () => goesOn(again.id));
  }

  async state(workflowId: string, id: string): Promise<ExecutionState> {
    const { fold, outline } = await this.#lookup.look(workflowId, id);
    return stateOf(fold, outline);
  }

  async executions(query: ExecutionQuery): Promise<Serialized> {
    const { workflowId } = query;
    if (workflowId !== undefined) this.#engine.declared(workflowId);
    const { store, live, definitions } = this.#engine;
    const owned = this.#principal.isolated ? { ...query, owner: ownerOf(this.#principal) } : query;
    return listExecutions(owned, {
      store,
      *running() {
        for (const { fold, definition, recorded } of live.values()) {
          if (!recorded) continue;
          const record = () => (fold.status === "running" ? recordText(fold, definition.outline) : null);
          yield { start: fold.start, record };
        }
      },
      outlineOf: (hash) => definitions.outline(hash),
    });
  }

  async attach(workflowId: string, id: string, after: number): Promise<EventProducer> {
    const execution = this.#lookup.here(workflowId, id);
    if (execution !== undefined) return followLive(execution, after, this.#engine.store);
    const { loaded, found } = await this.#lookup.onRecord(workflowId, id);
    return followLoaded(loaded, await this.#engine.definitions.outline(found.start.definition), after);
  }

  async #begin(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Execution> {
    const engine = this.#engine;
    const definition = engine.declared(workflowId);
    const { input = null, options = {} } = body;
    const problem = definition.inputCheck?.(input, "input") ?? null;
    if (problem !== null) throw invalid(problem);
    const userId = actingUser(this.#principal, options.userId) || undefined;
    const { executionId, conversationId, context, workflowState, metadata } = options;
    if (executionId !== undefined) {
      // A commit makes sure of it; this spares a second one the work.
      const exists = engine.live.has(executionId) || (await findExecution(engine.store, executionId)) !== null;
      if (exists || engine.live.has(executionId)) throw taken(executionId);
    }
    const next = engine.sequence.next();
    const number = typeof next === "number" ? next : await next;
    const start: Start = {
      id: executionId ?? engine.newId(number),
      number,
      workflowId,
      workflowName: definition.name,
      definition: definition.hash,
      at: Date.now(),
      input,
      context: context ?? {},
      state: workflowState ?? {},
      userId,
      conversationId,
      metadata,
      user: call.user ?? undefined,
    };
    return engine.begin(start, definition, call);
  }

  /** `data` of a reply that waits for the execution to rest. `lost` explains that somebody else was first. */
  async #result(execution: Execution, lost: () => ServiceError): Promise<Serialized> {
    await this.#settled(execution, lost);
    const { fold, definition } = execution;
    const { error, start, status } = fold;
    if (error !== null) {
      const message = error.stepId === "" ? error.message : `step ${JSON.stringify(error.stepId)}: ${error.message}`;
      throw new ServiceError("step_failed", message, { headers: { "x-execution-id": start.id } });
    }
    if (status === "running") throw goesOn(start.id);
    return new Serialized(resultText(fold, definition.outline));
  }

  /** Waits until it rests, or says why that takes longer than a request should. */
  #settled(execution: Execution, lost: () => ServiceError): Promise<void> {
    return this.#unlessLost(Promise.race([execution.settled, execution.troubled()]), lost);
  }

  async #unlessLost(waiting: Promise<void>, lost: () => ServiceError): Promise<void> {
    try {
      await waiting;
    } catch (error) {
      throw error instanceof CommitConflict ? lost() : error;
    }
  }

  async #suspended(workflowId: string, id: string): Promise<OnRecord> {
    if (this.#lookup.here(workflowId, id) !== undefined) throw notSuspended(id, "running");
    const record = await this.#lookup.onRecord(workflowId, id);
    const { status } = record.loaded.fold;
    if (record.found.open !== null || status !== "suspended") throw notSuspended(id, status);
    return record;
  }

  async #past(workflowId: string, id: string): Promise<OnRecord> {
    const here = this.#lookup.here(workflowId, id);
    const record = here === undefined ? await this.#lookup.onRecord(workflowId, id) : null;
    if (record !== null && record.found.open === null) return record;
    throw invalid("the execution is still running: it can be replayed once it rests");
  }

  /** Stops what runs, and waits until it rests. @throws ServiceError `invalid_input` when it rests already */
  async #stop(workflowId: string, id: string, stop: Stop): Promise<Execution> {
    const execution = this.#lookup.here(workflowId, id);
    if (execution === undefined) {
      const { found, loaded } = await this.#lookup.onRecord(workflowId, id);
      throw found.open === null ? already(loaded.fold.status) : elsewhere();
    }
    execution.stop(stop);
    await this.#settled(execution, () => goesOn(id));
    if (execution.fold.status === "running") throw goesOn(id);
    return execution;
  }

  async #cancelResting(workflowId: string, id: string, reason: string): Promise<Execution | null> {
    const { found, loaded } = await this.#lookup.onRecord(workflowId, id);
    if (this.#engine.live.has(id)) return null;
    if (found.open !== null) throw elsewhere();
    const { status } = loaded.fold;
    if (status !== "suspended") throw already(status);
    // What is gone of its definition does not matter: nothing runs any more.
    const definition = { outline: await this.#engine.definitions.outline(found.start.definition) } as Definition;
    const caller = { requestId: "", logger: this.#engine.logger };
    const execution = this.#engine.restore(loaded.fold, definition, caller, { loaded, open: null, rest: found.rest });
    execution.append(["cancel", "", Date.now(), reason]);
    try {
      await execution.rest();
    } catch (error) {
      if (error instanceof CommitConflict) return null;
      throw error;
    }
    return execution;
  }
}

const elsewhere = () => unavailable("the execution is run by another process");
