/** Builds the commits of an execution: what they write and remove, and which rows they expect. */
import type { CommitConflict, ServiceError } from "../../lib/errors.ts";
import { executionKey, openExecutionKey } from "../../storage/keys.ts";
import type { Commit, Row } from "../../storage/store.ts";
import type { ExecutionStart } from "../journal/entries.ts";
import { chosenIdKey, parseOwnId } from "../journal/ids.ts";
import { indexKeys } from "../journal/index-rows.ts";
import type { JournalState } from "../journal/state.ts";
import type { ExecutionEnvironment } from "./environment.ts";

/** The first commit after a resume removes the index rows, and fails when another request has resumed the execution. */
export type Reopening = Pick<Commit, "delete" | "expect">;

/** @param state before the resume */
export const reopeningCommit = ({ start, status }: JournalState, recordRow: Row): Reopening => ({
  delete: indexKeys(start, status),
  expect: [
    [recordRow.key, recordRow.revision],
    [openExecutionKey(start.number), null],
  ],
});

/** The rows of which one exists when a number is taken: by a running execution or by a settled one. */
export const executionNumberRows = (number: number): readonly string[] => [
  openExecutionKey(number),
  executionKey(number),
];

/** The error of an execution that could not start: the conflict itself when its number is taken, so that it gets another one. */
export const unlessNumberTaken = (conflict: CommitConflict, number: number, error: ServiceError): Error =>
  conflict.keys.every((key) => executionNumberRows(number).includes(key)) ? conflict : error;

/** The first commit of an execution, which fails when its number is taken, or the id that a client chose. */
export function asFirst(
  commit: Commit,
  start: ExecutionStart,
  { shared }: Pick<ExecutionEnvironment, "shared">,
): Commit {
  // Without other processes a number cannot be taken, which saves a read.
  const expect = shared ? executionNumberRows(start.number).map((key) => [key, null] as const) : [];
  if (parseOwnId(start.id) === start.number) return { ...commit, expect };
  const key = chosenIdKey(start);
  return { ...commit, put: [...(commit.put ?? []), [key, String(start.number)]], expect: [...expect, [key, null]] };
}

/** The rows of an execution that settles: its record row with this value, and its index rows. */
export function restRows({ start, status, endedAt }: JournalState, value: string): [string, string][] {
  const ended = String(endedAt ?? 0);
  const put: [string, string][] = [[executionKey(start.number), value]];
  for (const key of indexKeys(start, status)) put.push([key, ended]);
  return put;
}

/** The commit of an execution that settles again before anything of its resume was committed. */
export function restWithoutReopening(put: readonly [string, string][], reopening: Reopening): Commit {
  const kept = new Set(put.map(([key]) => key));
  return { put, delete: reopening.delete?.filter((key) => !kept.has(key)), expect: reopening.expect };
}
