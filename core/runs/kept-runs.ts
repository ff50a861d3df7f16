/**
 * Keeps runs of agents: each is an execution of the engine, so that its storage, its lease, its recovery, its cancellation and its
 * removal are those of executions.
 */
import type { Approval } from "../../generated/types.ts";
import { RAW } from "../agents/agent.ts";
import { type AwaitedCall, isAskedCall } from "../agents/prompt/awaited-calls.ts";
import type { RunCall } from "../agents/run/caller.ts";
import { RunWaits, type WaitingPlace } from "../agents/run/journal.ts";
import { NULL_SINK, type PartSink } from "../agents/run/parts.ts";
import { emptyRunResult, type RunResult, wasAborted } from "../agents/run/run.ts";
import type {
  AnsweredRun,
  KeptAgent,
  KeptRequest,
  KeptRun,
  RunKeeper,
  RunName,
  StartableRun,
} from "../agents/run-requests.ts";
import type { Approvals } from "../approvals/approvals.ts";
import type { Charge } from "../http/exchange.ts";
import { type Principal, principalOf, seesEverything } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { CommitConflict, notFound, ServiceError, unlessNotFound } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import { jsonBytes } from "../lib/size.ts";
import type { Uses } from "../lib/uses.ts";
import { logError } from "../observability/failures.ts";
import { openExecutionKey } from "../storage/keys.ts";
import { withFreeNumber } from "../storage/sequence.ts";
import { isLive, isStored } from "../workflows/begin.ts";
import { type StepCall, Suspend, type WorkflowDefinition } from "../workflows/definition/definition.ts";
import type { Engine } from "../workflows/engine.ts";
import type { ExecutionStart } from "../workflows/journal/entries.ts";
import {
  type RunOutput,
  type RunSuspension,
  runDefinitionId,
  runExecutionId,
  runIdOf,
} from "../workflows/journal/record.ts";
import { ExecutionLookup } from "../workflows/list/lookup.ts";
import type { Execution } from "../workflows/run/execution.ts";
import { executionNumberRows, unlessNumberTaken } from "../workflows/run/execution-rows.ts";
import { WorkflowAccess } from "../workflows/scoped.ts";
import { StepCaller } from "../workflows/steps/tool.ts";
import { RUN_STEP, runDefinition } from "./definition.ts";
import { KeptSink, LiveRun } from "./live-run.ts";
import { earlierResult, RunIdTaken, runCancelled, runInterrupted } from "./outcome.ts";
import { ConversationRuns, endReply, partEvents, replyWith, ScopedRuns } from "./scoped.ts";

type Answers = Pick<Approvals, "find" | "hear">;

export class KeptRuns implements RunKeeper {
  readonly lasts: boolean;
  readonly #engine: Engine;
  /** By id, as runs are taken up again: those of the manifest in force. */
  #definitions: ReadonlyMap<string, WorkflowDefinition> = new Map();
  /** Their ids, and those of agents that reloads have removed, whose runs go on. */
  readonly #known = new Set<string>();
  /** A run begins with its own agent, also when a reload comes in between. */
  readonly #definitionOf = new WeakMap<KeptAgent, WorkflowDefinition>();
  /** The runs that go on here, by the key of their step. */
  readonly #live = new Map<string, LiveRun>();
  /** Woken when a run goes on here. */
  readonly #resting = new Set<() => void>();
  readonly #conversations: ConversationRuns;
  readonly #approvals: Answers;
  /** Told of a task before it goes on here. Must not reject. */
  onTask: ((agentId: string, runId: string) => Promise<void>) | null = null;

  constructor(engine: Engine, approvals: Answers) {
    this.#engine = engine;
    this.#approvals = approvals;
    this.lasts = !engine.environment.volatile;
    this.#conversations = new ConversationRuns(engine.store, this.lasts);
  }

