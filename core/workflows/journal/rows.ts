/**
 * The values of the rows of executions (storage/keys.ts has their keys).
 *
 * A running execution has an open row, with the process that runs it, its start and the first entries, and journal rows with the
 * entries that follow. When it settles (it ends or is suspended), a record row replaces the open row: the record that lists return, the
 * start, and the first and last entries. The journal rows stay. A resume writes an open row again and keeps the record row.
 */
import { EXCERPT_CHARACTERS } from "../../storage/store.ts";
import { type CompactText, expandedLength } from "./compact-text.ts";
import type { ExecutionStart, JournalEntry } from "./entries.ts";

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
