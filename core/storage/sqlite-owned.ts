/** What commands do with a SQLite file that no service uses meanwhile. */
import { open, stat } from "node:fs/promises";
import { messageOf } from "../lib/errors.ts";
import { type NamedFile, vacuumInto } from "./sqlite-backup.ts";
import { explainSqlite, lockFile, realFile } from "./sqlite-lock.ts";
import { removeSqliteFile, replaceSqliteFile, withSqliteConnection } from "./sqlite-replace.ts";
import { type SqliteLayout, sqliteErrorCode } from "./sqlite-schema.ts";
import { shrunk } from "./sqlite-shrink.ts";
import { upgradeSqlite } from "./sqlite-upgrade.ts";

/** @throws Error with a message for the user when there is no such file; StoreInUse */
async function owning<T>({ file, where }: NamedFile, work: (real: string) => Promise<T>): Promise<T> {
  // Opening it would create it.
  await stat(file).catch((error) => {
    throw new Error(`${where} cannot be read: ${messageOf(error)}`, { cause: error });
  });
  const real = await realFile(file, where);
  const unlock = await lockFile(real, where);
  try {
    return await work(real);
  } catch (error) {
    if (!/^SQLITE_/.test(sqliteErrorCode(error))) throw error;
    throw new Error(`${where}: ${explainSqlite(error)} (${messageOf(error)})`, { cause: error });
  } finally {
    await unlock();
  }
}

/** @throws StoreInUse */
export const requireUnused = (named: NamedFile): Promise<void> => owning(named, async () => {});

/** @returns whether there was anything to do */
export const migrateSqlite = (
  named: NamedFile,
  { layout, report }: { layout?: SqliteLayout; report(line: string): void },
): Promise<boolean> =>
  owning(named, (file) =>
    withSqliteConnection(file, (connection) =>
      upgradeSqlite(connection, { ...named, file }, { layout, report, upTo: Number.POSITIVE_INFINITY }),
    ),
  );

/**
 * Writes the rows into a new file, without the gaps that deleted ones have left, which then takes the place of the old one.
 * It needs as much disk as the rows take.
 *
 * @returns a sentence about what the file took before and takes now
 */
export const vacuumSqlite = ({ file, where }: NamedFile): Promise<string> =>
  owning({ file, where }, async (real) => {
    const draft = `${real}.vacuum`;
    try {
      await removeSqliteFile(draft);
      const { size: before, mode } = await stat(real);
      // Who may not read the store may not read the new file while it is written.
      await (await open(draft, "wx", mode & 0o777)).close();
      await vacuumInto(real, draft);
      await replaceSqliteFile(draft, real, where);
      return await shrunk(where, before, real);
    } finally {
      await removeSqliteFile(draft);
    }
  });
