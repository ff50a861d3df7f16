/** The state of an execution, which is computed from its journal. Only `applyEntry` changes a state, one entry at a time. */
import { storedTime } from "../../lib/clock.ts";
import type { Outline } from "../definition/definition.ts";
import {
  type Branch,
  type EntryKind,
  EVENT_COUNTS,
  type ExecutionStart,
  type ExecutionStatus,
  type JournalEntry,
  type Replay,
  STATUS_AFTER,
  type StepPath,
  type SubWorkflowInput,
  type ValueSource,
  workflowPrefix,
} from "./entries.ts";

/** The values that the work of a step has recorded while it ran. */
interface Keeps {
  kept: unknown[];
  hasStreamed: boolean;
}

const NOTHING_KEPT = Object.freeze([]) as unknown as unknown[];

function keepValue(step: Keeps, value: unknown): void {
  if (step.kept === NOTHING_KEPT) step.kept = [];
  step.kept.push(value);
}

/** Forgets the values when the step starts anew. */
function forgetKept(step: Keeps): void {
  step.kept = NOTHING_KEPT;
  step.hasStreamed = false;
}

export type { StepState };

interface Suspension {
  readonly stepId: StepPath;
  readonly at: number;
  readonly reason: string;
  readonly data: unknown;
}

export interface JournalState {
  readonly start: ExecutionStart;
  status: ExecutionStatus;
  /** Number of events so far; the first is `workflow-start`. */
  sequence: number;
  /** Steps that have started, in that order. */
  readonly steps: Map<StepPath, StepState>;
  /** Outputs and inputs by their source. The values themselves never change. */
  readonly values: Map<ValueSource, unknown>;
  /** Where the result of each workflow that has bailed is, by the prefix of the paths of its steps. */
  readonly bailed: Map<string, ValueSource>;
  /** Shared state, a new object after each change. */
  state: Readonly<Record<string, unknown>>;
  /** What expressions see as `resume`: the data of the last resume; null before the first. */
  resume: unknown;
  suspension: Suspension | null;
  error: { readonly message: string; readonly stepId: StepPath } | null;
  cancellation: { readonly at: number; readonly reason: string } | null;
  output: unknown;
  /** The time of the last entry. */
  updatedAt: number;
  endedAt: number | null;
  /** Milliseconds that the execution had run before `since`, the time of the start or of the last resume. */
  ran: number;
  since: number;
}

