/** The journal of an execution: what it began with, and the entries that say what happened since. */
import type { Caller } from "../../identity/caller.ts";
import type { User } from "../../identity/user.ts";

/** Milliseconds since 1970. */
type Time = number;

/**
 * Names a step: its id, after the ids of the sub-workflow steps that it runs in, as in `sub/mark`. Step ids are unique within a
 * workflow, so that lists and branches do not appear in the path.
 */
export type StepPath = string;

/** What the paths of all steps of the workflow begin with that a step belongs to: `""` outside of sub-workflows, `sub/`. */
export const workflowPrefix = (path: StepPath): string => path.slice(0, path.lastIndexOf("/") + 1);

/**
 * Where a value comes from: the path of the step whose output it is, `""` for the input of the execution, or the path of a
 * sub-workflow step followed by `/` for the input of the sub-workflow.
 */
export type ValueSource = string;

/** What an execution begins with. */
export interface ExecutionStart {
  readonly id: string;
  /** Every execution has a higher number than the ones before. It is in the keys of all its rows. */
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
  /** Shared state at the beginning. */
  readonly state: Record<string, unknown>;
  /** Absent when the execution belongs to no user. */
  readonly userId?: string;
  readonly conversationId?: string;
  /** Of a run: it is found by its agent, user and conversation while it runs. */
  readonly isResumable?: true;
  readonly metadata?: Record<string, unknown>;
  /** The user as the auth provider returned it. Steps see it as `user`, after a restart too. */
  readonly user?: User;
  /** The kind of caller that began it, when that may see everything. */
  readonly caller?: Caller["kind"];
  readonly replay?: Replay;
  /** Its first span when it is traced: `TRACE-SPAN`, the ids of W3C Trace Context. */
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
  /** What the chosen step is resumed with. `waited`: the step goes on as if it had suspended itself before. */
  readonly resume?: { readonly data: unknown; readonly waited: boolean };
  /** What expressions saw as `resume` when the chosen step began. Absent for null. */
  readonly resumed?: unknown;
}

export type ReplayedEntry =
  | readonly ["done", StepPath, unknown]
  | readonly ["same", StepPath, ValueSource]
  /** The step whose `onError` has the chosen step in it failed: message, code, and the step that failed in it. */
  | readonly ["fail", StepPath, string, string | null, StepPath]
  /** The choice of an andWhen, or the input of a sub-workflow, when the chosen step is inside it. */
  | readonly ["begin", StepPath, ValueSource, unknown];

/** The input that andWorkflow gives: a value, or where the journal has it already. */
export type SubWorkflowInput = { readonly input: unknown } | { readonly same: ValueSource };

/** What a step has chosen. `none`: it was skipped. `bail`: its workflow ends with its output. */
export type Branch = "then" | "else" | "none" | "bail";

export type JournalEntry =
  /** A step begins with the value from a source. Last: the choice of andWhen or bail, or the input that andWorkflow gives. */
  | readonly ["begin", StepPath, Time, ValueSource, unknown?]
  /** It has ended with an output, and perhaps a change of shared state. */
  | readonly ["done", StepPath, Time, unknown, Record<string, unknown>?]
  /** The same when its output is a value that is in the journal already. */
  | readonly ["same", StepPath, Time, ValueSource, Record<string, unknown>?]
  /** It failed for good: message, the code of the error if it has one, and the step inside it that failed, if it was not itself. */
  | readonly ["fail", StepPath, Time, string, (string | null)?, StepPath?]
  /** A try failed, and another follows: its number (from 1), the message, and failed steps inside it that run again. */
  | readonly ["retry", StepPath, Time, number, string, (readonly StepPath[])?]
  /** It waits to be resumed: reason, data, change of shared state. */
  | readonly ["wait", StepPath, Time, string, unknown, Record<string, unknown>?]
  /** A container step with a time limit came to wait, or was suspended: how many milliseconds of the limit its try has used. */
  | readonly ["rest", StepPath, Time, number]
  /** A part of the stream of an agent step. */
  | readonly ["part", StepPath, Time, unknown]
  /** What the work of a step has recorded on the way, so that it can go on behind it after a crash. */
  | readonly ["keep", StepPath, Time, unknown]
  /** The execution is suspended: the step it stands at (`""` for none), reason, data. */
  | readonly ["suspend", StepPath, Time, string, unknown]
  /** The execution is resumed: the step that is given the data, and the data if there is any. */
  | readonly ["resume", StepPath, Time, unknown?]
  /** The resume before it was asked for by another process: the token of its request. */
  | readonly ["answer", StepPath, Time, string]
  /** The execution ends: with a result (null when a source is given that has it), with the error of a step (`""` for none), or cancelled with a reason. */
  | readonly ["end", "", Time, unknown, ValueSource?]
  | readonly ["error", StepPath, Time, string]
  | readonly ["cancel", "", Time, string]
  /** The process stopped cleanly while it ran: the execution goes on later, and did not stop the process itself. */
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

/** How many events of the stream an entry stands for (events.ts). Events are numbered through the whole execution. */
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
