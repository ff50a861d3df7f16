/** Ids of executions: ours say where the execution is, so that they need no row of their own; a client may choose another. */
import { randomBytes } from "node:crypto";
import { decodeNumber, encodeNumber } from "../../storage/encoding.ts";
import { executionNameKey } from "../../storage/keys.ts";
import type { ExecutionStart } from "./entries.ts";

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
    return `${encodeNumber(execution)}-${pool.slice(at - DIGITS, at)}`;
  };
}

/** The number in an id that may be one of ours. Whether it is, only the execution of that number tells. */
export const numberIn = (id: string): number | null => (OURS.test(id) ? decodeNumber(id.slice(0, 9)) : null);

type Called = Pick<ExecutionStart, "id" | "ownId" | "userId">;

/** Whose an execution is; an empty text: nobody's. */
export const executionOwner = ({ userId = "" }: Pick<ExecutionStart, "userId">): string => userId;

/** The row of an id that a client chose. */
export const nameKeyOf = (start: Called): string =>
  executionNameKey(start.id, start.ownId === true ? executionOwner(start) : undefined);

/** What an execution is called among all of this process: an id that is a user's own comes with that user. */
export const nameIn = (id: string, owner: string | undefined): string =>
  owner === undefined ? id : `${owner.length}/${owner}/${id}`;
export const nameOf = (start: Called): string =>
  nameIn(start.id, start.ownId === true ? executionOwner(start) : undefined);

/** What its steps are called where they have an effect: of two users with the same id, one must not be taken for the other. */
export const effectsOf = ({ id, number, ownId }: Pick<ExecutionStart, "id" | "number" | "ownId">): string =>
  ownId === true ? `${id}@${number}` : id;
