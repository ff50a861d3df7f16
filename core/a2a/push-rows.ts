/** Push configurations in the store. Every change expects the row as it was read, and is retried after a conflict with another process. */
import { systemTime } from "../lib/clock.ts";
import { CommitConflict, unavailable } from "../lib/errors.ts";
import { taskPushKey } from "../storage/keys.ts";
import type { Commit, Row, Store } from "../storage/store.ts";
import { noticeRows, type Pushes, withEvent } from "./pushes.ts";

const MAX_TRIES = 20;

const parse = (row: Row): Pushes => JSON.parse(row.value);

export async function readPushes(store: Store, task: string): Promise<Pushes | null> {
  const row = await store.get(taskPushKey(task));
  return row === undefined ? null : parse(row);
}

/** The commit that changes the row of a task to `after`; a row without receivers is removed. */
export function pushCommit(task: string, before: Row | undefined, after: Pushes | null) {
  const key = taskPushKey(task);
  const isEmpty = after === null || after.pushes.length === 0;
  const rows = isEmpty ? [] : noticeRows(task, after);
  const old = before === undefined ? [] : noticeRows(task, parse(before)).map(([key]) => key);
  const put: [string, string][] = isEmpty ? [] : [[key, JSON.stringify(after)], ...rows];
  return {
    put,
    delete: [...(isEmpty && before !== undefined ? [key] : []), ...old.filter((each) => each !== rows[0]?.[0])],
    expect: [[key, before?.revision ?? null]] as [string, number | null][],
  };
}

/**
 * Changes the row of a task.
 *
 * @param change returns undefined to leave the row unchanged
 * @param expect revisions that other rows must still have
 * @throws CommitConflict when they do not
 */
export async function changePushes(
  store: Store,
  task: string,
  change: (before: Pushes | null) => Pushes | undefined,
  expect: readonly (readonly [key: string, revision: number])[] = [],
): Promise<Pushes | undefined> {
  const key = taskPushKey(task);
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const row = await store.get(key);
    const after = change(row === undefined ? null : parse(row));
    if (after === undefined) return undefined;
    try {
      const commit = pushCommit(task, row, after);
      await store.commit({ ...commit, expect: [...commit.expect, ...expect] });
      return after;
    } catch (error) {
      if (!isConflictOf(key, error)) throw error;
    }
  }
  throw unavailable("the push notification configurations are being changed all the time: try again");
}

/**
 * Commits a change of a task's status together with the notifications that it requires, so that a crash cannot separate the two. Most
 * tasks have no receivers, so the row is read only if it turns out to exist.
 *
 * @returns the revision of the rows, and whether there are notifications to send
 * @throws CommitConflict when the task itself has changed
 */
export async function commitEvent(
  store: Store,
  commit: Commit,
  task: string,
): Promise<readonly [revision: number, isTold: boolean]> {
  const key = taskPushKey(task);
  let row: Row | undefined;
  for (let tries = 0; ; tries++) {
    const pushes = pushCommit(task, row, row === undefined ? null : withEvent(parse(row), systemTime()));
    try {
      const revision = await store.commit({
        put: [...(commit.put ?? []), ...pushes.put],
        delete: [...(commit.delete ?? []), ...pushes.delete],
        expect: [...(commit.expect ?? []), ...pushes.expect],
      });
      return [revision, row !== undefined];
    } catch (error) {
      if (!isConflictOf(key, error) || tries === MAX_TRIES) throw error;
      row = await store.get(key);
    }
  }
}

const isConflictOf = (key: string, error: unknown): boolean =>
  error instanceof CommitConflict && error.keys.every((each) => each === key);
