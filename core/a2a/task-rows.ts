/** Tasks in the store. Every change expects the row as it was read: of two simultaneous changes, one is a `CommitConflict`. */
import {
  indexedTask,
  openTaskKey,
  openTasksOfUser,
  TASK_INDEXES,
  taskEntry,
  taskIndex,
  taskKey,
} from "../storage/keys.ts";
import type { Membership } from "../storage/membership.ts";
import { groupsBelow } from "../storage/ranges.ts";
import type { Row, Store } from "../storage/store.ts";
import type { PushConfig } from "./push-config.ts";
import { noPushes, PushRows, withConfig } from "./pushes.ts";
import { isOver, isWorking, type TaskRecord, type TaskState } from "./task.ts";

export interface FoundTask {
  readonly record: TaskRecord;
  readonly revision: number;
  /** Size of its row in characters. */
  readonly size: number;
}

/**
 * The value of an index row: the fields by which lists filter, the owner, whose index has a row for the task too, and the key of the row
 * that leads from the first message to the task.
 */
export type IndexValue = [state: TaskState, contextId: string, owner: string, message?: string];

export class TaskRows {
  readonly store: Store;
  readonly pushes: PushRows;
  /** The processes that share the store; null when no other process uses it. */
  readonly membership: Membership | null;
  /** Called when receivers must be notified of a change of a task's status. Null when there are no notifications. */
  onEvent: (() => void) | null = null;
  readonly #isolated: boolean;

  /** @param isolated whether tasks belong to users: then each user has a separate index */
  constructor(store: Store, isolated: boolean, membership: Membership | null = null) {
    this.store = store;
    this.pushes = new PushRows(store);
    this.membership = membership;
    this.#isolated = isolated;
  }

  async read(agent: string, task: string): Promise<FoundTask | undefined> {
    const row = await this.store.get(taskKey(agent, task));
    if (row === undefined) return undefined;
    return { record: JSON.parse(row.value), revision: row.revision, size: row.value.length };
  }

  /** Every agent that has tasks, including those that the manifest no longer names. */
  async *agents(): AsyncGenerator<string> {
    for await (const index of groupsBelow(this.store, TASK_INDEXES)) yield index.slice(TASK_INDEXES.length, -1);
  }

  /**
   * Resolves to the revision of the task's row, like `change`.
   *
   * @param push the first receiver of notifications
   */
  create(record: TaskRecord, push?: PushConfig): Promise<number> {
    const { agent, owner, task, message } = record;
    const key = taskKey(agent, task.id);
    const put: [string, string][] = [[key, JSON.stringify(record)], ...this.#pointers(record)];
    const expect: [string, null][] = [[key, null]];
    if (message !== undefined) {
      const [messageKey, content] = message;
      put.push([messageKey, JSON.stringify([task.id, content])]);
      expect.push([messageKey, null]);
    }
    const pushes = push && withConfig(noPushes(agent, owner), push, false, 0);
    return this.pushes.write(task.id, undefined, pushes, { put, expect });
  }

  /** The task that a message has started, and the digest of the message. @param key as in `TaskRecord.message` */
  async ofMessage(key: string): Promise<readonly [task: string, content: string] | undefined> {
    const row = await this.store.get(key);
    return row === undefined ? undefined : JSON.parse(row.value);
  }

  /** The number of a user's tasks that have not ended, counted up to `limit`. */
  async countOpen(user: string, limit: number): Promise<number> {
    return (await this.store.scan({ prefix: openTasksOfUser(user), limit })).length;
  }

  /** @param revision of the row that contained `before` */
  async change(before: TaskRecord, after: TaskRecord, revision: number): Promise<number> {
    const { agent, task } = after;
    const key = taskKey(agent, task.id);
    const put: [string, string][] = [[key, JSON.stringify(after)], ...this.#pointers(after)];
    const kept = new Set(put.map(([key]) => key));
    const old = this.#pointers(before).flatMap(([key]) => (kept.has(key) ? [] : [key]));
    const commit = { put, delete: old, expect: [[key, revision] as const] };
    const isEvent = this.onEvent !== null && task.status !== before.task.status;
    const [changed, isTold] = isEvent
      ? await this.pushes.commitEvent(task.id, commit)
      : [await this.store.commit(commit), false];
    this.store.wake?.(key);
    if (isTold) this.onEvent?.();
    return changed;
  }

  /** @param revision that its row must still have */
  remove(record: TaskRecord, revision: number): Promise<void> {
    const [[key, value]] = this.#pointers(record) as [[string, string]];
    return this.delete(record.agent, [{ key, value, revision }]);
  }

  /** @param found rows of the index of all tasks of an agent, none of which has changed since */
  async delete(agent: string, found: readonly Row[]): Promise<void> {
    const told = await this.pushes.readRows(found);
    const pushes = told.flatMap((each) => this.pushes.commitOf(each.id, each, undefined).delete);
    await this.store.commit({
      delete: found
        .flatMap(({ key, value }) => {
          const { updatedAt, task } = indexedTask(key);
          const [, , owner, message]: IndexValue = JSON.parse(value);
          // Deleted even without isolation, because tasks may have belonged to users before.
          const own = taskIndex(agent, owner) + taskEntry(updatedAt, task);
          return [
            key,
            taskKey(agent, task),
            openTaskKey(task),
            openTasksOfUser(owner) + task,
            own,
            ...(message === undefined ? [] : [message]),
          ];
        })
        .concat(pushes),
      expect: found.map(({ key, revision }) => [key, revision]),
    });
  }

  /** The rows that lead to a task: those of its lists, and while it has not ended one for its user, and one with its process while it works. */
  #pointers({ agent, owner, updatedAt, task, message }: TaskRecord): [string, string][] {
    const entry = taskEntry(updatedAt, task.id);
    const facts: IndexValue = [task.status.state, task.contextId, owner];
    if (message !== undefined) facts.push(message[0]);
    const value = JSON.stringify(facts);
    const rows: [string, string][] = [[taskIndex(agent) + entry, value]];
    if (this.#isolated) rows.push([taskIndex(agent, owner) + entry, value]);
    if (owner !== "" && !isOver(task)) rows.push([openTasksOfUser(owner) + task.id, "1"]);
    if (isWorking(task)) rows.push([openTaskKey(task.id), JSON.stringify({ agent, process: this.membership?.name })]);
    return rows;
  }
}

/** The lease of a running task: its agent, and the process that runs it. */
interface TaskLease {
  readonly agent: string;
  readonly process?: string | undefined;
}

export const parseTaskLease = (value: string): TaskLease => JSON.parse(value) as TaskLease;
