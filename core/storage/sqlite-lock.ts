/**
 * Lets only one process use a SQLite file, since revisions and caches know only the writes of their own process. The lock is an open
 * exclusive transaction on a second file, so that the operating system releases it however the process ends.
 */
import KeyvSqlite from "@keyv/sqlite";
import { sqliteErrorCode } from "./sqlite-connection.ts";
import { explainSqlite } from "./sqlite-failure.ts";

/** A process that is just ending may still hold the lock. */
const LOCK_TIMEOUT_MS = 1_000;

/**
 * @param file absolute path of the database
 * @returns releases the lock
 * @throws Error with a message for the user when another process holds it
 */
export async function lockFile(file: string, where: string): Promise<() => Promise<void>> {
  const lock = new KeyvSqlite({ uri: `${file}.lock`, table: "lock", busyTimeout: LOCK_TIMEOUT_MS });
  try {
    await lock.query("BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close().catch(() => {});
    if (sqliteErrorCode(error) !== "SQLITE_BUSY") {
      throw new Error(`${where} cannot be opened: ${explainSqlite(error)} (${file}.lock)`, { cause: error });
    }
    throw new Error(
      `${where} is in use by another process, which holds ${file}.lock: stop that one, or give this one a store of its own`,
      { cause: error },
    );
  }
  return () => lock.close();
}
