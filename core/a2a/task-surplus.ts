/** Limits the bytes of tasks in a store that ends with the process: the oldest tasks that have ended are removed. */
import { unlessConflict } from "../storage/conflict.ts";
import { indexedTask, TASKS, taskIndex, taskKey } from "../storage/keys.ts";
import { TASK_PUSHES } from "../storage/push-keys.ts";
import { allRows } from "../storage/ranges.ts";
import type { Row } from "../storage/store.ts";
import type { IndexValue, TaskRows } from "./task-rows.ts";

const MAX_BYTES = 16 * 1024 * 1024;
/** The oldest tasks of each agent that are read together. */
const TASKS_PER_LOOK = 200;

/** Removes tasks until all take at most 16 MiB, or only running ones are left. A task that waits for an answer may be removed too. */
export async function removeSurplusTasks(rows: TaskRows, signal: AbortSignal): Promise<void> {
  const held = (space: string) => rows.store.held?.(space) ?? 0;
  const excess = () => held(TASKS) + held(TASK_PUSHES) - MAX_BYTES;
  for (let left = excess(), before = Number.POSITIVE_INFINITY; left > 0 && left < before; left = excess()) {
    before = left;
    await removeOldest(rows, left);
    if (signal.aborted) return;
  }
}

async function removeOldest(rows: TaskRows, bytes: number): Promise<void> {
  let freed = 0;
  for (const { agent, row } of await oldestTasks(rows)) {
    if (freed >= bytes) return;
    const record = await rows.store.get(taskKey(agent, indexedTask(row.key).task));
    freed += record?.value.length ?? 0;
    await unlessConflict(rows.delete(agent, [row]));
  }
}

async function oldestTasks(rows: TaskRows): Promise<{ agent: string; row: Row }[]> {
  const found: { agent: string; row: Row; updatedAt: number }[] = [];
  for await (const agent of rows.agents()) {
    // Running tasks may be the oldest for long: later pages have those that can be removed.
    for await (const page of allRows(rows.store, { prefix: taskIndex(agent) }, TASKS_PER_LOOK)) {
      const idle = page.filter(({ value }) => (JSON.parse(value) as IndexValue)[0] !== "TASK_STATE_WORKING");
      found.push(...idle.map((row) => ({ agent, row, updatedAt: indexedTask(row.key).updatedAt })));
      if (idle.length > 0) break;
    }
  }
  return found.sort((left, right) => left.updatedAt - right.updatedAt);
}
