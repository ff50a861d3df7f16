/**
 * Tasks in the store. Every change expects the row as it was read: of two simultaneous changes, one is a `CommitConflict`.
 *
 *   a2/AGENT/TASK                   -> a task of A2A: its owner, times and state
 *   a2i/AGENT/#updatedAt/TASK       -> [state, context, owner, key of its `a2m` row]; the agent's tasks by their last change
 *   a2u/AGENT/USER/#updatedAt/TASK  -> the same of one user, where stored objects belong to users
 *   a2o/TASK                        -> a running task: its agent, and its process
 *   a2m/MESSAGE                     -> the task that began with a message, by a digest of its id
 *   a2p/USER/TASK                   a task of a user that has not ended
 */
import { Collection, type Found, idOfRow } from "../storage/collection.ts";
import { encodeText } from "../storage/keys.ts";
import type { Membership } from "../storage/membership.ts";
import { groupsBelow } from "../storage/ranges.ts";
import { type Row, type Store, unlessConflict } from "../storage/store.ts";
import type { PushConfig } from "./push-config.ts";
import { noPushes, PushRows, withConfig } from "./pushes.ts";
import { isOver, isWorking, type TaskRecord, type TaskState } from "./task.ts";

export type FoundTask = Found<TaskRecord>;

/** What the rows of lists tell: what these filter by, and what else leads to the task. */
export type IndexValue = readonly [state: TaskState, contextId: string, owner: string, message?: string];

const BY_CHANGE = "a2i/";
export const OPEN_TASKS = "a2o/";
const byUser = (agent: string): string => `a2u/${encodeText(agent)}/`;
const openOf = (user: string): string => `a2p/${encodeText(user)}/`;
export const taskMessageKey = (digest: string): string => `a2m/${digest}`;

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

  /** The tasks of an agent. */
  of(agent: string): Collection<TaskRecord> {
    const name = `${encodeText(agent)}/`;
    return new Collection<TaskRecord>(this.store, {
      prefix: `a2/${name}`,
      times: BY_CHANGE + name,
      timeOf: ({ updatedAt }) => updatedAt,
      factsOf: ({ owner, task, message }): IndexValue => {
        const facts = [task.status.state, task.contextId, owner] as const;
        return message === undefined ? facts : [...facts, message[0]];
      },
      lists: this.#isolated ? [[byUser(agent), "owner"]] : [],
      placesOf: ({ owner, task }) => (owner === "" || isOver(task) ? [] : [openOf(owner)]),
    });
  }

  read(agent: string, task: string): Promise<FoundTask | undefined> {
    return this.of(agent).read(task);
  }

  /** Every agent that has tasks, including those that the manifest no longer names. */
  async *agents(): AsyncGenerator<string> {
    for await (const index of groupsBelow(this.store, BY_CHANGE)) yield index.slice(BY_CHANGE.length, -1);
  }

  /**
   * Resolves to the revision of the task's row, like `change`.
   *
   * @param push the first receiver of notifications
   */
  create(record: TaskRecord, push?: PushConfig): Promise<number> {
    const { agent, owner, task, message } = record;
    const tasks = this.of(agent);
    const pushes = push && withConfig(noPushes(agent, owner), push, false, 0);
    const put = [...this.#leases(record), ...this.pushes.commitOf(task.id, undefined, pushes).put];
    const expect: [string, null][] = [[tasks.key(task.id), null]];
    if (message !== undefined) {
      const [messageKey, content] = message;
      put.push([messageKey, JSON.stringify([task.id, content])]);
      expect.push([messageKey, null]);
    }
    return tasks.write(task.id, undefined, record, { put, expect });
  }

  /** The task that a message has started, and the digest of the message. @param key as in `TaskRecord.message` */
  async ofMessage(key: string): Promise<readonly [task: string, content: string] | undefined> {
    const row = await this.store.get(key);
    return row === undefined ? undefined : JSON.parse(row.value);
  }

  /** The number of a user's tasks that have not ended, counted up to `limit`. */
  async countOpen(user: string, limit: number): Promise<number> {
    return (await this.store.scan({ prefix: openOf(user), limit })).length;
  }

  /** @param revision of the row that contained `before` */
  async change(before: TaskRecord, after: TaskRecord, revision: number): Promise<number> {
    const { agent, task } = after;
    const tasks = this.of(agent);
    const key = tasks.key(task.id);
    // One that is written anew is so with all its rows, since its removal expects that of its time.
    const commit = tasks.commitOf(task.id, before === after ? undefined : { record: before, revision }, after, {
      put: this.#leases(after),
      delete: isWorking(before.task) && !isWorking(task) ? [OPEN_TASKS + task.id] : [],
      expect: [[key, revision]],
    });
    const isEvent = this.onEvent !== null && task.status !== before.task.status;
    const [changed, isTold] = isEvent
      ? await this.pushes.commitEvent(task.id, commit)
      : [await this.store.commit(commit), false];
    this.store.wake?.(key);
    if (isTold) this.onEvent?.();
    return changed;
  }

  /** @param revision that the row of its time must still have */
  remove(record: TaskRecord, revision: number): Promise<void> {
    const { agent, task } = record;
    const [key, value] = this.of(agent).commitOf(task.id, undefined, record).put[1]!;
    return this.delete(agent, [{ key, value, revision }]);
  }

  /** @param found rows of the times of tasks of an agent; all stay when one has changed since */
  async delete(agent: string, found: readonly Row[]): Promise<void> {
    if (found.length === 0) return;
    const tasks = this.of(agent);
    const told = await this.pushes.readRows(found);
    const removed = found.flatMap((row) => {
      const id = idOfRow(row);
      const [, , owner, message]: IndexValue = JSON.parse(row.value);
      // Deleted even without isolation, because tasks may have belonged to users before.
      const own = `${byUser(agent)}${encodeText(owner)}/${row.key.slice(tasks.listOf({}).length)}`;
      const keys = [row.key, tasks.key(id), OPEN_TASKS + id, openOf(owner) + id, own];
      return message === undefined ? keys : [...keys, message];
    });
    for (const each of told) removed.push(...this.pushes.commitOf(each.id, each, undefined).delete);
    const expect = found.map(({ key, revision }) => [key, revision] as const);
    await unlessConflict(this.store.commit({ delete: removed, expect }));
  }

  /** The row with the process of a task that works. */
  #leases({ agent, task }: TaskRecord): [string, string][] {
    if (!isWorking(task)) return [];
    return [[OPEN_TASKS + task.id, JSON.stringify({ agent, process: this.membership?.name })]];
  }
}

/** The lease of a running task: its agent, and the process that runs it. */
interface TaskLease {
  readonly agent: string;
  readonly process?: string | undefined;
}

export const parseTaskLease = (value: string): TaskLease => JSON.parse(value) as TaskLease;
