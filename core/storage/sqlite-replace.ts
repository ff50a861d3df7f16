/** Gives a SQLite file new content in one step, with nothing left of the old one's log. */
import { chmod, chown, rename, rm, stat } from "node:fs/promises";
import { publish } from "./durable-file.ts";
import { isDamage } from "./sqlite-damage.ts";
import { openSqliteConnection, type SqliteConnection } from "./sqlite-schema.ts";

const BUSY_TIMEOUT_MS = 2_000;

/** What SQLite keeps beside a file. */
const BESIDE = ["-wal", "-shm", "-journal"] as const;

export async function removeSqliteFile(file: string): Promise<void> {
  for (const ending of ["", ...BESIDE]) await rm(file + ending, { force: true });
}

/** On a connection of its own. */
export async function withSqliteConnection<T>(
  file: string,
  work: (connection: SqliteConnection) => Promise<T>,
): Promise<T> {
  const connection = await openSqliteConnection({ file, busyTimeout: BUSY_TIMEOUT_MS, pragmas: [] });
  try {
    return await work(connection);
  } finally {
    await connection.close();
  }
}

/**
 * Until the last moment the old file is in its place, whole: what its log held was written into it before.
 *
 * @param draft a file without a log, in the same folder
 * @param real as `realFile` gives it, there or not; the caller has its lock
 * @throws Error with a message for the user. The old file is in its place then
 */
export async function replaceSqliteFile(draft: string, real: string, where: string): Promise<void> {
  await likeOld(draft, real);
  await finishLog(real, where);
  await publish(draft, () => rename(draft, real));
}

/** Whoever runs this, the service must be able to use the file as before, and nobody else. */
async function likeOld(draft: string, real: string): Promise<void> {
  const old = await stat(real).catch(() => undefined);
  await chmod(draft, old === undefined ? 0o600 : old.mode & 0o777);
  if (old !== undefined) await chown(draft, old.uid, old.gid).catch(() => {});
}

/** Writes the log of the old file into it, and removes it: SQLite would take it for a log of the new file. */
async function finishLog(real: string, where: string): Promise<void> {
  if ((await stat(real).catch(() => undefined)) !== undefined) {
    const [row] = await withSqliteConnection(real, (connection) =>
      connection.query<{ busy: number }>("PRAGMA wal_checkpoint(TRUNCATE)"),
    ).catch((error) => {
      // Nothing can be saved of a damaged one.
      if (isDamage(error)) return [];
      throw error;
    });
    if (row?.busy === 1) throw new Error(`${where} is being read by another process, such as a backup: wait for it`);
  }
  for (const ending of BESIDE) await rm(real + ending, { force: true });
}
