/** Tasks in the store. Every change expects the row as it was read: of two changes at once, one is a `CommitConflict`. */
import {
  indexedAgent,
  indexedTask,
  openTaskKey,
  TASK_INDEXES,
  taskEntry,
  taskIndex,
  taskIndexEnd,
  taskKey,
} from "../storage/keys.ts";
import { firstRows } from "../storage/ranges.ts";
import type { Row, Store } from "../storage/store.ts";
import { isOver, type TaskRecord, type TaskState } from "./task.ts";

export interface FoundTask {
  readonly record: TaskRecord;
  readonly revision: number;
  /** Characters of its row. */
  readonly size: number;
}

/** The value of an index row: what lists filter by, and the owner, whose index has a row for the task too. */
export type IndexValue = [state: TaskState, contextId: string, owner: string];

export class TaskRows {
  readonly store: Store;
  readonly #isolated: boolean;

  /** @param isolated whether tasks belong to users: then each user has an index of their own */
  constructor(store: Store, isolated: boolean) {
    this.store = store;
    this.#isolated = isolated;
  }

  async read(agent: string, task: string): Promise<FoundTask | undefined> {
    const row = await this.store.get(taskKey(agent, task));
    if (row === undefined) return undefined;
    return { record: JSON.parse(row.value), revision: row.revision, size: row.value.length };
  }

  /** Every agent that has tasks, including those that the manifest no longer names. */
  async *agents(): AsyncGenerator<string> {
    const indexes = firstRows(this.store, TASK_INDEXES, ({ key }) => taskIndexEnd(indexedAgent(key)));
    for await (const { key } of indexes) yield indexedAgent(key);
  }

  /** Resolves to the revision of the task's row, as `change` does. */
  create(record: TaskRecord): Promise<number> {
    const { agent, task } = record;
    const key = taskKey(agent, task.id);
    const open: [string, string] = [openTaskKey(task.id), taskLeaseText(agent, record.createdAt)];
    return this.store.commit({
      put: [[key, JSON.stringify(record)], ...this.#indexRows(record), open],
      expect: [[key, null]],
    });
  }

  /** @param revision of the row that held `before` */
  async change(before: TaskRecord, after: TaskRecord, revision: number): Promise<number> {
    const { agent, task } = after;
    const key = taskKey(agent, task.id);
    const put = [[key, JSON.stringify(after)] as [string, string], ...this.#indexRows(after)];
    const kept = new Set(put.map(([key]) => key));
    const old = this.#indexRows(before).flatMap(([key]) => (kept.has(key) ? [] : [key]));
    if (isOver(task)) old.push(openTaskKey(task.id));
    const changed = await this.store.commit({ put, delete: old, expect: [[key, revision]] });
    this.store.wake?.(key);
    return changed;
  }

  /** @param found rows of the index of all tasks of an agent, none of which has changed since */
  async delete(agent: string, found: readonly Row[]): Promise<void> {
    await this.store.commit({
      delete: found.flatMap(({ key, value }) => {
        const { updatedAt, task } = indexedTask(key);
        const [, , owner]: IndexValue = JSON.parse(value);
        // It may exist even without isolation now: tasks may have belonged to users before.
        const own = taskIndex(agent, owner) + taskEntry(updatedAt, task);
        return [key, taskKey(agent, task), openTaskKey(task), own];
      }),
      expect: found.map(({ key, revision }) => [key, revision]),
    });
  }

  #indexRows({ agent, owner, updatedAt, task }: TaskRecord): [string, string][] {
    const entry = taskEntry(updatedAt, task.id);
    const value = JSON.stringify([task.status.state, task.contextId, owner] satisfies IndexValue);
    const ofAgent: [string, string] = [taskIndex(agent) + entry, value];
    return this.#isolated ? [ofAgent, [taskIndex(agent, owner) + entry, value]] : [ofAgent];
  }
}

/** The lease of a running task: its agent, and when its last heartbeat was. */
interface TaskLease {
  readonly agent: string;
  readonly seen: number;
}

export const taskLeaseText = (agent: string, seen: number): string =>
  JSON.stringify({ agent, seen } satisfies TaskLease);
export const parseTaskLease = (value: string): TaskLease => JSON.parse(value) as TaskLease;
