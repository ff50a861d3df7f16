/** A kept run in this process: what the agent is given for it, and who waits for it. */
import type { Logger } from "pino";
import type { RunCall } from "../agents/run/caller.ts";
import type { RunEntry, RunJournal, WaitingPlace } from "../agents/run/journal.ts";
import { type AgentPart, type Delta, type PartSink, plainDelta } from "../agents/run/parts.ts";
import { emptyRunResult, type PreparedRun, type RunResult } from "../agents/run/run.ts";
import type { Caller, User } from "../identity/principal.ts";
import { Deferred } from "../lib/abortable.ts";
import { AbortSource, type Aborts, abortsOf } from "../lib/aborts.ts";
import { storedTime } from "../lib/clock.ts";
import type { ServiceError } from "../lib/errors.ts";
import type { SpanOrigin } from "../observability/span.ts";
import type { JoinedChanges } from "../storage/joined.ts";
import type { StepCall } from "../workflows/definition/definition.ts";
import type { RunOutput } from "../workflows/journal/record.ts";
import { GivenUp } from "../workflows/run/lifetime.ts";

// Writes the parts of a kept run to its journal. Deltas of one block that come before the same commit are one part.

/** While somebody reads them, parts are on disk when no more have come for the first time, or after the second. */
const PAUSE_MS = 20;
const LONGEST_MS = 50;
/** Characters that are not on disk yet: above this the run waits. */
const MAX_UNWRITTEN = 256 * 1024;
/** What a part counts beside its text. */
const PART_CHARACTERS = 200;

/** Where the parts go. */
type Written = Pick<StepCall, "part" | "flush">;

export class KeptSink implements PartSink {
  /** Only the signal of the step ends the run. */
  readonly closed = false;
  readonly #call: Written;
  readonly #onAccepted: () => void;
  #isRead: boolean;
  #held: Delta | null = null;
  #unwritten = 0;
  #timer: NodeJS.Timeout | null = null;
  /** When the last part came. */
  #last = 0;

  /** @param isRead whether somebody reads the parts while they come */
  constructor(call: Written, isRead: boolean, onAccepted: () => void) {
    this.#call = call;
    this.#isRead = isRead;
    this.#onAccepted = onAccepted;
  }

  accepted(): void {
    this.#onAccepted();
  }

  part(part: AgentPart): Promise<void> | undefined {
    if (isDelta(part)) this.#addDelta(part);
    else {
      this.#release();
      this.#call.part(part, true);
      this.#unwritten += PART_CHARACTERS;
    }
    if (this.#unwritten > MAX_UNWRITTEN) return this.#write();
    if (this.#isRead) this.#schedule();
    return undefined;
  }

  /** From now on somebody reads the parts while they come. */
  read(): void {
    this.#isRead = true;
    this.#schedule();
  }

  /** No more parts come; those that did are on disk with the next commit. */
  end(): void {
    this.#release();
    this.#isRead = false;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #addDelta(part: Delta): void {
    const held = this.#held;
    this.#unwritten += part.delta.length;
    if (
      held !== null &&
      held.type === part.type &&
      held.id === part.id &&
      held.subAgentCallId === part.subAgentCallId
    ) {
      held.delta += part.delta;
      return;
    }
    this.#release();
    this.#held = plainDelta(part);
    this.#unwritten += PART_CHARACTERS;
  }

  #release(): void {
    if (this.#held !== null) this.#call.part(this.#held, true);
    this.#held = null;
  }

  #schedule(): void {
    this.#last = performance.now();
    if (this.#timer === null) this.#writeAfter(PAUSE_MS, this.#last + LONGEST_MS);
  }

  /** @param latest when it is time, though parts go on coming */
  #writeAfter(milliseconds: number, latest: number): void {
    this.#timer = setTimeout(() => {
      const left = Math.min(this.#last + PAUSE_MS, latest) - performance.now();
      if (left >= 1) return this.#writeAfter(left, latest);
      this.#timer = null;
      // A failure shows at the end of the run.
      this.#write().catch(() => {});
    }, milliseconds);
  }

  #write(): Promise<void> {
    this.#release();
    this.#unwritten = 0;
    return this.#call.flush();
  }
}

const isDelta = (part: AgentPart): part is Delta =>
  part.type === "text-delta" || part.type === "reasoning-delta" || part.type === "tool-input-delta";

