/** The workflow engine of a process: the executions that run here, the definitions, and the store. */
import type { Logger } from "pino";
import type { WorkflowDetail } from "../../generated/types.ts";
import { type User, userIdOf } from "../identity/principal.ts";
import { within } from "../lib/abortable.ts";
import { Copies } from "../lib/copies.ts";
import { CommitConflict, messageOf, rateLimited, unavailable } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { Serialized } from "../lib/serialized.ts";
import type { CountRefusal } from "../observability/metrics/meters.ts";
import type { SpanOrigin } from "../observability/span.ts";
import { isStoreUnavailable } from "../storage/away.ts";
import { type Membership, nameProcess } from "../storage/membership.ts";
import type { Sequence } from "../storage/sequence.ts";
import { type IdSpaces, isVolatile, type Store } from "../storage/store.ts";
import type { WorkflowDefinition } from "./definition/definition.ts";
import type { Definitions } from "./definition/definitions.ts";
import type { DescribedWorkflow } from "./definition/describe.ts";
import { createExecutionIds, type ExecutionStart, liveKey, liveKeyFor, parseOwnId } from "./journal/entries.ts";
import { noWorkflow } from "./journal/load.ts";
import { isRun, isTask, runIdOf } from "./journal/record.ts";
import { initialState, type JournalState } from "./journal/state.ts";
import { RemoteExecutions } from "./list/list.ts";
import { drive } from "./run/drive.ts";
import type { ExecutionCaller, ExecutionEnvironment, StoredRows } from "./run/environment.ts";
import { Execution, type ReplaySource } from "./run/execution.ts";
import { logFailure } from "./run/lifetime.ts";
import { beginWorkflow, contextText, ExecutionSpans, type RunReason } from "./run/spans.ts";

/* Limits how many executions run in this process at once, of all and of one user, and begins none where there is no room for it. */

interface CapacityLimits {
  readonly executions: number;
  /** Of one known user. Who is nobody shares the places of all. */
  readonly userExecutions?: number | undefined;
}

class ExecutionCapacity {
  #limits: CapacityLimits;
  #running = 0;
  readonly #ofUsers = new KeyCounts();
  readonly #refused: CountRefusal | undefined;
  /** Slots reserved for executions that are about to run. */
  #reserved = 0;
  readonly #waiting: (() => void)[] = [];
  /** False: those that are kept take all the room of `memory:`, and none of them has ended. */
  hasRoom = true;
  #resolveFull: () => void = () => {};
  /** Resolves when an execution has to wait for a slot for the first time. */
  readonly full: Promise<void> = new Promise((resolve) => {
    this.#resolveFull = resolve;
  });

  /** @param refused called whenever there is no slot for a client */
  constructor(limits: CapacityLimits, refused?: CountRefusal) {
    this.#limits = limits;
    this.#refused = refused;
  }

  /** Sets the limits from now on. Running executions are not affected. */
  set limits(limits: CapacityLimits) {
    this.#limits = limits;
    this.#slotFreed();
  }

  get #free(): boolean {
    return this.#running + this.#reserved < this.#limits.executions;
  }

  /** Must be called when an execution runs from now on. */
  entered(user: User | undefined): void {
    this.#count(user, 1);
  }

  /** Must be called when an execution that had entered has ended. */
  left(user: User | undefined): void {
    this.#count(user, -1);
    this.#slotFreed();
  }

  #count(user: User | undefined, change: 1 | -1): void {
    this.#running += change;
    const id = userIdOf(user ?? null);
    if (id !== null) this.#ofUsers.add(id, change);
  }

  /**
   * Checks for a free slot for an execution that a client requests: it does not wait, and does not overtake those that do.
   *
   * @param user whose execution it is
   * @throws ServiceError `rate_limited` when this user has too many, `unavailable` when all together have
   */
  requireFree(user: User | null | undefined, { isNew = false } = {}): void {
    // One that goes on needs no more room.
    if (isNew && !this.hasRoom)
      throw unavailable("the executions in memory: take all their room, and none has ended: resume or cancel some");
    const { executions, userExecutions = executions } = this.#limits;
    const id = userIdOf(user ?? null);
    if (id !== null && this.#ofUsers.of(id) >= userExecutions) {
      this.#refused?.("server.limits.userExecutions");
      throw rateLimited(
        `${userExecutions} executions of this user are running, as many as server.limits.userExecutions allows: try again`,
      );
    }
    if (this.#free && this.#waiting.length === 0) return;
    this.#refused?.("server.limits.executions");
    throw unavailable(`${executions} executions are running, as many as server.limits.executions allows: try again`);
  }

  /** Runs `work`, which may start an execution, as soon as there is a free slot for it. */
  async whenFree<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free) this.#reserved++;
    else {
      this.#resolveFull();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await work();
    } finally {
      this.#reserved--;
      this.#slotFreed();
    }
  }

  #slotFreed(): void {
    if (this.#waiting.length === 0 || !this.#free) return;
    this.#reserved++;
    this.#waiting.shift()!();
  }

  /** Lets everything that waits proceed at once, for the shutdown: it checks by itself that nothing may start any more. */
  releaseWaiting(): void {
    for (const proceed of this.#waiting.splice(0)) {
      this.#reserved++;
      proceed();
    }
  }
}