  /**
   * From now on runs are taken up by these agents. Those that go on keep the agents that they began with.
   *
   * @param uses counts the runs that go on with them
   */
  adopt(agents: Iterable<KeptAgent>, uses: Uses): void {
    const definitions = new Map<string, WorkflowDefinition>();
    for (const agent of agents) {
      const definition = runDefinition(agent, (call) => this.#run(agent, call), uses);
      definitions.set(definition.workflowId, definition);
      this.#known.add(definition.workflowId);
      this.#definitionOf.set(agent, definition);
      this.#engine.definitions.add(definition);
    }
    this.#definitions = definitions;
  }

  /**
   * The runs as a principal sees them.
   *
   * @param ofRemoved whether those of agents that a reload has removed are among them
   * @param charge counts what is held of the runs that are read
   */
  for(principal: Principal, { ofRemoved = false, charge }: { ofRemoved?: boolean; charge?: Charge | undefined } = {}) {
    const declared = (id: string) => {
      if (!(ofRemoved ? this.#known : this.#definitions).has(id)) throw notFound("the agent does not exist");
    };
    const lookup = new ExecutionLookup(this.#engine, principal, declared, charge);
    const executions = new WorkflowAccess(this.#engine, principal, lookup);
    return new ScopedRuns(principal, {
      executions,
      lookup,
      conversations: this.#conversations,
      live: this,
    });
  }

  /** As `Store.watch`: tells of runs that go on after a rest, here or in another process. */
  watch(topic: string, woken: () => void): () => void {
    const end = this.#engine.store.watch?.(topic, woken);
    this.#resting.add(woken);
    return () => {
      end?.();
      this.#resting.delete(woken);
    };
  }

  async requireFree(runId: string, userId: string | undefined): Promise<void> {
    const id = runExecutionId(runId);
    if (isLive(this.#engine, id, userId) || (await isStored(this.#engine, id, userId))) throw new RunIdTaken(runId);
  }

  newRun(
    agent: KeptAgent,
    request: KeptRequest,
    call: RunCall,
    { runId, isChosen, isContested, keyed }: RunName,
  ): KeptRun {
    const anew = (isRead: boolean) => {
      const live = new LiveRun(call, waitingPlace(agent, request, runId));
      live.prepared = agent.prepare(request, live.call, runId, live);
      live.isRead = isRead;
      return live;
    };
    let live = anew(false);
    const prepared = live.prepared!;
    const { userId } = prepared.plan.settings.memory;
    const attach = () =>
      this.for(principalOf(call, this.#engine.spaces.isolated)).attach(agent.id, runId, 0, { userId });
    const begin = <T>(wait: (execution: Execution) => Promise<T>): Promise<T> =>
      withFreeNumber(this.#engine.sequence, executionNumberRows, async (number) => {
        const room = this.#engine.store.requireRoom?.(userId, () => jsonBytes(request));
        if (room !== undefined) await room;
        if (isContested) await this.requireFree(runId, userId);
        // The number before was taken, which the run may have found out when it had failed of it.
        if (live.hasBegun) live = anew(live.isRead);
        return this.#begin(agent, request, call, number, live, isContested, wait);
      });
    /** @param earlier what is made of the run that a request with the same key has begun */
    const begun = async <T>(
      wait: (execution: Execution) => Promise<T>,
      earlier: (follow: EventProducer) => T | Promise<T>,
    ): Promise<T> => {
      const known = keyed === "repeated" ? await unlessNotFound(attach()) : undefined;
      if (known !== undefined) return earlier(known);
      try {
        return await begin(wait);
      } catch (error) {
        // The next with the key begins another run.
        if (live.hasFailed) await call.keyed?.free();
        // Of two with one key, the other was faster.
        if (keyed === null || isChosen || !(error instanceof RunIdTaken)) throw error;
        return earlier(await attach());
      }
    };
    return {
      id: runId,
      prepared,
      result: () =>
        begun(
          (execution) => this.#result(execution, live),
          (follow) => earlierResult(follow, runId),
        ),
      events:
        (form = RAW) =>
        async (events) => {
          live.isRead = true;
          const follow = await begun(
            async (execution) => {
              await Promise.race([live.accepted.promise, live.stalled.promise, execution.settled]);
              await onDisk(execution);
              return attach();
            },
            (known) => known,
          );
          if (form.isRaw) await follow(partEvents(events, form));
          else await replyWith(follow, events, form);
        },
      kept: { start: () => begun(onDisk, () => false), left: live.left.promise },
    };
  }

  async answered(
    agentId: string,
    calls: readonly AwaitedCall[],
    context: Readonly<Record<string, unknown>>,
    from: RunCall,
  ): Promise<AnsweredRun | null> {
    const found = await Promise.all(calls.map(({ approvalId }) => this.#approvals.find(approvalId, from)));
    const fits = (asked: Approval | undefined, index: number) =>
      asked?.agentId === agentId && isAskedCall(asked, calls[index]!, context);
    const { runId, userId } = found.find(fits) ?? {};
    if (runId === undefined) return null;
    const asked: string[] = [];
    const awaited: string[] = [];
    for (const [index, { approvalId, toolCallId, answer }] of calls.entries()) {
      const approval = found[index];
      if (!fits(approval, index) || approval!.runId !== runId) continue;
      if (answer !== null) await this.#approvals.hear(approvalId, answer, from);
      asked.push(approvalId);
      if (answer !== null || approval!.status !== "open") awaited.push(toolCallId);
    }
    const runs = this.for(principalOf(from, this.#engine.spaces.isolated));
    const follow = runs.followOn(agentId, runId, userId, awaited, from.signal);
    return {
      id: runId,
      result: () => earlierResult(follow, runId),
      events:
        (form = RAW) =>
        (events) =>
          replyWith(follow, events, form, asked),
    };
  }

  askingRun(agent: KeptAgent, request: KeptRequest, call: RunCall, runId: string, isChosen: boolean): StartableRun {
    let execution: Execution | null = null;
    const keep = () =>
      withFreeNumber(this.#engine.sequence, executionNumberRows, (number) =>
        this.#begin(agent, request, call, number, live, false, async (begun) => {
          execution = begun;
          await Promise.race([live.handedOver.promise, begun.settled]);
          await onDisk(begun);
          call.replyWith = { facts: { runId } };
        }),
      );
    const live: LiveRun = new LiveRun(call, waitingPlace(agent, request, runId), null, keep);
    const prepared = agent.prepare(request, live.call, runId, live);
    live.prepared = prepared;
    /** Resolves to null when the run waits. */
    const work = async (reader: PartSink): Promise<RunResult | null> => {
      if (isChosen) await this.requireFree(runId, prepared.plan.settings.memory.userId);
      live.work = agent.execute(prepared, live.readBy(reader), live.outcome);
      try {
        return await live.work;
      } catch (error) {
        if (!(error instanceof RunWaits) || execution === null) throw error;
        await execution.outcome();
        return null;
      }
    };
    return {
      id: runId,
      prepared,
      result: async () => (await work(NULL_SINK)) ?? { ...live.outcome, runId },
      events:
        (form = RAW) =>
        async (events) => {
          const reader = form(events);
          try {
            if ((await work(reader)) === null) await endReply(reader, live.outcome);
          } catch (error) {
            if (!wasAborted(error, prepared.plan.call, reader)) throw error;
            if (!reader.closed) await reader.part({ type: "abort" });
          }
        },
    };
  }

  async #begin<T>(
    agent: KeptAgent,
    request: KeptRequest,
    call: RunCall,
    number: number,
    live: LiveRun,
    isContested: boolean,
    wait: (execution: Execution) => Promise<T>,
  ): Promise<T> {
    const { plan } = live.prepared!;
    const definition = this.#definitionOf.get(agent)!;
    const { userId, conversationId } = plan.settings.memory;
    const start: ExecutionStart = {
      id: runExecutionId(plan.id),
      number,
      workflowId: definition.workflowId,
      workflowName: agent.id,
      definition: definition.hash,
      at: storedTime(),
      ownId: this.#engine.spaces.isolated ? true : undefined,
      input: request,
      context: {},
      state: {},
      userId,
      conversationId,
      isResumable: request.isResumable,
      user: call.user ?? undefined,
      caller: seesEverything(call.caller) ? call.caller.kind : undefined,
    };
    // After the last await before the begin.
    if (isLive(this.#engine, start.id, userId)) throw new RunIdTaken(plan.id);
    const key = liveKeyOf(start);
    this.#live.set(key, live);
    let execution: Execution;
    try {
      execution = this.#engine.begin(start, definition, call, isContested);
    } catch (error) {
      this.#live.delete(key);
      throw error;
    }
    const leave = start.conversationId !== undefined ? this.#conversations.begin(start) : undefined;
    const endWatch = this.#engine.store.watched?.(openExecutionKey(number), () => live.read());
    // Readers in other processes of which the store does not tell.
    if (endWatch === undefined && this.#engine.environment.shared) live.read();
    execution.settled.catch(live.result.reject).finally(() => {
      if (this.#live.get(key) === live) this.#live.delete(key);
      leave?.();
      endWatch?.();
      live.left.resolve();
    });
    try {
      return await wait(execution);
    } catch (error) {
      if (live.hasFailed) {
        // Only a failure that is on record is the end: otherwise the run may go on here or in another process.
        await execution.outcome().catch(() => {});
        live.hasFailed = execution.isAtRest;
      }
      if (!(error instanceof CommitConflict)) throw error;
      // The work goes on as that of the next one.
      if (live.work !== null && !execution.isRecorded) {
        live.takeBack();
        execution.stop({ kind: "lost", reason: "its number is taken", gracePeriod: 0 });
      }
      if (execution.isRecorded) throw runInterrupted(plan.id);
      throw unlessNumberTaken(error, number, new RunIdTaken(plan.id));
    }
  }

  /** The work of the step: the run itself. */
  async #run(agent: KeptAgent, call: StepCall): Promise<RunOutput | Suspend | null> {
    const key = call.idempotencyKey;
    const known = this.#live.get(key);
    const request = call.scope.input as KeptRequest;
    const runId = runIdOf({ id: call.executionId });
    const live = known ?? new LiveRun(recoveredCall(call, this.#engine), waitingPlace(agent, request, runId), call);
    live.begin(call);
    const { work } = live;
    // One that goes on is found by its conversation as it was when it began.
    const { start } = (known === undefined && this.#engine.liveExecution(call.executionId, call.userId)?.state) || {};
    const leave = start?.conversationId === undefined ? undefined : this.#conversations.begin(start);
    if (known === undefined) {
      // A crash may have left readers, who come back to this process or to another.
      live.isRead = true;
      for (const woken of this.#resting) woken();
      live.result.promise.catch(() => {});
      this.#live.set(key, live);
      if (request.isTask) await this.onTask?.(agent.id, runId);
    }
    if (work === null) {
      live.sink = new KeptSink(call, live.isRead, live.accepted.resolve);
      live.outcome = emptyRunResult();
    }
    const { outcome } = live;
    const sink = live.sink!;
    try {
      const prepared = live.prepared ?? agent.prepare(request, live.call, runId, live);
      await (work ?? agent.execute(prepared, sink, outcome));
      live.result.resolve(outcome);
      return live.hasEnded ? null : live.output;
    } catch (error) {
      if (error instanceof RunWaits) {
        live.result.resolve({ ...outcome, runId });
        return new Suspend("a tool needs approval", { approvals: error.approvals } satisfies RunSuspension, false);
      }
      live.hasFailed = !call.signal.aborted;
      live.result.reject(error);
      if (call.signal.aborted) throw error;
      logError(live.call.logger, error, { agentId: agent.id, runId });
      // What is on record is the kind of the failure, not the code of what caused it.
      if (error instanceof ServiceError) throw Object.assign(new Error(error.message), { code: error.kind });
      // The message of any other error is for the log alone.
      throw new Error("internal error");
    } finally {
      sink.end();
      leave?.();
      if (known === undefined) this.#live.delete(key);
    }
  }

  /** @throws what made the run fail, or ServiceError when it was stopped */
  async #result(execution: Execution, live: LiveRun): Promise<RunResult> {
    const { state } = execution;
    await Promise.race([execution.outcome(), live.stalled.promise]);
    if (state.status === "cancelled") throw runCancelled();
    if (state.status === "running") throw runInterrupted(runIdOf(state.start));
    return live.result.promise;
  }

  /** Somebody reads the parts of a run: where it goes on here, they are sent while they come. */
  read(agentId: string, runId: string, userId: string | undefined): void {
    const execution = this.#engine.liveExecution(runExecutionId(runId), userId);
    if (execution?.state.start.workflowId === runDefinitionId(agentId))
      this.#live.get(liveKeyOf(execution.state.start))?.read();
  }
}

/** As `StepCall.idempotencyKey` has it. */
const liveKeyOf = ({ id, number, ownId }: ExecutionStart): string =>
  `${ownId === true ? `${id}@${number}` : id}:${RUN_STEP}`;

const waitingPlace = ({ id }: KeptAgent, { isTask }: KeptRequest, runId: string): WaitingPlace => ({
  ...(isTask && { taskId: runId }),
  workflowId: runDefinitionId(id),
  executionId: runExecutionId(runId),
  stepId: RUN_STEP,
  runId,
});

function recoveredCall(call: StepCall, { trace }: Engine) {
  const { user, caller, requestId, logger } = new StepCaller(call);
  return { user, caller, requestId, logger, trace };
}

/** Resolves to true when the begin of a run is on disk; rejects when that failed. */
async function onDisk(execution: Execution): Promise<boolean> {
  if (!execution.isRecorded) await Promise.race([execution.flush(), execution.settled]);
  return true;
}
