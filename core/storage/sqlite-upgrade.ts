/** Brings a SQLite file of an older layout to the present one, with a backup first. */
import { stat } from "node:fs/promises";
import { backupSqlite, type NamedFile } from "./sqlite-backup.ts";
import {
  pendingSqliteSteps,
  SQLITE_LAYOUT,
  type SqliteConnection,
  sqliteVersion,
  upgradeSqliteSchema,
} from "./sqlite-schema.ts";

/** A larger file is upgraded by a command: nobody expects that a start takes minutes, and needs as much disk again. */
const UPGRADE_AT_START_UP_TO = 256 * 1024 * 1024;

interface UpgradeOptions {
  readonly layout?: typeof SQLITE_LAYOUT;
  /** Bytes of the largest file that is upgraded. */
  readonly upTo?: number;
  /** Told what is done, in lines. */
  report(line: string): void;
}

/**
 * @param file as `realFile` gives it; the caller has its lock
 * @returns whether there was anything to do
 * @throws Error with a message for the user when the file is of a version that this release cannot use, or is too large
 */
export async function upgradeSqlite(
  connection: SqliteConnection,
  { file, where }: NamedFile,
  { layout = SQLITE_LAYOUT, upTo = UPGRADE_AT_START_UP_TO, report }: UpgradeOptions,
): Promise<boolean> {
  const steps = await pendingSqliteSteps(connection, where, layout);
  if (steps.length === 0) return false;
  const version = await sqliteVersion(connection);
  const { size } = await stat(file);
  if (size > upTo) {
    throw new Error(
      `${where} was written by an older version (schema ${version}; this one needs ${layout.version}), ` +
        `and with ${size} bytes it is too large to be upgraded by a start: run penstock migrate`,
    );
  }
  // To the millisecond: a process that dies in this is started again at once.
  const backup = `${file}.schema-${version}-${new Date().toISOString().replace(/[-:.Z]/g, "")}.backup`;
  await backupSqlite({ file, where }, backup);
  report(`${where}: the backup before the upgrade is ${backup}`);
  await upgradeSqliteSchema(connection, steps);
  // The log holds everything that was moved, and would keep that size.
  await connection.query("PRAGMA wal_checkpoint(TRUNCATE)");
  for (const { from, what } of steps) report(`${where}: upgraded from schema ${from} to ${from + 1}: ${what}`);
  return true;
}
