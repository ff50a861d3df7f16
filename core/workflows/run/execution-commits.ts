/** Parts of the commits of an execution: what they write, remove, and expect of the rows that are there. */
import { executionKey, openExecutionKey } from "../../storage/keys.ts";
import type { Commit, Row } from "../../storage/store.ts";
import type { ExecutionStart } from "../journal/entries.ts";
import { chosenIdKey, parseOwnId } from "../journal/ids.ts";
import { indexKeys } from "../journal/index-rows.ts";
import type { JournalState } from "../journal/state.ts";

/** The first commit after a resume removes the index rows, and fails when somebody else has resumed the execution. */
export type Reopening = Pick<Commit, "delete" | "expect">;

/** @param state before the resume */
export const reopeningCommit = ({ start, status }: JournalState, recordRow: Row): Reopening => ({
  delete: indexKeys(start, status),
  expect: [
    [recordRow.key, recordRow.revision],
    [openExecutionKey(start.number), null],
  ],
});

/** The first commit of an execution with an id that a client chose fails when the id is taken. */
export function withChosenId(commit: Commit, start: ExecutionStart): Commit {
  if (parseOwnId(start.id) === start.number) return commit;
  const key = chosenIdKey(start);
  return { ...commit, put: [...(commit.put ?? []), [key, String(start.number)]], expect: [[key, null]] };
}

/** The rows of an execution that comes to rest: its record row with this value, and its index rows. */
export function restRows({ start, status, endedAt }: JournalState, value: string): [string, string][] {
  const ended = String(endedAt ?? 0);
  const put: [string, string][] = [[executionKey(start.number), value]];
  for (const key of indexKeys(start, status)) put.push([key, ended]);
  return put;
}

/** For an execution that comes to rest again before anything of its resume was committed. */
export function restWithoutReopening(put: readonly [string, string][], reopening: Reopening): Commit {
  const kept = new Set(put.map(([key]) => key));
  return { put, delete: reopening.delete?.filter((key) => !kept.has(key)), expect: reopening.expect };
}