/** The part of a request's context that a run keeps when the request is over. */
type RunOrigin = Pick<RunCall, "user" | "caller" | "requestId" | "logger" | "trace" | "client" | "replyWith">;

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
  readonly accepted = new Deferred();
  readonly result = new Deferred<RunResult>();
  /** Rejects when it waits for a store that is away. */
  readonly stalled = new Deferred<never>();
  /** Resolves when it goes on here no more. */
  readonly left = new Deferred();
  /** The work of one that was not kept when it began: it goes on as that of its step. */
  work: Promise<RunResult> | null = null;
  #step: StepCall | null;
  /** What one that is not kept for certain yet has recorded and said, in order; null for others. */
  #held: (readonly ["keep" | "part", unknown])[] | null = null;
  /** The try to keep it: calls that ask at the same time share it. */
  #keeping: Promise<void> | null = null;
  /** Resolves when its step has what it has done before it was kept. */
  readonly handedOver = new Deferred();
  readonly #madeAt = storedTime();
  readonly #stop: AbortSource | null;
  readonly waitsAt: WaitingPlace | undefined;

  /**
   * @param waitsAt undefined where it does not wait for approvals
   * @param step of a run that goes on here after a crash
   * @param begin of a run that is kept from its first question on: called then, until it resolves. The call is its request's until then
   */
  constructor(
    origin: RunOrigin & Partial<Pick<RunCall, "aborts" | "signal">>,
    waitsAt: WaitingPlace | undefined,
    step: StepCall | null = null,
    begin: (() => Promise<unknown>) | null = null,
  ) {
    this.waitsAt = waitsAt;
    this.#step = step;
    const stop = begin && new AbortSource();
    this.#stop = stop;
    this.call = new KeptCall(origin, () => this.#step, stop);
    if (begin !== null) {
      this.#held = [];
      this.sink = new KeptSink(this, false, () => {});
      this.waitsAt = { ...waitsAt, keep: () => (this.#keeping ??= this.#keep(begin)) };
      (origin.aborts ?? abortsOf(origin.signal))?.add({ aborted: (reason) => this.hasBegun || stop!.abort(reason) });
    }
    const { accepted, result, stalled } = this;
    result.promise.then(() => accepted.resolve(), accepted.reject);
    // Of a run whose client has left nobody waits for these.
    accepted.promise.catch(() => {});
    stalled.promise.catch(() => {});
  }

  begin(step: StepCall): void {
    this.#step = step;
    for (const [kind, value] of this.#held ?? [])
      if (kind === "part") step.part(value, true);
      else step.keep(value, true).catch(() => {});
    this.handedOver.resolve();
    const stop = this.#stop;
    if (stop === null) return;
    const stopped = () => {
      // Until it is kept for certain, another step may begin in the place of one that is lost.
      if (this.#step === step && (this.#held === null || !step.isInterrupted)) stop.abort(step.signal.reason);
    };
    step.signal.addEventListener("abort", stopped, { once: true });
  }

  /** Its step cannot be recorded: until another begins, it is not kept. */
  takeBack(): void {
    this.#step = null;
  }

  async #keep(begin: () => Promise<unknown>): Promise<void> {
    try {
      await begin();
      this.#held = null;
    } catch (error) {
      this.#keeping = null;
      this.takeBack();
      throw error;
    }
  }

  /** What its request reads of one that is not kept yet, also when it is; its client may leave from then on. */
  readBy(reader: PartSink): PartSink {
    const own = this.sink!;
    const isKept = () => this.hasBegun;
    return {
      get closed() {
        return !isKept() && reader.closed;
      },
      accepted: () => reader.accepted?.(),
      part(part) {
        const wait = own.part(part);
        return reader.closed ? wait : (reader.part(part) ?? wait);
      },
    };
  }

  /** As `StepCall.part`, for its sink. */
  part(part: unknown): undefined {
    this.#held?.push(["part", part]);
    this.#step?.part(part, true);
  }

  away(error: ServiceError): void {
    this.stalled.reject(error);
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

  get isKept(): boolean {
    return this.#held === null || this.hasBegun;
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
    return this.#step?.startedAt ?? this.#madeAt;
  }

  get isInterrupted(): boolean {
    return this.#step?.isInterrupted ?? false;
  }

  note(entry: RunEntry): void {
    this.#held?.push(["keep", entry]);
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
    if (this.#held !== null) {
      this.note(entry);
      return this.#keeping?.catch(() => {}) ?? RECORDED;
    }
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
  /** Of a run that is not kept from its begin: aborted with its request until then, and with its step from then on. */
  readonly #stop: AbortSource | null;

  constructor(origin: RunOrigin, step: () => StepCall | null, stop: AbortSource | null) {
    const { user, caller, requestId, trace } = origin;
    this.#origin = origin;
    this.user = user;
    this.caller = caller;
    this.requestId = requestId;
    this.trace = trace;
    if (origin.client !== undefined) this.client = origin.client;
    this.#step = step;
    this.#stop = stop;
  }

  get replyWith(): RunCall["replyWith"] {
    return this.#origin.replyWith;
  }

  set replyWith(reply: RunCall["replyWith"]) {
    this.#origin.replyWith = reply;
  }

  get aborts(): Aborts | undefined {
    return this.#stop ?? undefined;
  }

  confirm(): Promise<void> | undefined {
    return this.#step()?.confirm?.();
  }

  get logger(): Logger {
    return this.#origin.logger;
  }

  get signal(): AbortSignal {
    return this.#stop?.signal ?? this.#step()?.signal ?? NEVER;
  }
}

const NEVER = new AbortController().signal;
const RECORDED = Promise.resolve();