interface EngineParts extends EngineSettings {
  readonly store: Store;
  readonly logger: Logger;
  /** The processes that share the store; null when no other process uses it. */
  readonly membership: Membership | null;
  readonly sequence: Sequence;
  readonly spaces: IdSpaces;
  /** Called for each execution that a limit refuses or stops. */
  readonly refused?: CountRefusal | undefined;
}

/** Whether a step may have asked a person: it waits still, was stopped, or had asked before the execution was read from the store. */
const mayHaveWaited = ({ state, takenUp }: Execution): boolean =>
  state.endedAt !== null &&
  (takenUp?.mayHaveAsked === true ||
    [...state.steps.values()].some(({ status }) => status === "waiting" || status === "running"));

/** The settings that come from the manifest. */
interface EngineSettings {
  readonly definitions: Definitions;
  /** Descriptions by workflow id, in the order of the manifest. */
  readonly described: ReadonlyMap<string, DescribedWorkflow>;
  /** How many executions may run here at once, and how many bytes one may record. */
  readonly limits: CapacityLimits & { readonly execution: number };
  /** Starts the traces of recovered executions; undefined when tracing is off. */
  readonly trace?: SpanOrigin | undefined;
}

export class Engine {
  readonly store: Store;
  readonly logger: Logger;
  definitions: Definitions;
  readonly newId = createExecutionIds();
  readonly sequence: Sequence;
  readonly spaces: IdSpaces;
  trace: SpanOrigin | undefined;
  readonly environment: ExecutionEnvironment;
  /** The executions that run here, by `liveKey`. */
  readonly live = new Map<string, Execution>();
  readonly capacity: ExecutionCapacity;
  /** Replays, which copy what their execution has recorded. */
  readonly copies = new Copies();
  /**
   * Set when the store was unavailable during a commit, so that it is unknown whether the commit happened: the store may have an open
   * row of this process for an execution that does not run.
   */
  mayHaveUnowned = false;
  /** Numbers of executions whose failure could not be recorded. They are not recovered before the next start. */
  readonly abandoned = new Set<number>();
  /** Executions that no process runs because this one lacks what they need, with the revisions of their open rows. */
  leftAlone: ReadonlyMap<number, number> = new Map();
  /** Called when an execution has ended that may have asked a person something. Must not reject. */
  onEnd: ((state: JournalState) => Promise<void>) | null = null;
  /** Called when the run of a task has come to rest, and when a task without one is answered. Must not reject. */
  onTaskRest: ((agentId: string, taskId: string) => Promise<unknown>) | null = null;
  readonly membership: Membership | null;
  /** Reads executions of other processes; null when only this process uses the store. */
  readonly remote: RemoteExecutions | null;
  #described: ReadonlyMap<string, DescribedWorkflow>;
  /** Executions that run here, by workflow. */
  readonly #running = new KeyCounts();
  #list: Serialized | null = null;

