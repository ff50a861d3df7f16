/** What an error of PostgreSQL, or of the way to it, means. */
import { messageOf } from "../lib/errors.ts";

/** Serialization failure and deadlock: the same transaction may well succeed the next time. */
const CONFLICT = /^(?:40001|40P01)$/;

/** What ends a connection: SQLSTATE classes 08 and 57P, and what sockets say. */
const LOST = /^(?:08...|57P0[1-5]|25P03|ECONNRESET|EPIPE|ETIMEDOUT|ECONNABORTED)$/;
const LOST_MESSAGE = /^(?:Connection terminated|Query read timeout|Client (?:has encountered|was closed))/;

/**
 * Classes that blame a statement or its values, which are ours, and not the state of the server. Everything else (no
 * connection, no disk, shutting down, read-only, no rights, a table that is gone) ends without our doing.
 */
const STATEMENT = /^(?:0A...|22...|23...|42(?!501|P01)...|54...)$/;

const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [CONFLICT, "too many processes write the same rows"],
  [/^(?:ECONNREFUSED|ENOENT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN)$/, "there is no connection to the database"],
  [/^(?:57P03|57P01|57P02)$/, "the database is starting or stopping"],
  [/^53100$/, "the disk of the database is full"],
  [/^53300$/, "the database has too many connections"],
  [/^25006$/, "the database is read-only"],
  [/^(?:28...|42501)$/, "the database refuses the user"],
  [/^3D000$/, "the database does not exist"],
  [/^42P01$/, "a table is gone"],
  [LOST, "the connection to the database was lost"],
];

function postgresErrorCode(error: unknown): string {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === "string" ? code : "";
}

export const isConflict = (error: unknown): boolean => CONFLICT.test(postgresErrorCode(error));

/** The connection is gone. What it was doing may have happened. */
export const isPostgresConnectionLost = (error: unknown): boolean =>
  LOST.test(postgresErrorCode(error)) || LOST_MESSAGE.test(messageOf(error));

/** Whoever waited this long does not wait for a second try. */
const isTimeout = (error: unknown): boolean => /timeout/.test(messageOf(error));

/** Another connection may well do what this one did not. */
export const mayWorkOnAnotherConnection = (error: unknown): boolean =>
  isPostgresConnectionLost(error) && !isTimeout(error);

/** The statement can never succeed with these values. Errors without a code are of our own making, or of a lost connection. */
export const isStatementError = (error: unknown): boolean =>
  STATEMENT.test(postgresErrorCode(error)) || error instanceof TypeError || error instanceof RangeError;

/** For people and for clients: without addresses. */
export function explainPostgres(error: unknown): string {
  const code = postgresErrorCode(error);
  const meaning = MEANINGS.find(([pattern]) => pattern.test(code))?.[1];
  if (meaning !== undefined) return meaning;
  if (isTimeout(error)) return "the database does not answer";
  if (isPostgresConnectionLost(error)) return "the connection to the database was lost";
  return "the database reported an error";
}
