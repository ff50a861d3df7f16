/**
 * Keys of push notifications of A2A tasks. They go with the rows of tasks in keys.ts, which has the notation.
 *
 *   a2c/TASK        -> who is told of a task: push configurations, and what they have not taken yet (a2a/pushes.ts)
 *   a2n/#due/TASK   -> [agent, owner, process]; tasks that somebody is to be told of, by when
 *   a2k/            -> the key that signs what they are told
 */
import { encodeNumber, encodeText } from "./encoding.ts";

/** Prefix of the push configurations of all tasks. */
export const TASK_PUSHES = "a2c/";
export const taskPushKey = (task: string) => `a2c/${encodeText(task)}`;
/** Prefix of the tasks that somebody is to be told of. */
export const TASK_NOTICES = "a2n/";
export const taskNoticeKey = (due: number, task: string) => `a2n/${encodeNumber(due)}/${encodeText(task)}`;
/** Those that are due before `time`, in milliseconds since 1970, sort before this. */
export const taskNoticesBefore = (time: number) => `a2n/${encodeNumber(time)}`;
/** The task of one of these rows. Ids of tasks need no decoding. */
export const taskOfNotice = (key: string): string => key.split("/")[2]!;
export const PUSH_SIGNING_KEY = "a2k/";
