/** From a journal to what is known about its execution. `apply` is the only thing that changes a fold, one entry at a time. */
import { storedTime } from "../../lib/clock.ts";
import {
  type Branch,
  type JournalEntry,
  type EntryKind,
  EVENTS_OF,
  type ExecutionStatus,
  type Replay,
  type ValueSource,
  STATUS_AFTER,
  type ExecutionStart,
  type StepPath,
} from "./entries.ts";

export type StepStatus = "running" | "done" | "skipped" | "failed" | "waiting";

export interface StepState {
  readonly path: StepPath;
  status: StepStatus;
  /** Milliseconds since 1970. */
  begunAt: number;
  /** Null too for one that failed and begins again. */
  endedAt: number | null;
  /** Where its input comes from. */
  source: ValueSource;
  /** Where its output is found, once it is done: itself, or the step that gave the value. */
  output: ValueSource;
  /** Tries that failed, and when the last of them did. */
  tries: number;
  triedAt: number;
  /** The choice of andWhen. */
  branch: Branch | null;
  /** Why it waits, or why it failed. */
  message: string;
  /** What it hands out while it waits. */
  data: unknown;
  /** Set from the resume until it waits again. `waited`: it had asked for it. */
  resume: { readonly data: unknown; readonly waited: boolean } | null;
}

export interface Suspension {
  readonly stepId: StepPath;
  readonly at: number;
  readonly reason: string;
  readonly data: unknown;
}

export interface JournalState {
  readonly start: ExecutionStart;
  status: ExecutionStatus;
  /** Events so far; the first is `workflow-start`. */
  sequence: number;
  /** In the order of their first begin. */
  readonly steps: Map<StepPath, StepState>;
  /** Outputs and inputs by where they come from. What is here never changes. */
  readonly values: Map<ValueSource, unknown>;
  /** Shared state. A new object after each change. */
  state: Readonly<Record<string, unknown>>;
  /** `resume` of expressions: what came with the last resume; null before. */
  resume: unknown;
  suspension: Suspension | null;
  error: { readonly message: string; readonly stepId: StepPath } | null;
  cancellation: { readonly at: number; readonly reason: string } | null;
  output: unknown;
  /** Of the last entry. */
  updatedAt: number;
  endedAt: number | null;
  /** Milliseconds that it ran before `since`, the time when it was last started or resumed. */
  ran: number;
  since: number;
}

/** The fold of an execution that has only begun. */
export function initialState(start: ExecutionStart): JournalState {
  const fold: JournalState = {
    start,
    status: "running",
    sequence: 1,
    steps: new Map(),
    values: new Map<ValueSource, unknown>([["", start.input]]),
    state: start.state,
    resume: null,
    suspension: null,
    error: null,
    cancellation: null,
    output: undefined,
    updatedAt: start.at,
    endedAt: null,
    ran: 0,
    since: start.at,
  };
  if (start.replay !== undefined) takeOver(fold, start.replay);
  return fold;
}

/** The input that a replay gives to its step. */
export const REPLAY_INPUT: ValueSource = "!";

/** The steps that a replay does not run again are done from the start, without events. */
function takeOver(fold: JournalState, { kept, stepId, input, resume, resumed }: Replay): void {
  const { at } = fold.start;
  fold.resume = resumed ?? null;
  if (input !== undefined) fold.values.set(REPLAY_INPUT, input.value);
  for (const [kind, path, value, extra] of kept) {
    if (kind === "begin") {
      const step = stepOf(fold, path, at);
      step.source = value as ValueSource;
      hold(fold, step, extra);
      step.status = "failed";
    } else if (kind === "done") APPLY.done(fold, ["done", path, at, value]);
    else APPLY.same(fold, ["same", path, at, value as ValueSource]);
  }
  if (resume !== undefined) {
    const step = stepOf(fold, stepId, at);
    step.status = "failed";
    step.resume = resume;
    fold.resume = resume.data ?? null;
  }
}

/** When what comes next happens: the process that wrote last may have had a later clock. */
export const timeAfter = ({ updatedAt }: JournalState): number => Math.max(storedTime(), updatedAt);

