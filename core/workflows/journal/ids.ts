/**
 * Ids of executions. An id that the engine makes contains the number of the execution, so that no row is needed to find it. An id that
 * a client chose has a row.
 */
import { randomBytes } from "node:crypto";
import { decodeNumber, encodeNumber } from "../../storage/encoding.ts";
import { executionNameKey } from "../../storage/keys.ts";
import type { ExecutionStart } from "./entries.ts";

const OWN_ID = /^[0-9a-z]{9}-[0-9a-f]{16}$/;
/** Random hex digits in an id, so that it cannot be guessed. */
const RANDOM_DIGITS = 16;
/** How many random bytes are made at once: a call for each id would cost more. */
const POOL_BYTES = 4096;

/** Makes the id of the execution with a number. */
export function createExecutionIds(): (execution: number) => string {
  let pool = "";
  let at = 0;
  return (execution) => {
    if (at === pool.length) {
      pool = randomBytes(POOL_BYTES).toString("hex");
      at = 0;
    }
    at += RANDOM_DIGITS;
    return `${encodeNumber(execution)}-${pool.slice(at - RANDOM_DIGITS, at)}`;
  };
}

/** The number in an id that has the engine's format; null for others. A client may have chosen an id of this format. */
export const parseOwnId = (id: string): number | null => (OWN_ID.test(id) ? decodeNumber(id.slice(0, 9)) : null);

type NamedExecution = Pick<ExecutionStart, "id" | "ownId" | "userId">;

/** Id of the user that an execution belongs to; empty when it belongs to none. */
export const executionOwner = ({ userId = "" }: Pick<ExecutionStart, "userId">): string => userId;

/** The key of the row for an id that a client chose. */
export const chosenIdKey = (start: NamedExecution): string =>
  executionNameKey(start.id, start.ownId === true ? executionOwner(start) : undefined);

/** The key of a running execution in this process. With an owner, the id is unique for that user only. */
export const liveKeyFor = (id: string, owner: string | undefined): string =>
  owner === undefined ? id : `${owner.length}/${owner}/${id}`;
export const liveKey = (start: NamedExecution): string =>
  liveKeyFor(start.id, start.ownId === true ? executionOwner(start) : undefined);

/** The prefix of the idempotency keys of its steps. Executions of two users with the same id must have different keys. */
export const idempotencyPrefix = ({ id, number, ownId }: Pick<ExecutionStart, "id" | "number" | "ownId">): string =>
  ownId === true ? `${id}@${number}` : id;
