/** Ids of executions: ours say where the execution is, so that they need no row of their own; a client may choose another. */
import { randomBytes } from "node:crypto";
import { number, numberOf } from "../storage/encoding.ts";

const OURS = /^[0-9a-z]{9}-[0-9a-f]{16}$/;
/** Digits that cannot be guessed, and how many are made at once. */
const DIGITS = 16;
const POOL = 4096;

/** Makes the id of the execution with a number. */
export function createExecutionIds(): (execution: number) => string {
  let pool = "";
  let at = 0;
  return (execution) => {
    if (at === pool.length) {
      pool = randomBytes(POOL).toString("hex");
      at = 0;
    }
    at += DIGITS;
    return `${number(execution)}-${pool.slice(at - DIGITS, at)}`;
  };
}

/** The number in an id that may be one of ours. Whether it is, only the execution of that number tells. */
export const numberIn = (id: string): number | null => (OURS.test(id) ? numberOf(id.slice(0, 9)) : null);
