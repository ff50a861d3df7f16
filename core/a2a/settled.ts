/** Waits until a task is no longer in progress: it has ended, or its agent asks a question. */
import type { Principal } from "../identity/principal.ts";
import { followRemoteTask } from "./follow.ts";
import { isWorking, type Task } from "./task.ts";
import type { SeenTask } from "./task-run.ts";
import type { Tasks } from "./tasks.ts";

/** Resolves to the task as it is then, or when the time is up. @param milliseconds how long to wait at most */
export async function settled(
  tasks: Tasks,
  { agent, seen, principal }: { agent: string; seen: SeenTask; principal: Principal },
  signal: AbortSignal,
  milliseconds: number,
): Promise<Task> {
  const { task, run } = seen;
  if (run !== undefined) {
    if (!run.isOver) await run.over.wait(signal, milliseconds);
    return run.snapshot();
  }
  if (!isWorking(task)) return task;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(milliseconds)]);
  for await (const event of followRemoteTask(tasks, { agent, task }, principal, limit))
    if ("endOf" in event) return event.endOf;
  return (await tasks.find(agent, task.id, principal))?.task ?? task;
}