/** @returns the fold, changed */
export function applyEntry(fold: JournalState, entry: JournalEntry): JournalState {
  const [kind, , at] = entry;
  (APPLY[kind] as (fold: JournalState, entry: JournalEntry) => void)(fold, entry);
  fold.sequence += EVENTS_OF[kind];
  fold.updatedAt = at;
  const status = STATUS_AFTER[kind];
  if (status === undefined) return fold;
  fold.status = status;
  if (status === "running") fold.since = at;
  else fold.ran += at - fold.since;
  if (status !== "running" && status !== "suspended") fold.endedAt = at;
  return fold;
}

export const stateFromJournal = (start: ExecutionStart, entries: Iterable<JournalEntry>): JournalState => {
  const fold = initialState(start);
  for (const entry of entries) applyEntry(fold, entry);
  return fold;
};

type Appliers = { readonly [K in EntryKind]: (fold: JournalState, entry: Extract<JournalEntry, readonly [K, ...unknown[]]>) => void };

const APPLY: Appliers = {
  begin(fold, [, path, at, source, extra]) {
    const step = stepOf(fold, path, at);
    step.status = "running";
    step.begunAt = at;
    step.endedAt = null;
    step.source = source;
    hold(fold, step, extra);
  },
  done(fold, [, path, at, output, change]) {
    fold.values.set(path, output);
    close(stepOf(fold, path, at), "done", at, path);
    if (change !== undefined) fold.state = { ...fold.state, ...change };
  },
  same(fold, [, path, at, source, change]) {
    const step = stepOf(fold, path, at);
    close(step, step.branch === "none" ? "skipped" : "done", at, source);
    if (change !== undefined) fold.state = { ...fold.state, ...change };
  },
  fail(fold, [, path, at, message]) {
    const step = stepOf(fold, path, at);
    close(step, "failed", at, "");
    step.message = message;
    step.tries = 0;
    step.resume = null;
  },
  retry(fold, [, path, at, attempt, , again]) {
    const step = stepOf(fold, path, at);
    step.tries = attempt;
    step.triedAt = at;
    step.endedAt = null;
    for (const inner of again ?? []) stepOf(fold, inner, at).endedAt = null;
  },
  wait(fold, [, path, at, reason, data, change]) {
    const step = stepOf(fold, path, at);
    step.status = "waiting";
    step.message = reason;
    step.data = data;
    step.tries = 0;
    step.resume = null;
    if (change !== undefined) fold.state = { ...fold.state, ...change };
  },
  part() {},
  suspend(fold, [, stepId, at, reason, data]) {
    fold.suspension = { stepId, at, reason, data };
  },
  resume(fold, [, path, at, data]) {
    fold.suspension = null;
    fold.resume = data ?? null;
    // Whoever resumes it wants it to go on now.
    for (const step of fold.steps.values()) step.triedAt = 0;
    if (path === "") return;
    const known = fold.steps.get(path);
    const waited = known?.status === "waiting";
    // One that was stopped from outside has asked for nothing: without data it goes on as if nothing had been.
    if (!waited && data === undefined) return;
    const step = known ?? stepOf(fold, path, at);
    step.resume = { data, waited };
    // It has not begun yet, or begins again.
    if (waited || known === undefined) step.status = "failed";
  },
  end(fold, [, , , output]) {
    fold.output = output;
  },
  error(fold, [, stepId, , message]) {
    fold.error = { message, stepId };
  },
  cancel(fold, [, , at, reason]) {
    fold.suspension = null;
    fold.cancellation = { at, reason };
  },
};

/** What a choice or a sub-workflow's input leaves behind. */
function hold(fold: JournalState, step: StepState, extra: unknown): void {
  if (extra === undefined) return;
  if (extra === "then" || extra === "else" || extra === "none") step.branch = extra;
  else fold.values.set(`${step.path}/`, (extra as { input: unknown }).input);
}

function close(step: StepState, status: StepStatus, at: number, output: ValueSource): void {
  step.status = status;
  step.endedAt = at;
  step.output = output;
}

function stepOf(fold: JournalState, path: StepPath, at: number): StepState {
  let step = fold.steps.get(path);
  if (step === undefined) {
    step = {
      path,
      status: "running",
      begunAt: at,
      endedAt: null,
      source: "",
      output: "",
      tries: 0,
      triedAt: 0,
      branch: null,
      message: "",
      data: null,
      resume: null,
    };
    fold.steps.set(path, step);
  }
  return step;
}
