/** Messages for the errors of SQLite. */
import { sqliteErrorCode } from "./sqlite-connection.ts";

const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [/^SQLITE_READONLY_DBMOVED/, "the file was moved or deleted"],
  [/^SQLITE_FULL/, "the disk is full"],
  [/^SQLITE_(BUSY|LOCKED|PROTOCOL)/, "the file is locked by another process"],
  [/^SQLITE_(READONLY|PERM|AUTH)/, "the file is read-only"],
  [/^SQLITE_CANTOPEN/, "the file cannot be opened"],
  [/^SQLITE_IOERR/, "reading or writing the disk failed"],
  [/^SQLITE_(CORRUPT|NOTADB)/, "the file is damaged, or not a SQLite database"],
  [/^SQLITE_NOMEM/, "there is not enough memory"],
  [/^SQLITE_TOOBIG/, "a value is too large"],
  [/^SQLITE_MISUSE/, "it is closed"],
];

export function explainSqlite(error: unknown): string {
  const code = sqliteErrorCode(error);
  return MEANINGS.find(([pattern]) => pattern.test(code))?.[1] ?? "the database reported an error";
}
