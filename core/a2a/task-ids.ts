/** Ids of tasks, as executions have them. They increase with time, so that new rows are at one end of the store, and cannot be guessed. */
import { createExecutionIds, parseOwnId } from "../workflows/journal/entries.ts";

/** Given milliseconds since 1970. */
export const newTaskId = createExecutionIds();

export const isTaskId = (id: string): boolean => parseOwnId(id) !== null;
