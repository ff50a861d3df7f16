/** Damage in a SQLite file: pages that another program or the disk has overwritten. */
import { type SqliteConnection, sqliteErrorCode } from "./sqlite-schema.ts";

/** Whether a statement met a page that makes no sense. Most statements meet none, and work on. */
export const isDamage = (error: unknown): boolean => /^SQLITE_(CORRUPT|NOTADB)/.test(sqliteErrorCode(error));

/** What SQLite finds wrong may be a text of many lines. */
const MAX_FINDING = 200;

/** Reads every page. @returns the first thing that is wrong, in one line; null when nothing is */
export async function findDamage(connection: SqliteConnection): Promise<string | null> {
  try {
    const [row] = await connection.query<{ quick_check: string }>("PRAGMA quick_check(1)");
    const found = row?.quick_check ?? "the check gave no result";
    return found === "ok" ? null : found.replace(/\s+/g, " ").slice(0, MAX_FINDING);
  } catch (error) {
    if (isDamage(error)) return (error as Error).message;
    throw error;
  }
}
