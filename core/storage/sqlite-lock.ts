/**
 * Lets only one process use a SQLite file, since revisions and caches know only the writes of their own process. The lock is an open
 * exclusive transaction on a second file, so that the operating system releases it however the process ends.
 *
 * SQLite keeps its log beside the name by which a file was opened. Two names of one file would have two logs, and two locks: the lock is
 * taken for the file itself, and all connections use that name.
 */
import { chmod, open, readlink, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import KeyvSqlite from "@keyv/sqlite";
import { sqliteErrorCode } from "./sqlite-schema.ts";

// Messages for the errors of SQLite.

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

/** Another process has the store. */
export class StoreInUse extends Error {}

/** A process that is just ending may still hold the lock. */
const LOCK_TIMEOUT_MS = 1_000;

/** What users say is for the owner of the process alone. */
const PRIVATE = 0o600;
export const PRIVATE_FOLDER = 0o700;
const EVERYBODY = 0o007;

/** As many as Linux follows. */
const MAX_LINKS = 40;

/**
 * The one name of a file that all its spellings and symbolic links lead to, whether it exists or not.
 *
 * @param file absolute path; its folder exists
 * @throws Error with a message for the user when the file has further names, which cannot be found from here: hard links
 */
export async function realFile(file: string, where: string): Promise<string> {
  let path = file;
  for (let links = 0; ; links++) {
    path = join(await realpath(dirname(path)), basename(path));
    const target = await readlink(path).catch(() => undefined);
    if (target === undefined) break;
    if (links === MAX_LINKS) throw new Error(`${where} cannot be opened: its symbolic links lead in a circle`);
    path = resolve(dirname(path), target);
  }
  // The system's own spelling, where it does not tell upper from lower case.
  const real = await realpath(path).catch(() => path);
  const found = await stat(real).catch(() => undefined);
  if (found?.isFile() && found.nlink > 1) {
    throw new Error(
      `${where} cannot be opened: ${real} has ${found.nlink} names (hard links), and another process may use it by one of the others: ` +
        "keep one name, or make a copy",
    );
  }
  return real;
}

export async function fileId(file: string): Promise<string> {
  const { dev, ino } = await stat(file);
  return `${dev}:${ino}`;
}

/**
 * Makes the file for its owner alone if it does not exist, and closes one that everybody may read, as earlier versions made it, and
 * what SQLite keeps beside it, which else has the same mode. Other modes are somebody's choice. SQLite says what is wrong with a file that cannot be opened.
 */
export async function makePrivate(file: string): Promise<void> {
  const handle = await open(file, "ax", PRIVATE).catch(() => undefined);
  await handle?.close();
  for (const path of [file, `${file}-wal`, `${file}-shm`]) {
    const { mode = 0 } = (await stat(path).catch(() => undefined)) ?? {};
    if ((mode & EVERYBODY) !== 0) await chmod(path, mode & PRIVATE_FOLDER).catch(() => {});
  }
}

/**
 * @param file path of the database, as `realFile` gives it
 * @returns releases the lock
 * @throws Error with a message for the user when another process holds it
 */
export async function lockFile(file: string, where: string): Promise<() => Promise<void>> {
  await makePrivate(`${file}.lock`);
  const lock = new KeyvSqlite({ uri: `${file}.lock`, table: "lock", busyTimeout: LOCK_TIMEOUT_MS });
  try {
    await lock.query("BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close().catch(() => {});
    if (sqliteErrorCode(error) !== "SQLITE_BUSY") {
      throw new Error(`${where} cannot be opened: ${explainSqlite(error)} (${file}.lock)`, { cause: error });
    }
    throw new StoreInUse(
      `${where} is in use by another process, which holds ${file}.lock: stop that one, or give this one a store of its own`,
      { cause: error },
    );
  }
  return () => lock.close();
}
