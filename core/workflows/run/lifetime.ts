/**
 * How long work may run. Lifetimes form a tree: execution, branch, attempt. Stopping one stops all below it. Abort signals,
 * timers and listeners are created when they are first needed, and end with the lifetime.
 */
import { setMaxListeners } from "node:events";
import type { Logger } from "pino";
import { boundLogger } from "../../observability/bound-logger.ts";
import { isRun, runIdOf } from "../journal/record.ts";
import type { JournalState } from "../journal/state.ts";
import type { ExecutionCaller } from "./environment.ts";
import type { ExecutionSpans } from "./spans.ts";

/** Why work is stopped. A stop of a higher rank replaces one of a lower rank. */
type StopKind = "suspend" | "cancel" | "timeout" | "size" | "branch" | "closing" | "lost";

const STOP_RANK: Readonly<Record<StopKind, number>> = {
  suspend: 0,
  cancel: 1,
  timeout: 2,
  size: 2,
  branch: 2,
  closing: 3,
  lost: 4,
};

export interface Stop {
  readonly kind: StopKind;
  /** The reason as text for people. */
  readonly reason: string;
  /** Milliseconds that work may still take after its signal has aborted, before it is abandoned and its result discarded. */
  readonly gracePeriod: number;
}

/** The work was abandoned. Also the reason of its aborted signal. */
export class GivenUp extends Error {
  override readonly name = "GivenUp";
}

/** A timer with a longer delay would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export class Lifetime {
  /** Why the work has to stop, or null while it may continue. */
  stopped: Stop | null = null;
  /** Whether this lifetime itself was stopped, and not one above it. */
  stoppedItself = false;
  readonly #parent: Lifetime | null;
  #children: Set<Lifetime> | null = null;
  #controller: AbortController | null = null;
  #limitTimer: NodeJS.Timeout | null = null;
  #graceTimer: NodeJS.Timeout | null = null;
  #rejectWork: ((error: GivenUp) => void) | null = null;

  /** @param limit milliseconds after which it stops by itself; null for no time limit */
  constructor(parent: Lifetime | null, limit: number | null = null) {
    this.#parent = parent;
    if (parent !== null) {
      this.stopped = parent.stopped;
      parent.#children ??= new Set();
      parent.#children.add(this);
    }
    if (limit !== null) this.setTimeLimit(limit);
  }

  /** Stops the lifetime after some milliseconds. */
  setTimeLimit(milliseconds: number): void {
    const stop: Stop = { kind: "timeout", reason: "timed out", gracePeriod: 0 };
    const left = milliseconds - MAX_TIMER_MS;
    this.#limitTimer = setTimeout(
      () => (left > 0 ? this.setTimeLimit(left) : this.stop(stop)),
      Math.min(milliseconds, MAX_TIMER_MS),
    );
  }

  /** Whether the work is abandoned at once, without a grace period: nothing of it may be recorded any more. */
  get isAbandoned(): boolean {
    return this.stopped !== null && this.stopped.gracePeriod === 0;
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      // Each of many parallel branches may listen, which Node would take for a leak.
      setMaxListeners(0, this.#controller.signal);
      if (this.stopped !== null) this.#controller.abort(new GivenUp(this.stopped.reason));
    }
    return this.#controller.signal;
  }

  stop(stop: Stop): void {
    if (this.stopped !== null && STOP_RANK[stop.kind] <= STOP_RANK[this.stopped.kind]) return;
    this.stoppedItself = true;
    this.#stop(stop);
  }

  #stop(stop: Stop): void {
    this.stopped = stop;
    // Before the signal aborts, so that an error which the work throws because of the abort is not taken for its outcome.
    if (this.#rejectWork !== null) this.#startGracePeriod(stop);
    this.#controller?.abort(new GivenUp(stop.reason));
    if (this.#children === null) return;
    for (const child of this.#children) {
      if (child.stopped === null || STOP_RANK[stop.kind] > STOP_RANK[child.stopped.kind]) {
        child.stoppedItself = false;
        child.#stop(stop);
      }
    }
  }

  /** The result of the work; rejects with `GivenUp` when the work is abandoned first. */
  wait(work: PromiseLike<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#rejectWork = reject;
      if (this.stopped !== null) this.#startGracePeriod(this.stopped);
      // A foreign thenable may call back more than once, a promise does not.
      Promise.resolve(work).then(resolve, reject);
    });
  }

  #startGracePeriod({ gracePeriod, reason }: Stop): void {
    const reject = this.#rejectWork as (error: GivenUp) => void;
    if (this.#graceTimer !== null) clearTimeout(this.#graceTimer);
    if (gracePeriod === 0) reject(new GivenUp(reason));
    else if (gracePeriod < MAX_TIMER_MS) this.#graceTimer = setTimeout(() => reject(new GivenUp(reason)), gracePeriod);
  }

  /** Resolves to true when the time has passed, to false when the lifetime was stopped before. */
  async sleep(milliseconds: number): Promise<boolean> {
    const { signal } = this;
    for (let left = milliseconds; this.stopped === null; left -= MAX_TIMER_MS) {
      await new Promise<void>((resolve) => {
        const wake = () => {
          clearTimeout(timer);
          signal.removeEventListener("abort", wake);
          resolve();
        };
        const timer = setTimeout(wake, Math.min(left, MAX_TIMER_MS));
        signal.addEventListener("abort", wake);
      });
      if (left <= MAX_TIMER_MS) break;
    }
    return this.stopped === null;
  }

  /** Clears timers and leaves the tree. Must be called when the work has ended. */
  end(): void {
    const siblings = this.#parent === null ? null : this.#parent.#children;
    siblings?.delete(this);
    if (this.#limitTimer !== null) clearTimeout(this.#limitTimer);
    if (this.#graceTimer !== null) clearTimeout(this.#graceTimer);
    this.#rejectWork = null;
  }
}

// The logger of an execution: its lines name the execution.

/** What of an execution its lines name. */
export interface LoggedExecution {
  readonly caller: Pick<ExecutionCaller, "logger">;
  readonly state: JournalState;
  readonly spans: ExecutionSpans | null;
}

/** The request's logger with the ids of the execution. Create it only when there is something to log. */
export function executionLogger({ caller, state, spans }: LoggedExecution): Logger {
  const { workflowId, id: executionId, conversationId, userId } = state.start;
  return boundLogger(caller.logger, {
    workflowId,
    executionId,
    conversationId,
    userId,
    traceId: spans?.root.traceId,
  });
}

/** Logs the error with which an execution has ended, unless the run of an agent has logged it. */
export function logFailure(execution: LoggedExecution, isWorkedOn: boolean): void {
  const { status, error, start } = execution.state;
  if (status !== "error" || error === null) return;
  const { stepId, message } = error;
  if (isRun(start.workflowId)) {
    const about = { agentId: start.workflowName, conversationId: start.conversationId, userId: start.userId };
    const runId = runIdOf(start);
    if (!isWorkedOn) boundLogger(execution.caller.logger, about).warn({ runId }, `the run failed: ${message}`);
    return;
  }
  executionLogger(execution).warn({ stepId }, `the execution failed at step ${stepId}: ${message}`);
}
