/** The journal of an execution: what it started with, and the entries that record what happened since. */
import type { Caller } from "../../identity/caller.ts";
import type { User } from "../../identity/user.ts";

/** Milliseconds since 1970. */
type Time = number;

/**
 * Names a step: its id, after the ids of the sub-workflow steps that it runs in, as in `sub/mark`. Step ids are unique within a
 * workflow, so that lists and branches do not appear in the path.
 */
export type StepPath = string;

/** The prefix that all steps of the step's workflow share in their paths: `""` outside of sub-workflows, else `sub/`. */
export const workflowPrefix = (path: StepPath): string => path.slice(0, path.lastIndexOf("/") + 1);

/**
 * The place of a value: the path of the step whose output it is, `""` for the input of the execution, or the path of a
 * sub-workflow step followed by `/` for the input of the sub-workflow.
 */
export type ValueSource = string;

/** What an execution starts with. */
export interface ExecutionStart {
  readonly id: string;
  /** Increases from each execution to the next. It is part of the keys of all its rows. */
  readonly number: number;
  readonly workflowId: string;
  readonly workflowName: string;
  /** Hash of the pinned definition. */
  readonly definition: string;
  readonly at: Time;
  /** Set when a client chose the id and it is unique for this user only (storage/id-spaces.ts). */
  readonly ownId?: true;
  readonly input: unknown;
  readonly context: Record<string, unknown>;
  /** Shared state at the start. */
  readonly state: Record<string, unknown>;
  /** Undefined when the execution belongs to no user. */
  readonly userId?: string;
  readonly conversationId?: string;
  /** Set for the run of a chat, which can be found by agent, user and conversation while it runs. */
  readonly isResumable?: true;
  readonly metadata?: Record<string, unknown>;
  /** The user as the auth provider returned it. Steps see it as `user`, after a restart too. */
  readonly user?: User;
  /** The kind of caller that started it, when such a caller may see everything. */
  readonly caller?: Caller["kind"];
  readonly replay?: Replay;
  /** Its first span, if it is traced: `TRACE-SPAN`, the ids of W3C Trace Context. */
  readonly trace?: string;
}

/** What a replay takes over from its source. */
export interface Replay {
  readonly executionId: string;
  readonly stepId: StepPath;
  /** Steps that are not run again, in order, with their outputs. Of container steps around the chosen step only the choice is kept. */
  readonly kept: readonly ReplayedEntry[];
  /** Replaces the input of the chosen step. */
  readonly input?: { readonly value: unknown };
  /** The resume of the chosen step. `waited`: the step continues as if it had suspended itself before. */
  readonly resume?: { readonly data: unknown; readonly waited: boolean };
  /** What expressions saw as `resume` when the chosen step started. Undefined for null. */
  readonly resumed?: unknown;
}

export type ReplayedEntry =
  | readonly ["done", StepPath, unknown]
  | readonly ["same", StepPath, ValueSource]
  /** The failure of the step whose `onError` contains the chosen step: message, code, and the step inside it that failed. */
  | readonly ["fail", StepPath, string, string | null, StepPath]
  /** The choice of an andWhen, or the input of a sub-workflow, when the chosen step is inside it. */
  | readonly ["begin", StepPath, ValueSource, unknown];

/** The input that andWorkflow gives: a value, or its place in the journal if it is there already. */
export type SubWorkflowInput = { readonly input: unknown } | { readonly same: ValueSource };

/** What a step has decided. `none`: it was skipped. `bail`: its workflow ends with its output. */
export type Branch = "then" | "else" | "none" | "bail";

export type JournalEntry =
  /** A step starts with the value from a source. Last: the choice of andWhen or bail, or the input that andWorkflow gives. */
  | readonly ["begin", StepPath, Time, ValueSource, unknown?]
  /** A step has finished with an output, and perhaps a change of shared state. */
  | readonly ["done", StepPath, Time, unknown, Record<string, unknown>?]
  /** A step has finished with a value that is in the journal already. */
  | readonly ["same", StepPath, Time, ValueSource, Record<string, unknown>?]
  /** A step has finally failed: message, code of the error if any, and the step inside it that failed if it was not the step itself. */
  | readonly ["fail", StepPath, Time, string, (string | null)?, StepPath?]
  /** A try failed, and another one follows: its number (from 1), the message, and failed steps inside the step that run again. */
  | readonly ["retry", StepPath, Time, number, string, (readonly StepPath[])?]
  /** A step waits to be resumed: reason, data, change of shared state. */
  | readonly ["wait", StepPath, Time, string, unknown, Record<string, unknown>?]
  /** A container step with a time limit waits or is suspended: how many milliseconds of the limit its try has used. */
  | readonly ["rest", StepPath, Time, number]
  /** A part of the stream of an agent step. */
  | readonly ["part", StepPath, Time, unknown]
  /** A value that the work of a step has recorded, so that it can continue from there after a crash. */
  | readonly ["keep", StepPath, Time, unknown]
  /** The execution is suspended: the step at which it stopped (`""` for none), reason, data. */
  | readonly ["suspend", StepPath, Time, string, unknown]
  /** The execution is resumed: the step that receives the data, and the data if any. */
  | readonly ["resume", StepPath, Time, unknown?]
  /** Another process requested the preceding resume: the token of its request. */
  | readonly ["answer", StepPath, Time, string]
  /** The execution ends with a result (null when a source is given), the error of a step (`""` for none), or a reason for cancelling. */
  | readonly ["end", "", Time, unknown, ValueSource?]
  | readonly ["error", StepPath, Time, string]
  | readonly ["cancel", "", Time, string]
  /** The process stopped cleanly while the execution ran: it continues later, and is not counted as the cause of a crash. */
  | readonly ["interrupt", "", Time];

export type EntryKind = JournalEntry[0];

export type ExecutionStatus = "running" | "suspended" | "completed" | "error" | "cancelled";

/** The status of the execution after an entry, for entries that change it. */
export const STATUS_AFTER: Readonly<Partial<Record<EntryKind, ExecutionStatus>>> = {
  suspend: "suspended",
  resume: "running",
  end: "completed",
  error: "error",
  cancel: "cancelled",
};

/** How many events of the stream an entry produces (events.ts). Events are numbered through the whole execution. */
export const EVENT_COUNTS: Readonly<Record<EntryKind, number>> = {
  begin: 1,
  done: 1,
  same: 1,
  fail: 1,
  retry: 0,
  wait: 0,
  rest: 0,
  part: 1,
  keep: 0,
  suspend: 2,
  resume: 1,
  end: 2,
  error: 2,
  cancel: 2,
  interrupt: 0,
  answer: 0,
};
