/** The two ways in which commits go to PostgreSQL: by the function, and in steps where a user may not make it. */
import type { TestContext } from "node:test";
import { pino } from "pino";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { PostgresServer } from "./postgres.ts";

export interface CommitMode {
  readonly name: "in one call" | "in steps";
  /** The name, or the text, of the statement that a commit sends last, and of those before it. */
  readonly last: string;
  readonly earlier: readonly string[];
  /** An empty database on which commits go this way: its URL for Penstock, and for its owner. */
  createDatabase(db: PostgresServer, test?: TestContext): Promise<{ url: string; ownerUrl: string }>;
}

const LIMITED = "penstock_limited";

/** Tables that somebody else has made, and a user who may make nothing. */
async function createLimited(db: PostgresServer, test?: TestContext): Promise<{ url: string; ownerUrl: string }> {
  const ownerUrl = await db.createDatabase(test);
  await (await openPostgresStore(ownerUrl, { logger: pino({ level: "silent" }) })).close();
  await db.query(
    `DO $$ BEGIN CREATE ROLE ${LIMITED} LOGIN PASSWORD '${LIMITED}'; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
     DROP FUNCTION penstock_commit_2_1;
     DELETE FROM penstock_meta WHERE key LIKE 'lane/%';
     REVOKE CREATE ON SCHEMA public FROM PUBLIC;
     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${LIMITED}`,
    ownerUrl,
  );
  const url = new URL(ownerUrl);
  url.username = LIMITED;
  url.password = LIMITED;
  return { url: url.href, ownerUrl };
}

async function create(db: PostgresServer, test?: TestContext): Promise<{ url: string; ownerUrl: string }> {
  const url = await db.createDatabase(test);
  return { url, ownerUrl: url };
}

export const COMMIT_MODES: readonly CommitMode[] = [
  { name: "in one call", last: "penstock-commit", earlier: [], createDatabase: create },
  { name: "in steps", last: "COMMIT", earlier: ["penstock-write"], createDatabase: createLimited },
];
