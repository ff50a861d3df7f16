/** The meaning of errors of PostgreSQL, and of the connection to it. */
import { messageOf } from "../lib/errors.ts";
import type { Refusal } from "./health.ts";
import { LAYOUT_VERSION } from "./layout.ts";

/** The database, or what is in it, is not for this release. Its message is for clients. */
export class Unfit extends Error {}

/**
 * A process that runs on finds out that a newer release has upgraded the database.
 * @param found the row `schema` as it is stored
 */
export const checkLayout = (found: unknown): Unfit | null =>
  found === String(LAYOUT_VERSION)
    ? null
    : new Unfit(`a newer version has upgraded the database (schema ${found}; this one knows ${LAYOUT_VERSION})`);

/** The code of our own error when a row has changed between its check and its lock (postgres-commit.ts). */
export const ROWS_CHANGED = "PN001";

const coded = (code: string, message: string): Error => Object.assign(new Error(message), { code });

export const rowsChanged = (): Error => coded(ROWS_CHANGED, "rows have changed");

/** A commit that found its lane or its rows changed each time. */
export const neverFound = (rounds: number): Error => coded("PN002", `a commit was begun ${rounds} times`);

/** As the server itself says it to a statement that writes. */
const READ_ONLY = "25006";

export const readOnly = (): Error =>
  coded(READ_ONLY, "the server takes no writes: it follows another one, or is read-only");
export const olderServer = (): Error => coded("PN003", "the server was replaced by another one");
/** Also of the commit function, on a node of Citus that does not hold the schema. */
export const OTHER_SERVER = "PN004";
export const otherServer = (): Error => coded(OTHER_SERVER, "a connection leads to another server than the others");

/** That, serialization failure and deadlock: the same transaction may well succeed the next time. */
const CONFLICT = /^(?:40001|40P01|PN001)$/;

/** Errors that end a connection: SQLSTATE classes 08 and 57P, and those of sockets. */
const LOST = /^(?:08...|57P0[1-5]|25P03|PN004|ECONNRESET|EPIPE|ETIMEDOUT|ECONNABORTED)$/;
const LOST_MESSAGE = /^(?:Connection terminated|Query read timeout|Client (?:has encountered|was closed))/;

/**
 * Classes of errors in a statement or its values. Everything else (no connection, no disk space, shutting down, read-only, no rights, a
 * missing table) is a state of the server, which may end without a change here.
 */
const STATEMENT = /^(?:0A...|22...|23...|42(?!501|P01)...|54...)$/;

const UNREACHABLE = /^(?:ECONNREFUSED|ENOENT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN)$/;

const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [CONFLICT, "too many processes write the same rows"],
  [/^PN002$/, "the lane of this process, or the rows of a commit, are changed again and again"],
  [UNREACHABLE, "there is no connection to the database"],
  [/^(?:57P03|57P01|57P02)$/, "the database is starting or stopping"],
  [/^53100$/, "the disk of the database is full"],
  [/^55P03$/, "another session keeps rows locked"],
  [/^57014$/, "a statement took too long"],
  [/^08P01$/, "the database, or a proxy before it, refuses the settings of the session"],
  [/^53300$/, "the database has too many connections"],
  [/^25006$/, "the database is read-only"],
  [/^PN003$/, "the database is one that was replaced by another"],
  [/^(?:28...|42501)$/, "the database refuses the user"],
  [/^3D000$/, "the database does not exist"],
  [/^42P01$/, "a table is gone, as when a newer version has upgraded the database"],
  [LOST, "the connection to the database was lost"],
];

/** PgBouncer, with the code of a violation of the protocol. */
const POOLER_FAILS = /^server login has been failing|^pgbouncer cannot connect to server/;

function postgresErrorCode(error: unknown): string {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === "string" ? code : "";
}

export const isConflict = (error: unknown): boolean => CONFLICT.test(postgresErrorCode(error));

/** A pooler does not know a setting that a session begins with. */
export const isRefusedSetting = (error: unknown): boolean =>
  postgresErrorCode(error) === "08P01" && /startup parameter/.test(messageOf(error));

/** The connection was lost. Its last statement may or may not have been executed. */
const isPostgresConnectionLost = (error: unknown): boolean =>
  LOST.test(postgresErrorCode(error)) || LOST_MESSAGE.test(messageOf(error));

/** Whether the connection is of no use any more: a server that takes no writes may do so for ever, while another one does. */
export const endsConnection = (error: unknown): boolean =>
  isPostgresConnectionLost(error) || postgresErrorCode(error) === READ_ONLY;

/** Whether no connection could be made, for a reason that another server, or another try, may not have. */
export const isConnectionFailure = (error: unknown): boolean =>
  endsConnection(error) || UNREACHABLE.test(postgresErrorCode(error)) || /^timeout expired/.test(messageOf(error));

/** SQLSTATE has five characters, as some names of errors of sockets have, which begin with E. */
const SQLSTATE = /^[^E][0-9A-Z]{4}$/;

/** Whether the server itself has refused a statement. After any other error the statement may or may not have been executed. */
export const isRefusal = (error: unknown): boolean =>
  SQLSTATE.test(postgresErrorCode(error)) && !isPostgresConnectionLost(error);

/**
 * A timeout of the driver, after which the caller has waited long enough: there is no second try. What the server ends for taking too
 * long has a code, and an open transaction that it ended was undone: that one may be tried again.
 */
export const isTimeout = (error: unknown): boolean =>
  postgresErrorCode(error) === "" && /timeout/.test(messageOf(error));

/** Whether another connection may succeed where this one failed. */
export const mayWorkOnAnotherConnection = (error: unknown): boolean => endsConnection(error) && !isTimeout(error);

/** Whether the statement can never succeed with these values. */
export const isStatementError = (error: unknown): boolean =>
  STATEMENT.test(postgresErrorCode(error)) || error instanceof TypeError || error instanceof RangeError;

/** Something that a statement names is gone, as after DROP EXTENSION. */
export const isGone = (error: unknown): boolean =>
  isStatementError(error) ||
  (error instanceof Error && postgresErrorCode((error as Partial<Refusal>).reason) === "42P01");

/** A message for logs and clients, without addresses. */
export function explainPostgres(error: unknown): string {
  if (error instanceof Unfit) return error.message;
  if (POOLER_FAILS.test(messageOf(error)))
    return "the pooler cannot log in to the database (server login has been failing)";
  const code = postgresErrorCode(error);
  const meaning = MEANINGS.find(([pattern]) => pattern.test(code))?.[1];
  if (meaning !== undefined) return meaning;
  if (isTimeout(error)) return "the database does not answer";
  if (isPostgresConnectionLost(error)) return "the connection to the database was lost";
  return "the database reported an error";
}
