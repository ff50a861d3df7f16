/** A kept run in this process: what the agent is given for it, and who waits for it. */
import type { Logger } from "pino";
import type { RunCall } from "../agents/agent.ts";
import type { PreparedRun } from "../agents/run/execute.ts";
import type { RunEntry, RunJournal } from "../agents/run/journal.ts";
import type { AgentPart } from "../agents/run/parts.ts";
import { emptyRunResult, type RunResult } from "../agents/run/run.ts";
import type { WaitingPlace } from "../agents/run/waiting.ts";
import type { Caller } from "../identity/caller.ts";
import type { User } from "../identity/user.ts";
import { storedTime } from "../lib/clock.ts";
import type { ServiceError } from "../lib/errors.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { JoinedChanges } from "../storage/joined.ts";
import type { StepCall } from "../workflows/definition/definition.ts";
import type { RunOutput } from "../workflows/journal/run-record.ts";
import { GivenUp } from "../workflows/run/lifetime.ts";
import type { KeptSink } from "./sink.ts";

/** The part of a request's context that a run keeps when the request is over. */
type RunOrigin = Pick<RunCall, "user" | "caller" | "requestId" | "logger" | "trace" | "client">;

/** The call and the journal of a run. It is prepared before its step begins, so that a bad request is refused at once. */
export class LiveRun implements RunJournal {
  readonly call: RunCall;
  /** Set by the first try in this process. */
  prepared: PreparedRun | null = null;
  sink: KeptSink | null = null;
  /** Whether somebody reads the parts while they come. */
  isRead = false;
  /** Its result, so far. */
  outcome = emptyRunResult();
  /** Whether its end is on disk. */
  hasEnded = false;
  /** Whether it has failed of itself. */
  hasFailed = false;
  readonly accepted: Promise<void>;
  readonly result: Promise<RunResult>;
  /** Rejects when it waits for a store that is away. */
  readonly stalled: Promise<never>;
  away: (error: ServiceError) => void = () => {};
  /** Resolves when it goes on here no more. */
  readonly left: Promise<void>;
  leave: () => void = () => {};
  accept: () => void = () => {};
  resolve: (outcome: RunResult) => void = () => {};
  reject: (error: unknown) => void = () => {};
  #step: StepCall | null;

  readonly waitsAt: WaitingPlace | undefined;

  /**
   * @param waitsAt undefined where it does not wait for approvals
   * @param step of a run that goes on here after a crash
   */
  constructor(origin: RunOrigin, waitsAt: WaitingPlace | undefined, step: StepCall | null = null) {
    this.waitsAt = waitsAt;
    this.#step = step;
    this.call = new KeptCall(origin, () => this.#step);
    this.result = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.left = new Promise((resolve) => {
      this.leave = resolve;
    });
    this.accepted = new Promise((resolve, reject) => {
      this.accept = resolve;
      this.result.then(() => resolve(), reject);
    });
    this.stalled = new Promise((_, reject) => {
      this.away = reject;
    });
    // Of a run whose client has left nobody waits for these.
    this.accepted.catch(() => {});
    this.stalled.catch(() => {});
  }

  begin(step: StepCall): void {
    this.#step = step;
  }

  get hasBegun(): boolean {
    return this.#step !== null;
  }

  /** Somebody reads the parts from now on. */
  read(): void {
    this.isRead = true;
    this.sink?.read();
  }

  get recorded(): readonly RunEntry[] {
    return (this.#step?.kept ?? []) as readonly RunEntry[];
  }

  get isRepeated(): boolean {
    return this.#step?.isRepeated ?? false;
  }

  get hasStreamed(): boolean {
    return this.#step?.hasStreamed ?? false;
  }

  get begunAt(): number {
    return this.since;
  }

  get since(): number {
    return this.#step?.startedAt ?? storedTime();
  }

  get isInterrupted(): boolean {
    return this.#step?.isInterrupted ?? false;
  }

  note(entry: RunEntry): void {
    // Where the step has ended nothing of it counts.
    this.#step?.keep(entry, true).catch(() => {});
  }

  async flush(): Promise<void> {
    await this.#step?.flush();
  }

  async end(last: AgentPart, store: (joined: JoinedChanges) => Promise<void>): Promise<boolean> {
    if (this.#step === null) return false;
    this.sink?.end();
    this.hasEnded = await this.#step.endWith(last, this.output, store);
    return this.hasEnded;
  }

  /** What its step gives once it is over. */
  get output(): RunOutput {
    const { output, text, usage } = this.outcome;
    return { output: output === undefined ? text : output, usage };
  }

  record(entry: RunEntry): Promise<void> {
    return this.#step === null ? Promise.reject(new GivenUp("the run has not begun")) : this.#step.keep(entry);
  }
}

/** The context of the run: that of its request, but the signal is the step's. */
class KeptCall implements RunCall {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  /** Of the request: limits for those who name no user count by it. */
  readonly client?: NonNullable<RunCall["client"]>;
  readonly #origin: RunOrigin;
  readonly trace: SpanOrigin | undefined;
  readonly #step: () => StepCall | null;

  constructor(origin: RunOrigin, step: () => StepCall | null) {
    const { user, caller, requestId, trace } = origin;
    this.#origin = origin;
    this.user = user;
    this.caller = caller;
    this.requestId = requestId;
    this.trace = trace;
    if (origin.client !== undefined) this.client = origin.client;
    this.#step = step;
  }

  confirm(): Promise<void> | undefined {
    return this.#step()?.confirm?.();
  }

  get logger(): Logger {
    return this.#origin.logger;
  }

  get signal(): AbortSignal {
    return this.#step()?.signal ?? NEVER;
  }
}

const NEVER = new AbortController().signal;
