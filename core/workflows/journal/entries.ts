/** The journal of an execution: what it started with, and the entries that record what happened since. */

import { randomBytes } from "node:crypto";
import type { Caller, User } from "../../identity/principal.ts";
import { decodeNumber, encodeNumber, executionNameKey } from "../../storage/keys.ts";
import { EXCERPT_CHARACTERS } from "../../storage/store.ts";
import { type CompactText, expandedLength } from "./compact-text.ts";

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
  /** Set when a client chose the id and it is unique for this user only (storage/store.ts). */
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

/** How many events of the stream an entry produces (record.ts). Events are numbered through the whole execution. */
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

/*
 * Ids of executions. An id that the engine makes contains the number of the execution, so that no row is needed to find it. An id that
 * a client chose has a row.
 */

const OWN_ID = /^[0-9a-z]{9}-[0-9a-f]{16}$/;
/** Random hex digits in an id, so that it cannot be guessed. */
const RANDOM_DIGITS = 16;
/** How many random bytes are made at once: a call for each id would cost more. */
const POOL_BYTES = 4096;

/** Makes the id of the execution with a number. */
export function createExecutionIds(): (execution: number) => string {
  let pool = "";
  let at = 0;
  return (execution) => {
    if (at === pool.length) {
      pool = randomBytes(POOL_BYTES).toString("hex");
      at = 0;
    }
    at += RANDOM_DIGITS;
    return `${encodeNumber(execution)}-${pool.slice(at - RANDOM_DIGITS, at)}`;
  };
}

/** The number in an id that has the engine's format; null for others. A client may have chosen an id of this format. */
export const parseOwnId = (id: string): number | null => (OWN_ID.test(id) ? decodeNumber(id.slice(0, 9)) : null);

type NamedExecution = Pick<ExecutionStart, "id" | "ownId" | "userId">;

/** Id of the user that an execution belongs to; empty when it belongs to none. */
export const executionOwner = ({ userId = "" }: Pick<ExecutionStart, "userId">): string => userId;

/** The key of the row for an id that a client chose. */
export const chosenIdKey = (start: NamedExecution): string =>
  executionNameKey(start.id, start.ownId === true ? executionOwner(start) : undefined);

/** The key of a running execution in this process. With an owner, the id is unique for that user only. */
export const liveKeyFor = (id: string, owner: string | undefined): string =>
  owner === undefined ? id : `${owner.length}/${owner}/${id}`;
export const liveKey = (start: NamedExecution): string =>
  liveKeyFor(start.id, start.ownId === true ? executionOwner(start) : undefined);

/** The prefix of the idempotency keys of its steps. Executions of two users with the same id must have different keys. */
export const idempotencyPrefix = ({ id, number, ownId }: Pick<ExecutionStart, "id" | "number" | "ownId">): string =>
  ownId === true ? `${id}@${number}` : id;

/*
 * The values of the rows of executions (storage/keys.ts has their keys).
 *
 * A running execution has an open row, with the process that runs it, its start and the first entries, and journal rows with the
 * entries that follow. When it settles (it ends or is suspended), a record row replaces the open row: the record that lists return, the
 * start, and the first and last entries. The journal rows stay. A resume writes an open row again and keeps the record row.
 */

/** The second part of a record row, after the record that lists return. */
export interface RecordRow {
  readonly start: ExecutionStart;
  /** Entries that were committed with the start. */
  readonly first: readonly JournalEntry[];
  /** How many journal rows there are; their entries are between `first` and `tail`. */
  readonly rows: number;
  /** Entries that were committed with the record: the last ones. */
  readonly tail: readonly JournalEntry[];
}

/** `start` and `first` are null after a resume: the record row has them. */
export interface OpenRow {
  /** The process that runs the execution. */
  readonly process: string;
  readonly start: ExecutionStart | null;
  readonly first: readonly JournalEntry[] | null;
  readonly recovered: Recovered;
}

/** How often the execution was recovered since it last made progress, and how far it had come by then. */
export interface Recovered {
  readonly times: number;
  readonly progress: number;
}

/** Joins entries that are JSON texts already, so that nothing is serialized twice. */
export const entriesText = (entries: readonly string[]): string => `[${entries.join()}]`;

export const openRowText = (process: string, start: string, entries: readonly string[]): string =>
  `[${JSON.stringify(process)},${start},${entriesText(entries)}]`;

export const reopenedRowText = (process: string): string => `[${JSON.stringify(process)},null,null]`;

/** The open row after a recovery: with another process and the new count of recoveries. */
export function takenOverRowText(value: string, process: string, { times, progress }: Recovered): string {
  const [, start, first] = JSON.parse(value) as unknown[];
  return JSON.stringify([process, start, first, times, progress]);
}

