/** The events of a task, for clients that stream it. */
import type { AgentPart } from "../agents/run/parts.ts";
import { taskKey } from "../storage/keys.ts";
import { Watch } from "../storage/watch.ts";
import { type ArtifactUpdate, TaskOutput } from "./output.ts";
import { isOver, isWorking, type Task, type TaskRecord } from "./task.ts";
import type { Tasks } from "./tasks.ts";

export type TaskEvent =
  | { readonly task: Task }
  | (ArtifactUpdate & { readonly of: Task })
  /** The end of the task, or the question of its agent. */
  | { readonly endOf: Task };

/** Pause between two reads of a task that waits. */
const POLL_INTERVAL_MS = 250;

/**
 * Yields the task as it is now, what its agent says from then on, and its end or its question. One that waits for an answer is followed
 * until it has continued. Stops when `signal` aborts; the task continues.
 */
export async function* followTask(tasks: Tasks, found: TaskRecord, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  const { agent, task, run } = found;
  const output = new TaskOutput(task.artifacts);
  const watch = new Watch(tasks.rows.store, taskKey(agent, task.id));
  let last = run?.seen ?? 0;
  let now = found;
  let hasLeft = false;
  try {
    yield { task };
    while (!signal.aborted) {
      const follow = now.run !== undefined && isWorking(now.task) ? await tasks.events(now, last) : undefined;
      if (follow === undefined) await watch.wait(POLL_INTERVAL_MS, signal);
      else {
        let wake = () => {};
        let isOpen = true;
        const following = follow({
          open() {},
          send(json, number = last + 1) {
            last = number;
            output.add(JSON.parse(json) as AgentPart);
            wake();
            return undefined;
          },
          get closed() {
            return hasLeft || signal.aborted;
          },
          onLeave: (listener) => signal.addEventListener("abort", listener),
        }).finally(() => {
          isOpen = false;
          wake();
        });
        following.catch(() => {});
        while (isOpen || output.hasNews) {
          for (const update of output.news()) yield { ...update, of: task };
          // More may have been said while the reader handled the last one.
          if (isOpen && !output.hasNews)
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
        }
        await following;
      }
      if (signal.aborted) return;
      const read = follow === undefined ? tasks.rows.read(agent, task.id) : tasks.follow(agent, task.id);
      const next = (await read)?.record;
      if (next === undefined) return;
      if (isOver(next.task) || asksAnew(next.task, now.task)) {
        yield { endOf: next.task };
        return;
      }
      // It goes on, though not here any more: its next process may have to take it up first.
      if (follow !== undefined && isWorking(next.task)) await watch.wait(POLL_INTERVAL_MS, signal);
      now = next;
    }
  } finally {
    hasLeft = true;
    watch.end();
  }
}

/** Whether the task asks a question that it did not ask before. */
const asksAnew = (now: Task, before: Task): boolean =>
  !isWorking(now) && (isWorking(before) || now.status.timestamp !== before.status.timestamp);
