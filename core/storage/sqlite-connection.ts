/** One connection to a SQLite file through Keyv's adapter, which is opened again when it has become unusable. */
import { stat } from "node:fs/promises";
import KeyvSqlite from "@keyv/sqlite";
import { messageOf } from "../lib/errors.ts";

/** After these errors the connection may stay unusable: the file was replaced, or the disk had an error. */
const STALE_CONNECTION = /^SQLITE_(IOERR|READONLY|CANTOPEN|CORRUPT|NOTADB|MISUSE|PROTOCOL)/;

/** The table of Keyv's adapter, which keeps the version of the schema and the revisions: key, value. */
export const SQLITE_META = "penstock";

export interface SqliteConnection {
  /** Runs one statement, after those that were given before, and returns its rows. Rejects with the driver's error. */
  query<T>(sql: string, ...parameters: unknown[]): Promise<T[]>;
  close(): Promise<void>;
}

/** The driver's name of a failure, such as `SQLITE_FULL`. */
export const sqliteErrorCode = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? "");

interface SqliteConnectionOptions {
  /** Absolute path. */
  file: string;
  /** How many milliseconds a statement waits for a lock of another process, such as a backup. */
  busyTimeout: number;
  /** Run in order, every time the connection is opened. */
  pragmas: readonly string[];
}

export async function openSqliteConnection(options: SqliteConnectionOptions): Promise<SqliteConnection> {
  const { file, busyTimeout, pragmas } = options;
  let opening: Promise<KeyvSqlite> | undefined;
  let closed = false;
  let isFirst = true;

  async function open(): Promise<KeyvSqlite> {
    if (!isFirst) await requireFile(file);
    isFirst = false;
    const adapter = new KeyvSqlite({ uri: file, table: SQLITE_META, busyTimeout });
    try {
      // A query must be waiting from the start: the adapter reports a failed opening only to such a query.
      for (const pragma of pragmas) await adapter.query(`PRAGMA ${pragma}`);
    } catch (error) {
      adapter.close().catch(() => {});
      throw error;
    }
    return adapter;
  }

  function current(): Promise<KeyvSqlite> {
    if (closed) throw Object.assign(new Error("the connection is closed"), { code: "SQLITE_MISUSE" });
    if (opening === undefined) {
      opening = open();
      opening.catch(() => {
        opening = undefined;
      });
    }
    return opening;
  }

  async function run<T>(sql: string, parameters: readonly unknown[]): Promise<T[]> {
    const used = current();
    const adapter = await used;
    try {
      return await adapter.query(sql, ...parameters);
    } catch (error) {
      if (STALE_CONNECTION.test(sqliteErrorCode(error)) && opening === used) {
        opening = undefined;
        adapter.close().catch(() => {});
      }
      throw error;
    }
  }

  await current();
  /**
   * Settles with the statement before. SQLite runs one at a time on a connection, whoever waits: the driver ends a statement on the main
   * thread, which would be held there for as long as another one takes.
   */
  let turn: Promise<unknown> = Promise.resolve();
  return {
    query: <T>(sql: string, ...parameters: unknown[]) => {
      const result = turn.then(() => run<T>(sql, parameters));
      turn = result.catch(() => {});
      return result;
    },
    close: async () => {
      closed = true;
      const adapter = await opening?.catch(() => undefined);
      await adapter?.close();
    },
  };
}

/** A connection that is opened anew would make an empty file in the place of one that was moved away. */
async function requireFile(file: string): Promise<void> {
  await stat(file).catch((error) => {
    throw Object.assign(new Error(messageOf(error), { cause: error }), { code: "SQLITE_READONLY_DBMOVED" });
  });
}
