/** A copy of a SQLite file, made while a service uses it. */
import { lstat, open, rename, rm, stat } from "node:fs/promises";
import { messageOf } from "../lib/errors.ts";
import { publish } from "./durable-file.ts";
import { explainSqlite, realFile } from "./sqlite-lock.ts";
import { openSqliteConnection, sqliteErrorCode } from "./sqlite-schema.ts";
import { SHRINKING } from "./sqlite-shrink.ts";

/** For the moment in which the service opens the file, or ends. */
const BUSY_TIMEOUT_MS = 10_000;

/** A file of SQLite: its absolute path, and its name in messages. */
export interface NamedFile {
  readonly file: string;
  readonly where: string;
}

/**
 * Writes the content of one moment to `target`, which must not exist. The owner's lock is not asked for: this only reads, in one
 * transaction, beside which the owner goes on writing. `VACUUM INTO` reads every row, so that damage is not copied.
 *
 * @returns the bytes of the copy
 * @throws Error with a message for the user. `target` is not there then
 */
export async function backupSqlite({ file, where }: NamedFile, target: string): Promise<number> {
  // Opening it would create it.
  const { mode } = await stat(file).catch((error) => refuse(`${where} cannot be read: ${messageOf(error)}`, error));
  const real = await realFile(file, where);
  const draft = `${target}.${process.pid}.part`;
  try {
    await requireAbsent(target);
    // Who may not read the store may not read its copy. A store that everybody may read has not been opened by this version yet.
    await (await open(draft, "wx", mode & 0o007 ? 0o600 : mode & 0o777)).close();
    await vacuumInto(real, draft).catch((error) => {
      if (!/^SQLITE_/.test(sqliteErrorCode(error))) throw error;
      refuse(`${where} cannot be copied: ${explainSqlite(error)} (${messageOf(error)})`, error);
    });
    await requireAbsent(target);
    await publish(draft, () => rename(draft, target));
    return (await stat(target)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
    throw new Error(`${target} cannot be written: ${messageOf(error)}`, { cause: error });
  } finally {
    for (const ending of ["", "-journal"]) await rm(draft + ending, { force: true });
  }
}

/** The copy gives space back to the disk, as new files do, even when the file that is copied does not. */
export async function vacuumInto(file: string, target: string): Promise<void> {
  const connection = await openSqliteConnection({ file, busyTimeout: BUSY_TIMEOUT_MS, pragmas: [SHRINKING] });
  try {
    await connection.query("VACUUM INTO ?", target);
  } finally {
    await connection.close();
  }
}

export async function requireAbsent(target: string): Promise<void> {
  // A link is something too, wherever it leads.
  const found = await lstat(target).catch(() => undefined);
  if (found !== undefined) throw new Error(`${target} exists already: name a file that does not`);
}

function refuse(message: string, cause: unknown): never {
  throw new Error(message, { cause });
}
