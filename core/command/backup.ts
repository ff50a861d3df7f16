/** The commands `backup` and `restore`: copy the SQLite file of a service, and put a copy back. */
import { resolve } from "node:path";
import type { Invocation } from "./invocation.ts";
import { type NamedStore, withNamedStore } from "./named-store.ts";

/** Copies the file while the service may be running. */
export const backup = (invocation: Invocation): Promise<number> =>
  withNamedStore(invocation, async (named) => {
    const [name] = invocation.rest as [string];
    const file = fileOf(named, "pg_dump");
    const { backupSqlite } = await import("../storage/sqlite-backup.ts");
    const size = await backupSqlite(file, resolve(name));
    process.stdout.write(`${name}: ${size} bytes, a backup of ${file.where}\n`);
    return 0;
  });

/** Replaces the file of a service that is stopped. */
export const restore = (invocation: Invocation): Promise<number> =>
  withNamedStore(invocation, async (named) => {
    const [name] = invocation.rest as [string];
    const file = fileOf(named, "pg_restore");
    const { restoreSqlite } = await import("../storage/sqlite-restore.ts");
    const size = await restoreSqlite(file, resolve(name));
    process.stdout.write(`${file.where}: ${size} bytes, from the backup ${name}\n`);
    return 0;
  });

function fileOf({ kind, sqlite, url }: NamedStore, tool: string): NonNullable<NamedStore["sqlite"]> {
  if (sqlite !== null) return sqlite;
  if (kind === "postgres") throw new Error(`the store is PostgreSQL: use ${tool}, as docs/backup.md shows`);
  throw new Error(`the store is the plugin ${url.split(":", 1)[0]}: use penstock export and penstock import`);
}