export function parseOpenRow(value: string): OpenRow {
  type Stored = [string, ExecutionStart | null, JournalEntry[] | null, number?, number?];
  const [process, start, first, times = 0, progress = 0] = JSON.parse(value) as Stored;
  return { process, start, first, recovered: { times, progress } };
}

export const parseEntries = (value: string): JournalEntry[] => JSON.parse(value) as JournalEntry[];

const LENGTH_DIGITS = 10;
const SHOWN_DIGITS = 15;
/** The end of a row whose record repeats values: length of the whole record, list of repeats, length of the record in the row. */
const REPEATS_END = new RegExp(`,([ \\d]{${SHOWN_DIGITS}}),([ \\d]{${LENGTH_DIGITS}}),([ \\d]{${LENGTH_DIGITS}})\\]$`);

const padded = (length: number, digits = LENGTH_DIGITS): string => String(length).padStart(digits);

/**
 * The length of the record is at the end, so that a list can cut the record out without parsing the row. Before it are the values that
 * the record repeats, if there are any.
 */
export function recordRowText(record: CompactText, start: string, first: string, rows: number, tail: string): string {
  const { text } = record;
  const row = `[${text},{"start":${start},"first":${first},"rows":${rows},"tail":${tail}}`;
  if (record.repeats.length === 0) return `${row},${padded(text.length)}]`;
  const repeats = `[${record.repeats.join()}]`;
  const shown = padded(expandedLength(record), SHOWN_DIGITS);
  return `${row},${repeats},${shown},${padded(repeats.length)},${padded(text.length)}]`;
}

/** Length of the record in the row, in characters. */
const recordLength = (value: string): number => Number(value.slice(-1 - LENGTH_DIGITS, -1));

/** Length of the record as lists show it, in characters. Works for an excerpt too, which includes the end of the row. */
export const shownLength = (value: string): number =>
  Number(REPEATS_END.exec(value.slice(-EXCERPT_CHARACTERS))?.[1] ?? recordLength(value));

/** The record as the row has it, with `0` in place of each value that it repeats. */
export const compactRecordOfRow = (value: string): string => value.slice(1, 1 + recordLength(value));

export function recordOfRow(value: string): CompactText {
  const text = compactRecordOfRow(value);
  const end = REPEATS_END.exec(value.slice(-EXCERPT_CHARACTERS));
  if (end === null) return { text, repeats: [] };
  const behind = value.length - end[0].length;
  return { text, repeats: JSON.parse(value.slice(behind - Number(end[2]), behind)) as number[] };
}

/** The input as JSON, cut out of the record; undefined for a short one, which the record does not refer to. */
export function inputOfRow(value: string): string | undefined {
  const { text, repeats } = recordOfRow(value);
  const [position = 0, from = 0, length = 0] = repeats;
  const isInput = [from, position].every((at) => at > 0 && text.endsWith('"input":', at));
  return isInput ? text.slice(from, from + length) : undefined;
}

/** The record, which may be the larger part, is not parsed. */
export function parseRecordRow(value: string): RecordRow {
  const end = REPEATS_END.exec(value.slice(-EXCERPT_CHARACTERS));
  const behind = end === null ? LENGTH_DIGITS + 2 : end[0].length + Number(end[2]) + 1;
  return JSON.parse(value.slice(2 + recordLength(value), -behind)) as RecordRow;
}

/** The part of the start from which the keys of its index rows and of its id are made. */
export type RecordHead = Pick<ExecutionStart, "id" | "number" | "workflowId" | "at" | "ownId" | "userId">;

/** Matches the start of the second part, to avoid parsing a row that may be large. */
const HEAD =
  /^\{"start":\{"id":"([^"\\]*)","number":(\d+),"workflowId":"([^"\\]*)","workflowName":"(?:[^"\\]|\\.)*","definition":"[^"\\]*","at":(\d+),("ownId":true,)?/;
/** Long enough unless the id or the names of the workflow are very long. */
const HEAD_LENGTH = 1000;

/** Reads only the start of the second part when the row has no `userId`, which comes later; otherwise parses the row. */
export function recordHead(value: string): RecordHead {
  const at = 2 + recordLength(value);
  const match = value.includes('"userId":', at) ? null : HEAD.exec(value.slice(at, at + HEAD_LENGTH));
  if (match === null) return parseRecordRow(value).start;
  const head: RecordHead = { id: match[1]!, number: Number(match[2]), workflowId: match[3]!, at: Number(match[4]) };
  return match[5] === undefined ? head : { ...head, ownId: true };
}
