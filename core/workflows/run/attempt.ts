/** One try of a step's work: what the work may read and do while the try lasts. */
import type { Logger } from "pino";
import type { Caller } from "../../identity/principal.ts";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Span } from "../../observability/span.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import type { StepCall, StepScope, WorkStep } from "../definition/definition.ts";
import { idempotencyPrefix, type JournalEntry } from "../journal/entries.ts";
import { timeAfter } from "../journal/state.ts";
import type { Execution } from "./execution.ts";
import { executionLogger, GivenUp, type Lifetime, type Stop } from "./lifetime.ts";

const NOTHING: readonly unknown[] = Object.freeze([]);

/** Kinds of stops after which the step continues later. */
const GOES_ON: ReadonlySet<Stop["kind"]> = new Set<Stop["kind"]>(["suspend", "closing", "lost"]);

export class StepAttempt implements StepCall {
  readonly scope: StepScope;
  readonly attempt: number;
  readonly resume: { readonly data: unknown } | null;
  readonly trace: Span | undefined;
  readonly kept: readonly unknown[];
  readonly hasStreamed: boolean;
  readonly isRepeated: boolean;
  readonly begunAt: number;
  readonly #execution: Execution;
  readonly #step: WorkStep;
  readonly #lifetime: Lifetime;
  #change: Record<string, unknown> | undefined;
  #logger: Logger | null = null;
  #hasEnded = false;

  constructor(execution: Execution, step: WorkStep, scope: StepScope, attempt: number, lifetime: Lifetime) {
    this.#execution = execution;
    this.#step = step;
    this.#lifetime = lifetime;
    this.scope = scope;
    this.attempt = attempt;
    this.trace = execution.spans?.of(step.path);
    const known = execution.state.steps.get(step.path);
    this.resume = known?.resume ?? null;
    this.kept = known === undefined || known.kept.length === 0 ? NOTHING : [...known.kept];
    this.hasStreamed = known?.hasStreamed ?? false;
    this.isRepeated = known !== undefined && execution.takenUp?.has(known) === true;
    this.begunAt = known?.begunAt ?? 0;
  }

  get workflowId(): string {
    return this.#execution.state.start.workflowId;
  }

  get path(): string {
    return this.#step.path;
  }

  get executionId(): string {
    return this.#execution.state.start.id;
  }

  get startedAt(): number {
    return this.#execution.state.start.at;
  }

  get conversationId(): string | undefined {
    return this.#execution.state.start.conversationId;
  }

  get userId(): string | undefined {
    return this.#execution.state.start.userId;
  }

  get caller(): Caller {
    const { caller, user } = this.#execution.state.start;
    return { kind: caller ?? (user === undefined ? "nobody" : "user") };
  }

  get idempotencyKey(): string {
    return `${idempotencyPrefix(this.#execution.state.start)}:${this.#step.path}`;
  }

  get tryKey(): string {
    const { begunWith, failures } = this.#execution.state.steps.get(this.#step.path)!;
    return `${this.idempotencyKey}:${begunWith}:${failures + 1}`;
  }

  get requestId(): string {
    return this.#execution.caller.requestId;
  }

  get logger(): Logger {
    this.#logger ??= boundLogger(executionLogger(this.#execution), {
      stepId: this.#step.path,
      spanId: this.trace?.spanId,
    });
    return this.#logger;
  }

  get signal(): AbortSignal {
    return this.#lifetime.signal;
  }

  get isInterrupted(): boolean {
    const stop = this.#lifetime.stopped;
    return stop !== null && GOES_ON.has(stop.kind);
  }

  /** After a pause of this process, another one may have the execution by now. */
  confirm(): Promise<void> | undefined {
    const { lease } = this.#execution;
    if (this.#lifetime.stopped === null && (lease === null || lease.isHeld())) return undefined;
    const { signal } = this;
    signal.throwIfAborted();
    return lease?.confirm(signal).then(() => signal.throwIfAborted());
  }

  setState(change: Record<string, unknown>): void {
    if (!this.#hasEnded) this.#change = { ...this.#change, ...jsonCopy(change) };
  }

  part(part: unknown, later = false): Promise<void> | undefined {
    const execution = this.#execution;
    if (this.#hasEnded || this.#lifetime.isAbandoned) return undefined;
    execution.append(["part", this.#step.path, timeAfter(execution.state), part]);
    return later ? undefined : execution.flush();
  }

  flush(): Promise<void> {
    return this.#execution.flush();
  }

  async keep(value: unknown, later = false): Promise<void> {
    const execution = this.#execution;
    if (this.#hasEnded || this.#lifetime.isAbandoned) throw new GivenUp("the step has ended");
    execution.append(["keep", this.#step.path, timeAfter(execution.state), value]);
    if (later) return;
    // What is appended in the same turn goes into the same commit.
    await null;
    await execution.flush();
  }

  endWith(last: unknown, output: unknown, store: (joined: JoinedChanges) => Promise<void>): Promise<boolean> {
    const execution = this.#execution;
    const { path } = this.#step;
    const entries = (): JournalEntry[] => {
      if (this.#hasEnded || this.#lifetime.isAbandoned) throw new GivenUp("the step has ended");
      const at = timeAfter(execution.state);
      return [
        ["part", path, at, last],
        ["done", path, at, output],
        ["end", "", at, null, path],
      ];
    };
    const ended = execution.endWith(entries, store);
    execution.ending = ended.catch(() => {});
    return ended;
  }

  /** Ends the try, so that nothing it does from now on has an effect. @returns its changes of shared state */
  end(): Record<string, unknown> | undefined {
    this.#hasEnded = true;
    return this.#change;
  }
}

/** A copy of the value as the journal will store it. */
function jsonCopy(change: Record<string, unknown>): object {
  try {
    const copy: unknown = JSON.parse(JSON.stringify(change));
    if (typeof copy === "object" && copy !== null) return copy;
  } catch {
    // The message of JSON.stringify would not tell the user which call was wrong.
  }
  throw new Error("setState takes values that JSON can hold");
}