  constructor(parts: EngineParts) {
    this.store = parts.store;
    this.logger = parts.logger;
    this.definitions = parts.definitions;
    this.sequence = parts.sequence;
    this.spaces = parts.spaces;
    this.trace = parts.trace;
    const { store, membership, refused } = parts;
    this.capacity = new ExecutionCapacity(parts.limits, refused);
    const alone = nameProcess();
    this.environment = {
      store,
      get process() {
        return membership?.name ?? alone;
      },
      shared: membership !== null,
      lease: membership,
      volatile: isVolatile(store),
      maxBytes: parts.limits.execution,
      tooLarge: () => refused?.("server.limits.execution"),
    };
    this.membership = membership;
    if (membership !== null) {
      membership.busy = () => this.#running.keys();
      membership.onLost(() => this.#giveUpAll());
    }
    this.remote = this.environment.shared ? new RemoteExecutions(store, () => this.liveNumbers()) : null;
    this.#described = parts.described;
  }

  /** Starts and resumes executions with these settings from now on. Those that run keep theirs. */
  adopt({ definitions, described, limits, trace }: EngineSettings): void {
    this.definitions = definitions;
    this.#described = described;
    this.#list = null;
    this.trace = trace;
    this.capacity.limits = limits;
    this.environment.maxBytes = limits.execution;
  }

  list(): Serialized | Promise<Serialized> {
    if (this.membership !== null) return this.membership.busyElsewhere().then((busy) => this.#listed(busy));
    this.#list ??= this.#listed();
    return this.#list;
  }

  detail(id: string): WorkflowDetail | Promise<WorkflowDetail> {
    const workflow = this.#described.get(id);
    if (workflow === undefined) throw noWorkflow(id);
    if (this.membership === null || this.#isRunningHere(id)) return workflow.detail(this.#statusOf(id));
    return this.membership.busyElsewhere().then((busy) => workflow.detail(this.#statusOf(id, busy)));
  }

  #listed(elsewhere?: ReadonlySet<string>): Serialized {
    return new Serialized(
      JSON.stringify([...this.#described].map(([id, workflow]) => workflow.summary(this.#statusOf(id, elsewhere)))),
    );
  }

  /** The running execution with an id: the owner's own first, else the one in the shared space, which may belong to another user. */
  liveExecution(id: string, owner: string | undefined): Execution | undefined {
    const own = owner === undefined || !this.spaces.owned ? undefined : this.live.get(liveKeyFor(id, owner));
    return own ?? this.live.get(id);
  }

  /** The numbers of the executions that run here, and surely nowhere else. */
  liveNumbers(): ReadonlySet<number> {
    const here = [...this.live.values()].filter(({ mayBeElsewhere }) => !mayBeElsewhere);
    return new Set(here.map(({ state }) => state.start.number));
  }

  /** @throws ServiceError `not_found` */
  declared(id: string): WorkflowDefinition {
    const definition = this.definitions.current(id);
    if (definition === undefined) throw noWorkflow(id);
    return definition;
  }

  /**
   * Starts an execution; its `settled` resolves when it settles.
   *
   * @param isContested whether another process may begin one with this id at the same time; default: unless the id was made here
   * @throws ServiceError `unavailable` when too many are running, or waiting in `memory:`
   */
  begin(
    start: ExecutionStart,
    definition: WorkflowDefinition,
    caller: ExecutionCaller,
    isContested = parseOwnId(start.id) !== start.number,
    source?: ReplaySource,
  ): Execution {
    this.capacity.requireFree(start.user, { isNew: true });
    if (this.membership?.isOver) throw unavailable("the service has stopped: try again");
    const root = isRun(start.workflowId) ? null : beginWorkflow(caller.trace, start);
    const known = root === null ? start : { ...start, trace: contextText(root) };
    const execution = new Execution(initialState(known), definition, caller, this.environment, null, source);
    execution.isContested = isContested && this.environment.shared;
    const reason = start.replay === undefined ? "execute" : "replay";
    if (root !== null)
      execution.spans = new ExecutionSpans(root, execution.state, definition.outline, reason, source?.trace);
    return this.run(execution);
  }

  /** Makes an execution that is in the store ready to continue here. */
  restore(stored: StoredRows, definition: WorkflowDefinition, caller: ExecutionCaller): Execution {
    return new Execution(stored.loaded.state, definition, caller, this.environment, stored);
  }

  /** Traces a restored execution from now until it settles. */
  beginTrace(execution: Execution, reason: RunReason): void {
    const { state, definition, caller } = execution;
    // The run of an agent has a span of its own.
    if (isRun(state.start.workflowId)) return;
    const root = beginWorkflow(caller.trace, state.start);
    if (root !== null) execution.spans = new ExecutionSpans(root, state, definition.outline, reason, state.start.trace);
  }

  /** Runs an execution until it settles. By default `work` runs its steps. */
  run(execution: Execution, work: (execution: Execution) => Promise<void> = drive): Execution {
    const { start } = execution.state;
    const { meter } = execution.definition;
    this.live.set(liveKey(start), execution);
    this.capacity.entered(start.user);
    this.#count(start.workflowId, 1);
    if (meter !== undefined) meter.running++;
    execution.definition.uses?.enter();
    execution.settled = this.#runToRest(execution, work);
    // Whoever waits for it handles the rejection; when nobody does, it must not end the process.
    execution.settled.catch(() => {});
    return execution;
  }

  async #runToRest(execution: Execution, work: (execution: Execution) => Promise<void>): Promise<void> {
    const { start } = execution.state;
    const { meter } = execution.definition;
    const { charge } = execution.caller;
    const key = liveKey(start);
    charge?.enter();
    try {
      await work(execution);
      execution.spans?.end(execution.state);
      logFailure(execution, work === drive);
      if (mayHaveWaited(execution)) await this.onEnd?.(execution.state);
    } catch (error) {
      execution.spans?.end(execution.state, error);
      if (isStoreUnavailable(error) || execution.lifetime.stopped?.kind === "lost") this.mayHaveUnowned = true;
      if (execution.isRecorded) this.#logAbandoned(execution, error);
      throw error;
    } finally {
      if (this.live.get(key) === execution) this.live.delete(key);
      this.#count(start.workflowId, -1);
      if (meter !== undefined) {
        meter.running--;
        if (execution.isAtRest && execution.state.status !== "running") meter.executions.count(execution.state.status);
      }
      execution.definition.uses?.leave();
      charge?.leave();
      this.capacity.left(start.user);
      execution.abandoned = !execution.isAtRest;
      execution.notifyReaders();
      // Its end may be on disk where this process has not heard so.
      if (isTask(start)) this.onTaskRest?.(start.workflowName, runIdOf(start));
    }
  }

  /** Interrupts the executions that run here: another process, or this one after its restart, recovers them. */
  async close(): Promise<void> {
    const stop = { kind: "closing", reason: "the server is stopping", gracePeriod: 0 } as const;
    const settled = [...this.live.values()].map((execution) => {
      execution.stop(stop);
      return execution.settled.catch(() => {});
    });
    await Promise.all(settled);
  }

  /** Resolves when no execution runs here any more, at the latest after `timeoutMs`. */
  async idle(timeoutMs: number): Promise<void> {
    if (this.live.size === 0) return;
    await within(timeoutMs, Promise.allSettled([...this.live.values()].map((execution) => execution.settled)));
  }

  #logAbandoned(execution: Execution, error: unknown): void {
    const { id, number, workflowId } = execution.state.start;
    // Not the logger of the request: these lines are about the process.
    const about = { executionId: id, workflowId };
    if (error instanceof CommitConflict) {
      this.logger.warn(about, "another process has recovered this execution: it is given up here");
    } else if (execution.lifetime.stopped?.kind !== "closing") {
      if (!isStoreUnavailable(error)) this.abandoned.add(number);
      this.logger.error({ ...about, err: error }, `an execution is given up here: ${messageOf(error)}`);
    }
  }

  #count(workflowId: string, change: 1 | -1): void {
    const count = this.#running.add(workflowId, change);
    if (count === 0 || count === change) this.#list = null;
  }

  #isRunningHere(id: string): boolean {
    return this.#running.of(id) > 0;
  }

  #statusOf(id: string, elsewhere?: ReadonlySet<string>): "running" | "idle" {
    return this.#isRunningHere(id) || elsewhere?.has(id) ? "running" : "idle";
  }

  /** Called when others have removed the lease of this process: they own its executions now. Those not recovered yet may continue here. */
  #giveUpAll(): void {
    const stop = { kind: "lost", reason: "another process has taken this execution over", gracePeriod: 0 } as const;
    for (const execution of this.live.values()) execution.stop(stop);
    this.mayHaveUnowned = true;
  }
}
