/** The events of a task, for clients that stream it. */
import type { EventSink } from "../lib/event-sink.ts";
import { taskKey } from "../storage/keys.ts";
import { Watch } from "../storage/ranges.ts";
import type { ArtifactUpdate } from "./output.ts";
import { isWorking, type Task, type TaskRecord } from "./task.ts";
import type { Tasks } from "./tasks.ts";

export type TaskEvent =
  | { readonly task: Task }
  | (ArtifactUpdate & { readonly of: Task })
  /** The end of the task, or the question of its agent. */
  | { readonly endOf: TaskRecord };

/** Pause between two reads of a task that waits. */
const POLL_INTERVAL_MS = 250;

/**
 * Yields the task as it is now, what its agent says from then on, and its end or its question. One that waits for an answer is followed
 * until it has continued. Stops when `signal` aborts; the task continues.
 */
export async function* followTask(tasks: Tasks, found: TaskRecord, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  const { agent, task } = found;
  const output = await tasks.output(found);
  if (output === undefined) return;
  const watch = new Watch(tasks.rows.store, taskKey(agent, task.id));
  let now = found;
  let hasLeft = false;
  const reader: Partial<EventSink> = {
    get closed() {
      return hasLeft || signal.aborted;
    },
    onLeave: (listener) => signal.addEventListener("abort", listener),
  };
  try {
    yield { task: { ...task, artifacts: output.artifacts() } };
    output.news();
    while (!signal.aborted) {
      const follow = now.run !== undefined && isWorking(now.task) ? await tasks.events(now, output.told) : undefined;
      if (follow === undefined) await watch.wait(POLL_INTERVAL_MS, signal);
      else {
        let wake = () => {};
        let isOpen = true;
        const following = output
          .hear(follow, reader, () => wake())
          .finally(() => {
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
      const isSame = next.task.status.message?.messageId === now.task.status.message?.messageId;
      if (!isWorking(next.task) && (isWorking(now.task) || !isSame)) {
        // It may have gone on, and come to this, between two looks.
        await tasks.output(next, output);
        for (const update of output.news()) yield { ...update, of: task };
        yield { endOf: next };
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
