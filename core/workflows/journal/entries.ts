import type { Caller } from "../../identity/caller.ts";
import type { User } from "../../identity/user.ts";

/** Milliseconds since 1970. */
type Time = number;

/**
 * Where a step stands: its id, behind those of the sub-workflow steps that it runs in: `sub/mark`. Ids are unique in one
 * workflow, so that lists and branches need no place in it.
 */
export type StepPath = string;

/**
 * Where a value comes from: the path of the step whose output it is, `""` for the input of the execution, and a path that ends
 * in `/` for the input that a sub-workflow step gave.
 */
export type ValueSource = string;

/** What an execution begins with. */
export interface ExecutionStart {
  readonly id: string;
  /** Rises with every execution; the prefix of all its rows. */
  readonly number: number;
  readonly workflowId: string;
  readonly workflowName: string;
  /** Of the pinned definition. */
  readonly definition: string;
  readonly at: Time;
  /** Set where a client chose the id and it is the user's own, which others may have too (storage/id-spaces.ts). */
  readonly ownId?: true;
  readonly input: unknown;
  readonly context: Record<string, unknown>;
  /** Shared state at the beginning. */
  readonly state: Record<string, unknown>;
  /** Absent for nobody's. */
  readonly userId?: string;
  readonly conversationId?: string;
  readonly metadata?: Record<string, unknown>;
  /** As the auth provider gave it: what steps see as `user`, after a restart too. */
  readonly user?: User;
  /** As what it was begun, where that sees everything. */
  readonly caller?: Caller["kind"];
  readonly replay?: Replay;
  /** The span that it began with, where it is traced: `TRACE-SPAN`, as W3C Trace Context names both. */
  readonly trace?: string;
}

/** What a replay takes over from its source. */
export interface Replay {
  readonly executionId: string;
  readonly stepId: StepPath;
  /** Steps that are not run again, in order, with what they gave; those that hold the chosen step with their choice alone. */
  readonly kept: readonly ReplayedEntry[];
  /** Instead of the input that the chosen step would have. */
  readonly input?: { readonly value: unknown };
  /** `waited`: the step had asked for it, or is told that it had. */
  readonly resume?: { readonly data: unknown; readonly waited: boolean };
  /** `resume` of expressions, as it was when the chosen step began. Absent for null. */
  readonly resumed?: unknown;
}

export type ReplayedEntry =
  | readonly ["done", StepPath, unknown]
  | readonly ["same", StepPath, ValueSource]
  /** A choice of andWhen, or the input of a sub-workflow, in a step that runs again because of what it holds. */
  | readonly ["begin", StepPath, ValueSource, unknown];

export type Branch = "then" | "else" | "none";

export type JournalEntry =
  /** A step begins with the value from `source`. `extra`: the branch that andWhen takes, the input that andWorkflow gives. */
  | readonly ["begin", StepPath, Time, ValueSource, unknown?]
  /** It gave a value, and changed shared state. */
  | readonly ["done", StepPath, Time, unknown, Record<string, unknown>?]
  /** It gave a value that is on record already, and changed shared state. */
  | readonly ["same", StepPath, Time, ValueSource, Record<string, unknown>?]
  /** It failed for good; the third is what it said. */
  | readonly ["fail", StepPath, Time, string]
  /** A try failed, and another follows: the try (from 1), what it said, the steps that it holds which failed and begin again. */
  | readonly ["retry", StepPath, Time, number, string, (readonly StepPath[])?]
  /** It wants to wait to be resumed: reason, data. */
  | readonly ["wait", StepPath, Time, string, unknown, Record<string, unknown>?]
  /** A part of the run of an agent step that streams. */
  | readonly ["part", StepPath, Time, unknown]
  /** The execution rests until it is resumed: the step it stands at, reason, data. The path is "" where there is no step to name. */
  | readonly ["suspend", StepPath, Time, string, unknown]
  /** It goes on: the step that is given the data. The data is left out when there is none. */
  | readonly ["resume", StepPath, Time, unknown?]
  /** It ends: with a result, with an error of a step (`""` of none), cancelled with a reason. */
  | readonly ["end", "", Time, unknown]
  | readonly ["error", StepPath, Time, string]
  | readonly ["cancel", "", Time, string];

export type EntryKind = JournalEntry[0];

export type ExecutionStatus = "running" | "suspended" | "completed" | "error" | "cancelled";

/** The status that an entry leads to, for those that change it. */
export const STATUS_AFTER: Readonly<Partial<Record<EntryKind, ExecutionStatus>>> = {
  suspend: "suspended",
  resume: "running",
  end: "completed",
  error: "error",
  cancel: "cancelled",
};

/** How many events of the stream an entry is (events.ts): they are numbered over the whole execution. */
export const EVENT_COUNTS: Readonly<Record<EntryKind, number>> = {
  begin: 1,
  done: 1,
  same: 1,
  fail: 1,
  retry: 0,
  wait: 0,
  part: 1,
  suspend: 2,
  resume: 1,
  end: 2,
  error: 2,
  cancel: 2,
};
