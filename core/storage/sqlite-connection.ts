/** One connection to a SQLite file: the adapter of Keyv, opened again when the engine gave it up. */
import KeyvSqlite from "@keyv/sqlite";

/** Beyond these the connection may be unusable for good: the file was replaced, or the disk had an error. */
const STALE = /^SQLITE_(IOERR|READONLY|CANTOPEN|CORRUPT|NOTADB|MISUSE|PROTOCOL)/;

/** Where Keyv's adapter keeps what describes the file: key, value. */
export const SQLITE_META = "penstock";

export interface SqliteConnection {
  /** One statement; its rows. Rejects with the driver's error. */
  query<T>(sql: string, ...parameters: unknown[]): Promise<T[]>;
  close(): Promise<void>;
}

/** The driver's name of a failure, such as `SQLITE_FULL`. */
export const sqliteErrorCode = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? "");

interface SqliteConnectionOptions {
  /** Absolute path. */
  file: string;
  /** Milliseconds that a statement waits for a lock of another process, such as a backup. */
  busyTimeout: number;
  /** Run on every opening, in order. */
  pragmas: readonly string[];
}

export async function openSqliteConnection(options: SqliteConnectionOptions): Promise<SqliteConnection> {
  const { file, busyTimeout, pragmas } = options;
  let opening: Promise<KeyvSqlite> | undefined;
  let closed = false;

  async function open(): Promise<KeyvSqlite> {
    const adapter = new KeyvSqlite({ uri: file, table: SQLITE_META, busyTimeout });
    try {
      // At once, and the first await: the adapter reports a failed opening only to a query that waits for it.
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

  await current();
  return {
    query: async (sql, ...parameters) => {
      const used = current();
      const adapter = await used;
      try {
        return await adapter.query(sql, ...parameters);
      } catch (error) {
        if (STALE.test(sqliteErrorCode(error)) && opening === used) {
          opening = undefined;
          adapter.close().catch(() => {});
        }
        throw error;
      }
    },
    close: async () => {
      closed = true;
      const adapter = await opening?.catch(() => undefined);
      await adapter?.close();
    },
  };
}