/** The state of an execution that has just started. */
export function initialState(start: ExecutionStart): JournalState {
  const current: JournalState = {
    start,
    status: "running",
    sequence: 1,
    steps: new Map(),
    values: new Map<ValueSource, unknown>([["", start.input]]),
    bailed: new Map(),
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
  if (start.replay !== undefined) applyReplay(current, start.replay);
  return current;
}

/** The source of the input that a replay gives to its step. */
export const REPLAY_INPUT: ValueSource = "!";

/** Applies what a replay takes over: steps that it does not run again are done from the start, without events. */
function applyReplay(state: JournalState, { kept, stepId, input, resume, resumed }: Replay): void {
  const { at } = state.start;
  state.resume = resumed ?? null;
  if (input !== undefined) state.values.set(REPLAY_INPUT, input.value);
  for (const [kind, path, value, extra, failedAt] of kept) {
    if (kind === "begin") {
      const step = getOrAddStep(state, path, at);
      step.source = value as ValueSource;
      keepExtra(state, step, extra);
      step.status = "failed";
    } else if (kind === "fail")
      APPLY.fail(state, ["fail", path, at, value as string, extra as string | null, failedAt]);
    else if (kind === "done") APPLY.done(state, ["done", path, at, value]);
    else APPLY.same(state, ["same", path, at, value as ValueSource]);
  }
  if (resume !== undefined) {
    const step = getOrAddStep(state, stepId, at);
    step.status = "failed";
    step.resume = resume;
    state.resume = resume.data ?? null;
  }
}

/** The time for the next entry: never before the last one, which a process with another clock may have written. */
export const timeAfter = ({ updatedAt }: JournalState): number => Math.max(storedTime(), updatedAt);

/** Changes the state. @returns the same state */
export function applyEntry(state: JournalState, entry: JournalEntry): JournalState {
  const [kind, , at] = entry;
  (APPLY[kind] as (current: JournalState, entry: JournalEntry) => void)(state, entry);
  state.sequence += EVENT_COUNTS[kind];
  state.updatedAt = at;
  const status = STATUS_AFTER[kind];
  // A step may be resumed while others run.
  if (status === undefined || status === state.status) return state;
  state.status = status;
  if (status === "running") state.since = at;
  else state.ran += at - state.since;
  if (status !== "running" && status !== "suspended") state.endedAt = at;
  return state;
}

/** A copy that entries can be applied to. */
export const copyOfState = (state: JournalState): JournalState => ({
  ...state,
  steps: new Map([...state.steps].map(([path, step]) => [path, { ...step, kept: [...step.kept] }])),
  values: new Map(state.values),
  bailed: new Map(state.bailed),
});

export const stateFromJournal = (start: ExecutionStart, entries: Iterable<JournalEntry>): JournalState => {
  const state = initialState(start);
  for (const entry of entries) applyEntry(state, entry);
  return state;
};

type Appliers = {
  readonly [K in EntryKind]: (current: JournalState, entry: Extract<JournalEntry, readonly [K, ...unknown[]]>) => void;
};

const APPLY: Appliers = {
  begin(state, [, path, at, source, extra]) {
    const step = getOrAddStep(state, path, at);
    step.status = "running";
    step.begunAt = at;
    step.endedAt = null;
    step.source = source;
    // A resumed step continues, any other starts anew.
    if (step.resume === null) {
      step.begunWith = state.sequence + 1;
      step.failures = 0;
      forgetKept(step);
    }
    step.used = 0;
    step.failedAt = "";
    keepExtra(state, step, extra);
  },
  done(state, [, path, at, output, change]) {
    state.values.set(path, output);
    endWithOutput(state, getOrAddStep(state, path, at), at, path);
    if (change !== undefined) state.state = { ...state.state, ...change };
  },
  same(state, [, path, at, source, change]) {
    endWithOutput(state, getOrAddStep(state, path, at), at, source);
    if (change !== undefined) state.state = { ...state.state, ...change };
  },
  fail(state, [, path, at, message, code = null, failedAt = path]) {
    const step = getOrAddStep(state, path, at);
    endStep(step, "failed", at, "");
    step.message = message;
    step.code = code;
    step.failedAt = failedAt;
    step.tries = 0;
    step.resume = null;
  },
  retry(state, [, path, at, attempt, , again]) {
    const step = getOrAddStep(state, path, at);
    step.tries = attempt;
    step.failures++;
    step.triedAt = at;
    step.used = 0;
    step.endedAt = null;
    forgetKept(step);
    for (const inner of again ?? []) getOrAddStep(state, inner, at).endedAt = null;
  },
  wait(state, [, path, at, reason, data, change]) {
    const step = getOrAddStep(state, path, at);
    step.status = "waiting";
    step.message = reason;
    step.data = data;
    step.waitsSince = at;
    step.tries = 0;
    step.resume = null;
    if (change !== undefined) state.state = { ...state.state, ...change };
  },
  part(state, [, path, at]) {
    getOrAddStep(state, path, at).hasStreamed = true;
  },
  keep(state, [, path, at, value]) {
    const step = getOrAddStep(state, path, at);
    keepValue(step, value);
  },
  rest(state, [, path, at, used]) {
    getOrAddStep(state, path, at).used = used;
  },
  suspend(state, [, stepId, at, reason, data]) {
    state.suspension = { stepId, at, reason, data };
  },
  resume(state, [, path, at, data]) {
    state.suspension = null;
    state.resume = data ?? null;
    // After a resume of a settled execution, the pause before the next try is skipped.
    if (state.status === "suspended") for (const step of state.steps.values()) step.triedAt = 0;
    if (path === "") return;
    const known = state.steps.get(path);
    const waited = known?.status === "waiting";
    // A step that was stopped from outside has not asked for data. Without data it continues as if it had not been stopped.
    if (!waited && data === undefined) return;
    const step = known ?? getOrAddStep(state, path, at);
    step.resume = { data, waited };
    // The step has not started yet, or has to run again.
    if (waited || known === undefined) step.status = "failed";
  },
  end(state, [, , , output, source]) {
    state.output = source === undefined ? output : state.values.get(source);
  },
  error(state, [, stepId, , message]) {
    // An execution may be ended by hand while it is suspended.
    state.suspension = null;
    state.error = { message, stepId };
  },
  cancel(state, [, , at, reason]) {
    state.suspension = null;
    state.cancellation = { at, reason };
  },
  interrupt() {},
  answer() {},
};

/** Keeps the choice of an andWhen or a bail, or the input of a sub-workflow. */
function keepExtra(state: JournalState, step: StepState, extra: unknown): void {
  if (extra === undefined) return;
  if (typeof extra === "string") step.branch = extra as Branch;
  else {
    const given = extra as SubWorkflowInput;
    state.values.set(`${step.path}/`, "same" in given ? state.values.get(given.same) : given.input);
  }
}

function endWithOutput(state: JournalState, step: StepState, at: number, output: ValueSource): void {
  endStep(step, step.branch === "none" ? "skipped" : "done", at, output);
  if (step.branch === "bail") state.bailed.set(workflowPrefix(step.path), output);
}

type StepStatus = "running" | "done" | "skipped" | "failed" | "waiting";

/** The state of one step of an execution. */
interface StepState {
  readonly path: StepPath;
  status: StepStatus;
  /** Milliseconds since 1970. */
  begunAt: number;
  /** Null until the step has ended, and again when it failed and is about to run again. */
  endedAt: number | null;
  /** The source of its input. */
  source: ValueSource;
  /** The source of its output once it is done: its own path, or the source of a value that it passed on. */
  output: ValueSource;
  /** How many tries have failed, and when the last of them did. */
  tries: number;
  triedAt: number;
  /** How many tries have failed since the step started anew; a wait does not reset the count. */
  failures: number;
  /** Milliseconds of its time limit that the present try had used when the step last waited or was suspended. */
  used: number;
  /** What andWhen or bail has decided. */
  branch: Branch | null;
  /** Why the step waits, or why it failed. */
  message: string;
  /** Code of the error with which it failed. */
  code: string | null;
  /** The step that failed: itself, or one inside it. Empty until it has failed; kept when its `onError` provides the output. */
  failedAt: StepPath;
  /** The data of its suspension, and the time since which it waits. */
  data: unknown;
  /** The number of the event with which it started, which is unique to this start. */
  begunWith: number;
  /** The values that its work has recorded since it started anew: after a crash it continues from there. */
  kept: unknown[];
  /** Whether it has sent parts to the stream since it started anew. */
  hasStreamed: boolean;
  waitsSince: number;
  /** Set from a resume until the step waits again or fails. `waited`: the step had suspended itself. */
  resume: { readonly data: unknown; readonly waited: boolean } | null;
}

function endStep(step: StepState, status: StepStatus, at: number, output: ValueSource): void {
  step.status = status;
  step.endedAt = at;
  step.output = output;
  forgetKept(step);
}

/** @param state of the execution */
function getOrAddStep(state: { readonly steps: Map<StepPath, StepState> }, path: StepPath, at: number): StepState {
  let step = state.steps.get(path);
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
      failures: 0,
      used: 0,
      branch: null,
      message: "",
      code: null,
      failedAt: "",
      data: null,
      begunWith: 0,
      kept: NOTHING_KEPT,
      hasStreamed: false,
      waitsSince: 0,
      resume: null,
    };
    state.steps.set(path, step);
  }
  return step;
}

// Steps whose outcome no longer matters, because a container step around them has ended.

/** Whether a container step around a step has ended, so that the step will not continue even when the execution is resumed. */
export function isSuperseded(path: StepPath, { steps }: Pick<JournalState, "steps">, outline: Outline): boolean {
  return (outline.get(path)?.parents ?? []).some((parent) => hasEnded(steps.get(parent)));
}

/** A failed step that runs again, after a retry or a resume, has no `endedAt`. */
const hasEnded = (step: StepState | undefined): boolean =>
  step !== undefined &&
  (step.status === "done" || step.status === "skipped" || (step.status === "failed" && step.endedAt !== null));

/** The steps that wait to be resumed, in the order of the definition, without those of branches that lost. */
export const waitingSteps = (state: Pick<JournalState, "steps">, outline: Outline): StepState[] =>
  [...state.steps.values()]
    .filter(({ status, path }) => status === "waiting" && !isSuperseded(path, state, outline))
    .sort((a, b) => (outline.get(a.path)?.order ?? 0) - (outline.get(b.path)?.order ?? 0));
