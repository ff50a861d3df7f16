/** The workflows of a service: what runs here, what is declared, and what is on record. */

import type { Logger } from "pino";
import type { WorkflowDetail } from "../../generated/types.ts";
import type { Principal } from "../identity/principal.ts";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { Serialized } from "../lib/serialized.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { IdSpaces } from "../storage/id-spaces.ts";
import type { Sequence } from "../storage/sequence.ts";
import { isShared, isVolatile } from "../storage/sharing.ts";
import type { Store } from "../storage/store.ts";
import type { WorkflowDefinition } from "./definition/definition.ts";
import type { Definitions } from "./definition/definitions.ts";
import type { DescribedWorkflow } from "./definition/describe.ts";
import type { ExecutionStart } from "./journal/entries.ts";
import { noWorkflow } from "./journal/errors.ts";
import { createExecutionIds, liveKey, liveKeyFor } from "./journal/ids.ts";
import { initialState, type JournalState } from "./journal/state.ts";
import { RemoteExecutions } from "./list/running.ts";
import { ExecutionCapacity } from "./run/capacity.ts";
import { isStoreUnavailable } from "./run/commit.ts";
import { drive } from "./run/drive.ts";
import type { ExecutionCaller, ExecutionEnvironment, StoredRows } from "./run/environment.ts";
import { Execution } from "./run/execution.ts";
import { countEntry, countExit } from "./run/metrics.ts";
import { beginWorkflow, contextText, ExecutionSpans, type RunReason } from "./run/spans.ts";
import { ScopedWorkflows } from "./scoped.ts";
import type { WorkflowAccess, Workflows } from "./workflows.ts";

interface EngineParts {
  readonly store: Store;
  readonly logger: Logger;
  /** Names this process in the store. */
  readonly process: string;
  readonly sequence: Sequence;
  readonly spaces: IdSpaces;
  readonly definitions: Definitions;
  /** By id, in the order of the manifest. */
  readonly described: ReadonlyMap<string, DescribedWorkflow>;
  /** Most executions that run here at once. */
  readonly maxExecutions: number;
  /** What executions are traced with that no request asked for; absent where nothing is traced. */
  readonly trace?: SpanOrigin | undefined;
}

export class Engine implements Workflows {
  readonly store: Store;
  readonly logger: Logger;
  readonly definitions: Definitions;
  readonly newId = createExecutionIds();
  readonly sequence: Sequence;
  readonly spaces: IdSpaces;
  readonly trace: SpanOrigin | undefined;
  readonly environment: ExecutionEnvironment;
  /** What runs here, by `nameOf`. */
  readonly live = new Map<string, Execution>();
  readonly capacity: ExecutionCapacity;
  /** Set when the store may say that something runs here which does not: nobody heard whether its first commit happened. */
  mayHaveUnowned = false;
  /** Numbers of executions that could not even be ended: until the next start nothing of them is tried again. */
  readonly abandoned = new Set<number>();
  /** What runs elsewhere; null for a store of this process alone. */
  readonly remote: RemoteExecutions | null;
  readonly #described: ReadonlyMap<string, DescribedWorkflow>;
  readonly #running = new Map<string, number>();
  #list: Serialized | null = null;

  constructor(parts: EngineParts) {
    this.store = parts.store;
    this.logger = parts.logger;
    this.definitions = parts.definitions;
    this.sequence = parts.sequence;
    this.spaces = parts.spaces;
    this.trace = parts.trace;
    const { store, process } = parts;
    this.capacity = new ExecutionCapacity(parts.maxExecutions, () => this.live.size);
    this.environment = { store, process, shared: isShared(store), volatile: isVolatile(store) };
    this.remote = this.environment.shared ? new RemoteExecutions(store, () => this.liveNumbers()) : null;
    this.#described = parts.described;
  }

