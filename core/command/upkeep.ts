/** The commands `migrate` and `vacuum`: maintain the store. */
import { type Invocation, say } from "./invocation.ts";
import { withNamedStore } from "./named-store.ts";

/** Migrates from the layout of an older version to that of this one. */
export const migrate = (invocation: Invocation): Promise<number> =>
  withNamedStore(invocation, async ({ kind, sqlite, url, logger }) => {
    let migrated: boolean;
    if (sqlite !== null) {
      const { migrateSqlite } = await import("../storage/sqlite-owned.ts");
      migrated = await migrateSqlite(sqlite, { report: say });
    } else if (kind === "postgres") {
      const { migratePostgres } = await import("../storage/postgres-upgrade.ts");
      migrated = await migratePostgres(url, { logger, report: say });
    } else throw new Error(`the store is the plugin ${url.split(":", 1)[0]}, which looks after its layout itself`);
    if (!migrated) say("nothing to do: the store has the layout of this version");
    return 0;
  });

/** Returns the space of deleted rows to the file system. */
export const vacuum = (invocation: Invocation): Promise<number> =>
  withNamedStore(
    invocation,
    async ({ kind, sqlite, url }) => {
      if (sqlite === null) {
        const other =
          kind === "postgres" ? "PostgreSQL, which does this by itself" : `the plugin ${url.split(":", 1)[0]}`;
        throw new Error(`the store is ${other}: vacuum is for SQLite`);
      }
      const { vacuumSqlite } = await import("../storage/sqlite-owned.ts");
      say(await vacuumSqlite(sqlite));
      return 0;
    },
    "vacuum",
  );
