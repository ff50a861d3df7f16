import type { Principal } from "../identity/principal.ts";
import type { ArtifactUpdate } from "./output.ts";
import { isOver, type Task, type TaskRecord } from "./task.ts";
import type { TaskRun } from "./task-run.ts";
import type { Tasks } from "./tasks.ts";
import { Waiters } from "./waiters.ts";

export type TaskEvent =
  | { readonly task: Task }
  | (ArtifactUpdate & { readonly of: Task })
  /** The end. */
  | { readonly endOf: Task };

/** Milliseconds between two looks at a task that another process works on. */
const LOOK = 1_000;

/** The task as it begins, all that its agent says, and its end. Stops when `signal` aborts, which the task does not. */
export async function* tellRun(run: TaskRun, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  yield { task: run.beginning };
  yield* goOn(run, 0, signal);
}

/** The same for somebody who comes later: the task as it stands, and what its agent says from then on. */
export async function* followRun(run: TaskRun, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  const place = run.output.length;
  yield { task: run.snapshot() };
  yield* goOn(run, place, signal);
}

async function* goOn(run: TaskRun, from: number, signal: AbortSignal): AsyncGenerator<TaskEvent> {
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
    // Between the look above and here somebody may have read for long.
    if (place === run.output.length && !run.isOver) await run.said.wait(signal);
  }
}

/** The same for a task that another process works on: what its agent said comes with its end. */
export async function* followRemoteTask(
  tasks: Tasks,
  { agent, task }: Pick<TaskRecord, "agent" | "task">,
  principal: Principal,
  signal: AbortSignal,
): AsyncGenerator<TaskEvent> {
  const clock = new Waiters();
  yield { task };
  while (!signal.aborted) {
    await clock.wait(signal, LOOK);
    const seen = await tasks.find(agent, task.id, principal);
    if (seen === undefined) return;
    if (!isOver(seen.task)) continue;
    for (const artifact of seen.task.artifacts) yield { artifact, append: false, of: seen.task };
    yield { endOf: seen.task };
    return;
  }
}