  list(): Serialized {
    this.#list ??= new Serialized(
      JSON.stringify([...this.#described].map(([id, workflow]) => workflow.summary(this.#statusOf(id)))),
    );
    return this.#list;
  }

  detail(id: string): WorkflowDetail {
    const workflow = this.#described.get(id);
    if (workflow === undefined) throw noWorkflow(id);
    return workflow.detail(this.#statusOf(id));
  }

  for(principal: Principal): WorkflowAccess {
    return new ScopedWorkflows(this, principal);
  }

  /** What runs here with an id: the owner's, else what has that id in the space of everybody, which may be another's. */
  liveExecution(id: string, owner: string | undefined): Execution | undefined {
    const own = owner === undefined || !this.spaces.owned ? undefined : this.live.get(liveKeyFor(id, owner));
    return own ?? this.live.get(id);
  }

  /** Numbers of what runs here. */
  liveNumbers(): ReadonlySet<number> {
    return new Set([...this.live.values()].map(({ state }) => state.start.number));
  }

  /** @throws ServiceError `not_found` */
  declared(id: string): WorkflowDefinition {
    const definition = this.definitions.current(id);
    if (definition === undefined) throw noWorkflow(id);
    return definition;
  }

  /**
   * Begins an execution; what comes of it, `settled` tells. `before` is `Start.trace` of the one that it is made from.
   *
   * @throws ServiceError `unavailable` when too many are running
   */
  begin(start: ExecutionStart, definition: WorkflowDefinition, caller: ExecutionCaller, before?: string): Execution {
    this.capacity.requireFree();
    const root = beginWorkflow(caller.trace, start);
    const known = root === null ? start : { ...start, trace: contextText(root) };
    const execution = new Execution(initialState(known), definition, caller, this.environment, null);
    const occasion = start.replay === undefined ? "execute" : "replay";
    if (root !== null)
      execution.spans = new ExecutionSpans(root, execution.state, definition.outline, occasion, before);
    return this.run(execution);
  }

  /** Makes an execution that is on record one that can go on here. */
  restore(
    state: JournalState,
    definition: WorkflowDefinition,
    caller: ExecutionCaller,
    recorded: StoredRows,
  ): Execution {
    return new Execution(state, definition, caller, this.environment, recorded);
  }

  /** Traces an execution that was restored, from now until it rests. */
  beginTrace(execution: Execution, occasion: RunReason): void {
    const { state, definition, caller } = execution;
    const root = beginWorkflow(caller.trace, state.start);
    if (root !== null)
      execution.spans = new ExecutionSpans(root, state, definition.outline, occasion, state.start.trace);
  }

  /** Runs it until it rests. `work` is what is done; by default its steps. */
  run(execution: Execution, work: (execution: Execution) => Promise<void> = drive): Execution {
    const { start } = execution.state;
    this.live.set(liveKey(start), execution);
    this.#count(start.workflowId, 1);
    countEntry(execution);
    execution.settled = this.#follow(execution, work);
    // Who waits for it hears of it; who has left need not.
    execution.settled.catch(() => {});
    return execution;
  }

  async #follow(execution: Execution, work: (execution: Execution) => Promise<void>): Promise<void> {
    const { start } = execution.state;
    const name = liveKey(start);
    try {
      await work(execution);
      execution.spans?.end(execution.state);
    } catch (error) {
      execution.spans?.end(execution.state, error);
      if (isStoreUnavailable(error)) this.mayHaveUnowned = true;
      if (execution.isRecorded) this.#lost(execution, error);
      throw error;
    } finally {
      if (this.live.get(name) === execution) this.live.delete(name);
      this.#count(start.workflowId, -1);
      countExit(execution);
      this.capacity.slotFreed();
      execution.abandoned = !execution.isAtRest;
      execution.notifyReaders();
    }
  }

  /** Stops what runs here where it stands: another process, or this one after its restart, takes it up. */
  async close(): Promise<void> {
    const stop = { kind: "closing", reason: "the server is stopping", gracePeriod: 0 } as const;
    const settled = [...this.live.values()].map((execution) => {
      execution.stop(stop);
      return execution.settled.catch(() => {});
    });
    await Promise.all(settled);
  }

  /** Resolves when nothing runs here, at the latest after some milliseconds. */
  async idle(patience: number): Promise<void> {
    if (this.live.size === 0) return;
    let timer: NodeJS.Timeout | undefined;
    const settled = Promise.allSettled([...this.live.values()].map((execution) => execution.settled));
    await Promise.race([
      settled,
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, patience);
      }),
    ]);
    clearTimeout(timer);
  }

  #lost(execution: Execution, error: unknown): void {
    const { id, number, workflowId } = execution.state.start;
    // Not the caller's logger: it may be gone, and this is about the process.
    const about = { executionId: id, workflowId };
    if (error instanceof CommitConflict) {
      this.logger.warn(about, "another process has taken this execution over: it is given up here");
    } else if (execution.lifetime.stopped?.kind !== "closing") {
      if (!isStoreUnavailable(error)) this.abandoned.add(number);
      this.logger.error({ ...about, err: error }, `an execution is given up here: ${messageOf(error)}`);
    }
  }

  #count(workflowId: string, change: 1 | -1): void {
    const before = this.#running.get(workflowId) ?? 0;
    this.#running.set(workflowId, before + change);
    if (before === 0 || before + change === 0) this.#list = null;
  }

  #statusOf(id: string): "running" | "idle" {
    return (this.#running.get(id) ?? 0) > 0 ? "running" : "idle";
  }
}
