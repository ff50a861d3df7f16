/** The commands `backup` and `restore`: copy the SQLite file of a service, and put a copy back. */
import { resolve } from "node:path";
import type { Invocation } from "./invocation.ts";
import { type NamedStore, withNamedStore } from "./named-store.ts";

/** Copies the file while the service may be running. */
export const backup = (invocation: Invocation): Promise<number> =>
  withFile(invocation, "pg_dump", async (file, name) => {
    const { backupSqlite } = await import("../storage/sqlite-backup.ts");
    return `${name}: ${await backupSqlite(file, resolve(name))} bytes, a backup of ${file.where}`;
  });

/** Replaces the file of a service that is stopped. */
export const restore = (invocation: Invocation): Promise<number> =>
  withFile(invocation, "pg_restore", async (file, name) => {
    const { restoreSqlite } = await import("../storage/sqlite-restore.ts");
    return `${file.where}: ${await restoreSqlite(file, resolve(name))} bytes, from the backup ${name}`;
  });

/** @param tool that does the same for PostgreSQL @param work resolves to what to print */
const withFile = (
  invocation: Invocation,
  tool: string,
  work: (file: NonNullable<NamedStore["sqlite"]>, name: string) => Promise<string>,
): Promise<number> =>
  withNamedStore(invocation, async ({ kind, sqlite, url }) => {
    if (kind === "postgres") throw new Error(`the store is PostgreSQL: use ${tool}, as docs/backup.md shows`);
    if (sqlite === null)
      throw new Error(`the store is the plugin ${url.split(":", 1)[0]}: use penstock export and penstock import`);
    process.stdout.write(`${await work(sqlite, invocation.rest[0]!)}\n`);
    return 0;
  });
