/**
 * One process for each SQLite file: our revisions and caches know only our own writes. The lock is that of an open exclusive
 * transaction on a file beside it, so that the system gives it back when the process ends, whatever ended it.
 */
import KeyvSqlite from "@keyv/sqlite";
import { sqliteErrorCode } from "./sqlite-connection.ts";
import { explainSqlite } from "./sqlite-failure.ts";

/** Milliseconds: a process that is just ending may still hold it. */
const PATIENCE = 1_000;

/**
 * @param file absolute path of the database
 * @returns gives the lock back
 * @throws Error for a person when another process holds it
 */
export async function lockFile(file: string, where: string): Promise<() => Promise<void>> {
  const lock = new KeyvSqlite({ uri: `${file}.lock`, table: "lock", busyTimeout: PATIENCE });
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
