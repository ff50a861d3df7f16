/** Puts a backup in the place of a SQLite file that nobody uses. */
import { copyFile, mkdir, realpath, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { messageOf } from "../lib/errors.ts";
import type { NamedFile } from "./sqlite-backup.ts";
import { findDamage } from "./sqlite-damage.ts";
import { explainSqlite, lockFile, PRIVATE_FOLDER, realFile } from "./sqlite-lock.ts";
import { removeSqliteFile, replaceSqliteFile, withSqliteConnection } from "./sqlite-replace.ts";
import { pendingSqliteSteps, sqliteErrorCode } from "./sqlite-schema.ts";

/**
 * The backup is copied beside the file and checked there; then the copy takes the file's name.
 *
 * @param source an absolute path. It is only read. A log beside it, as with a copy of all files of a stopped service, counts
 * @returns the bytes of the new file
 * @throws Error with a message for the user. The old file is in its place then
 */
export async function restoreSqlite({ file, where }: NamedFile, source: string): Promise<number> {
  const backup = await realpath(source).catch((error) => {
    throw new Error(`${source} cannot be read: ${messageOf(error)}`, { cause: error });
  });
  await mkdir(dirname(file), { recursive: true, mode: PRIVATE_FOLDER });
  const real = await realFile(file, where);
  if (backup === real) throw new Error(`${source} is the file of the store: name a backup`);
  const unlock = await lockFile(real, where);
  const draft = `${real}.restoring`;
  try {
    await removeSqliteFile(draft);
    await copyUnused(backup, draft);
    await checkCopy(draft, source);
    await replaceSqliteFile(draft, real, where);
    return (await stat(real)).size;
  } finally {
    await removeSqliteFile(draft);
    await unlock();
  }
}

/** A file that a service writes meanwhile would be copied half old and half new: its lock is held, where it has one. */
async function copyUnused(source: string, target: string): Promise<void> {
  const isStore = (await stat(`${source}.lock`).catch(() => undefined)) !== undefined;
  const unlock = isStore ? await lockFile(source, source) : async () => {};
  try {
    await copyFile(source, target);
    await copyFile(`${source}-wal`, `${target}-wal`).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
    });
  } finally {
    await unlock();
  }
}

/** @throws Error when the copy is damaged, not of Penstock, or of a newer version. Afterwards it is one file without a log */
async function checkCopy(copy: string, source: string): Promise<void> {
  await withSqliteConnection(copy, async (connection) => {
    const damage = await findDamage(connection);
    if (damage !== null) throw new Error(`${source} is damaged: ${damage}`);
    const tables = await connection.query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'rows'");
    if (tables.length === 0) throw new Error(`${source} is no store of Penstock`);
    // The steps from an older version are made by the next start.
    await pendingSqliteSteps(connection, source);
    await connection.query("PRAGMA journal_mode = DELETE");
  }).catch((error) => {
    if (!/^SQLITE_/.test(sqliteErrorCode(error))) throw error;
    throw new Error(`${source} cannot be used: ${explainSqlite(error)} (${messageOf(error)})`, { cause: error });
  });
}
