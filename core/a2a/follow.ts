/** The events of a task, for clients that stream it. */
import type { Principal } from "../identity/principal.ts";
import { taskKey } from "../storage/keys.ts";
import { Watch } from "../storage/watch.ts";
import type { ArtifactUpdate } from "./output.ts";
import { isOver, isWorking, type Task, type TaskRecord } from "./task.ts";
import type { TaskRun } from "./task-run.ts";
import type { Tasks } from "./tasks.ts";

export type TaskEvent =
  | { readonly task: Task }
  | (ArtifactUpdate & { readonly of: Task })
  /** The end of the task, or the question of its agent. */
  | { readonly endOf: Task };

/** Pause between two reads of a task that another process works on. */
const POLL_INTERVAL_MS = 1_000;

/** Yields the task as it starts, everything that its agent says, and its end. Stops when `signal` aborts; the task continues. */
export async function* streamRun(run: TaskRun, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  yield { task: run.beginning };
  yield* streamFrom(run, run.begin, signal);
}

/** For a client that comes later: yields the task as it is now, and what its agent says from then on. */
export async function* followRun(run: TaskRun, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  const place = run.output.length;
  yield { task: run.snapshot() };
  yield* streamFrom(run, place, signal);
}

async function* streamFrom(run: TaskRun, from: number, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  let place = from;
  while (!signal.aborted) {
    const { isOver } = run;
    const updates = run.output.since(place);
    place = run.output.length;
    for (const update of updates) yield { ...update, of: run.record.task };
    if (isOver) {
      yield { endOf: run.record.task };
      return;
    }
    // New updates may have arrived while the reader handled the last ones.
    if (place === run.output.length && !run.isOver) await run.said.wait(signal);
  }
}

/** Whether the task asks a question that it did not ask before. */
const asksAnew = (now: Task, before: Task): boolean =>
  !isWorking(now) && (isWorking(before) || now.status.timestamp !== before.status.timestamp);

/**
 * Follows a task that another process works on: everything that its agent says comes with the end. One that waits for an answer is
 * followed until it has continued.
 */
export async function* followRemoteTask(
  tasks: Tasks,
  { agent, task }: Pick<TaskRecord, "agent" | "task">,
  principal: Principal,
  signal: AbortSignal,
  pollInterval = POLL_INTERVAL_MS,
): AsyncGenerator<TaskEvent> {
  const watch = new Watch(tasks.rows.store, taskKey(agent, task.id));
  try {
    yield { task };
    while (!signal.aborted) {
      const seen = await tasks.find(agent, task.id, principal);
      if (seen === undefined) return;
      if (seen.run !== undefined) {
        yield* followRun(seen.run, signal);
        return;
      }
      if (isOver(seen.task) || asksAnew(seen.task, task)) {
        for (const artifact of seen.task.artifacts) yield { artifact, append: false, of: seen.task };
        yield { endOf: seen.task };
        return;
      }
      await watch.wait(pollInterval, signal);
    }
  } finally {
    watch.end();
  }
}
