/** Ids of tasks. They increase with time, so that new rows are at one end of the store, and cannot be guessed. */
import { randomBytes } from "node:crypto";
import { encodeNumber } from "../storage/encoding.ts";

const OURS = /^[0-9a-z]{9}-[0-9a-f]{16}$/;

/** @param now milliseconds since 1970 */
export const newTaskId = (now: number): string => `${encodeNumber(now)}-${randomBytes(8).toString("hex")}`;

export const isTaskId = (id: string): boolean => OURS.test(id);
