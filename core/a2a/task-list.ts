/** `ListTasks`: the tasks of an agent that a principal may see, the most recently changed first. */
import { ownerOf, type Principal } from "../identity/principal.ts";
import { invalid } from "../lib/errors.ts";
import { indexedTask, taskEntry, taskIndex } from "../storage/keys.ts";
import { allRows, inTurn } from "../storage/ranges.ts";
import type { Row } from "../storage/store.ts";
import { charactersOf } from "./output.ts";
import type { Task } from "./task.ts";
import { isTaskId } from "./task-ids.ts";
import type { IndexValue } from "./task-rows.ts";
import type { Tasks } from "./tasks.ts";

type Findable = Pick<Tasks, "rows" | "find" | "whole">;

/** Index rows that one request reads: older tasks are not found. */
const MAX_SCANNED_ROWS = 10_000;
/** A page ends early when its stored tasks exceed this size. */
const MAX_PAGE_CHARACTERS = 2 * 1024 * 1024;

interface TaskListQuery {
  readonly contextId: string | undefined;
  readonly state: string | undefined;
  /** Milliseconds since 1970, exclusive. */
  readonly after: number | undefined;
  readonly pageSize: number;
  /** Empty for the first page. */
  readonly pageToken: string;
  readonly includeArtifacts: boolean;
}

interface TaskPage {
  readonly tasks: Task[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
  readonly pageSize: number;
  /** Number of tasks on all pages. */
  readonly totalSize: number;
}

/** @throws ServiceError `invalid_input` for a page token that no list has returned */
export async function listTasks(
  tasks: Findable,
  agent: string,
  query: TaskListQuery,
  principal: Principal,
): Promise<TaskPage> {
  const prefix = taskIndex(agent, principal.isolated ? ownerOf(principal) : undefined);
  const from = query.pageToken === "" ? undefined : prefix + parsePageToken(query.pageToken);
  const { pageSize } = query;
  let totalSize = 0;
  const keys: string[] = [];
  for await (const { key, value } of newestFirst(tasks, prefix)) {
    if (query.after !== undefined && indexedTask(key).updatedAt <= query.after) break;
    const [state, contextId]: IndexValue = JSON.parse(value);
    if (query.state !== undefined && state !== query.state) continue;
    if (query.contextId !== undefined && contextId !== query.contextId) continue;
    totalSize++;
    if ((from === undefined || key < from) && keys.length <= pageSize) keys.push(key);
  }
  const found: Task[] = [];
  let size = 0;
  const read = async (id: string) => {
    const seen = await tasks.find(agent, id, principal);
    if (seen === undefined) return;
    const { task } = seen.record;
    const shown = query.includeArtifacts ? await tasks.whole(seen.record) : { ...task, artifacts: [] };
    if (shown === undefined) return;
    found.push(shown);
    size += seen.size + charactersOf(shown.artifacts);
  };
  let taken = 0;
  while (taken < Math.min(keys.length, pageSize) && size < MAX_PAGE_CHARACTERS) {
    const { task } = indexedTask(keys[taken++]!);
    await inTurn(() => read(task));
  }
  const nextPageToken = keys.length > taken ? pageToken(keys[taken - 1]!) : "";
  return { tasks: found, nextPageToken, pageSize, totalSize };
}

async function* newestFirst({ rows: { store } }: Findable, prefix: string): AsyncGenerator<Row> {
  let left = MAX_SCANNED_ROWS;
  for await (const rows of allRows(store, { prefix, reverse: true })) {
    yield* rows.slice(0, left);
    left -= rows.length;
    if (left <= 0) return;
  }
}

function pageToken(key: string): string {
  const { updatedAt, task } = indexedTask(key);
  return Buffer.from(`${updatedAt}/${task}`).toString("base64url");
}

function parsePageToken(token: string): string {
  const [updatedAt = "", task = ""] = Buffer.from(token, "base64url").toString().split("/");
  if (!/^\d{1,13}$/.test(updatedAt) || !isTaskId(task)) throw invalid("params.pageToken must be one that a list gave");
  return taskEntry(Number(updatedAt), task);
}
