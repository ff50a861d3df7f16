/**
 * What rows of executions hold (storage/keys.ts has their keys). While an execution runs, its start and what was committed
 * with it stand in its open row, further entries in rows of the journal. When it comes to rest the open row goes, and one row
 * takes its place: the record as lists give it, and beside it all that makes the journal whole.
 */
import type { ExecutionStart, JournalEntry } from "./entries.ts";

/** Beside the record of an execution that rests. */
export interface RecordRow {
  readonly start: ExecutionStart;
  /** Entries that were committed with the start. */
  readonly first: readonly JournalEntry[];
  /** Rows of the journal. Their entries come next. */
  readonly rows: number;
  /** Entries that were committed with the record: the last ones. */
  readonly tail: readonly JournalEntry[];
}

/** An execution that runs. `start` and `first` are null when it was resumed: its record row has them, and its tail is in the journal by now. */
export interface OpenRow {
  /** The process that runs it. */
  readonly process: string;
  readonly start: ExecutionStart | null;
  readonly first: readonly JournalEntry[] | null;
}

/** Entries are given as JSON text, so that nothing is turned into text twice. */
export const entriesText = (entries: readonly string[]): string => `[${entries.join()}]`;

export const openRowText = (process: string, start: string, entries: readonly string[]): string =>
  `[${JSON.stringify(process)},${start},${entriesText(entries)}]`;

export const reopenedRowText = (process: string): string => `[${JSON.stringify(process)},null,null]`;

export function parseOpenRow(value: string): OpenRow {
  const [process, start, first] = JSON.parse(value) as [string, ExecutionStart | null, JournalEntry[] | null];
  return { process, start, first };
}

export const parseEntries = (value: string): JournalEntry[] => JSON.parse(value) as JournalEntry[];

const LENGTH_DIGITS = 10;

/** The length of the record's text stands at the end, so that a list can cut it out without parsing. */
export function recordRowText(record: string, start: string, first: string, rows: number, tail: string): string {
  return `[${record},{"start":${start},"first":${first},"rows":${rows},"tail":${tail}},${String(record.length).padStart(LENGTH_DIGITS)}]`;
}

export const recordOfRow = (value: string): string => value.slice(1, 1 + Number(value.slice(-1 - LENGTH_DIGITS, -1)));

export function parseRecordRow(value: string): RecordRow {
  const [, rest] = JSON.parse(value) as [unknown, RecordRow, number];
  return rest;
}

/** What leads to an execution that rests: its index rows, and that of its id, are made of this. */
type RecordHead = Pick<ExecutionStart, "id" | "number" | "workflowId" | "at" | "ownId" | "userId">;

const HEAD =
  /^\{"start":\{"id":"([^"\\]*)","number":(\d+),"workflowId":"([^"\\]*)","workflowName":"(?:[^"\\]|\\.)*","definition":"[^"\\]*","at":(\d+),("ownId":true,)?/;
/** A head is no longer, unless its names are. */
const HEAD_LENGTH = 1000;

/** Without a look at the rest, where nothing in it can be the owner. */
export function recordHead(value: string): RecordHead {
  const at = 2 + Number(value.slice(-1 - LENGTH_DIGITS, -1));
  const match = value.includes('"userId":', at) ? null : HEAD.exec(value.slice(at, at + HEAD_LENGTH));
  if (match === null) return parseRecordRow(value).start;
  const head: RecordHead = { id: match[1]!, number: Number(match[2]), workflowId: match[3]!, at: Number(match[4]) };
  return match[5] === undefined ? head : { ...head, ownId: true };
}
