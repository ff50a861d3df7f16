/** Which engine answers in the place of PostgreSQL: those that are known not to do what a store relies on are refused. */
import type { PoolClient } from "pg";
import { isRefusal, Unfit } from "./postgres-errors.ts";
import type { PostgresSettings } from "./postgres-settings.ts";

export interface ServerKind {
  /** The statement that asks a connection where it leads; further columns may follow. */
  readonly look: string;
  readonly neon: boolean;
  readonly citus: boolean;
}

/** By what they answer to `version()`, and behind it by the host. */
const REFUSED: readonly (readonly [RegExp, string])[] = [
  [/^CockroachDB/, "CockroachDB: it has no LISTEN, and its advisory locks do nothing before 26.3"],
  [/-YB-/, "YugabyteDB: it has no LISTEN before 2025.2.3, and nobody has shown that its locks do what commits rely on"],
  [
    /^PostgreSQL [\d.]+ at | [^ .]*\.dsql[.-][^ ]*\.on\.aws$/,
    "Aurora DSQL: it has no LISTEN, no advisory locks and no triggers",
  ],
  [/^(?!PostgreSQL )/, "another engine than PostgreSQL"],
];

/** Of this connection, as every engine can say it. */
const PLAIN = "SELECT pg_backend_pid() AS process, current_setting('transaction_read_only') = 'on' AS \"readOnly\"";
/** The timeline of what is written now: that of the last checkpoint may be the one before a promotion. */
const LINE = `${PLAIN}, pg_is_in_recovery() AS standby, (SELECT system_identifier FROM pg_control_system())::text
  || CASE WHEN pg_is_in_recovery() THEN NULL ELSE '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS line`;

const KIND = `SELECT current_setting('neon.timeline_id', true) IS NOT NULL AS neon,
  EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS citus`;

/** Where the node of a group of Citus is, as settings of a URL, if this one is not it. Zero is the group of the coordinator. */
export const citusElsewhere = (group: string) =>
  `(SELECT nodename || '&port=' || nodeport FROM pg_dist_node WHERE noderole = 'primary' AND groupid = coalesce((${group}), 0)
     AND groupid <> (SELECT groupid FROM pg_dist_local_group)) AS elsewhere`;

/** @throws Unfit when it is refused */
export async function engineOf(client: PoolClient, url: string, settings: PostgresSettings): Promise<ServerKind> {
  const ask = async (text: string) => {
    const { rows } = (await client.query({ text, query_timeout: settings.connectTimeout })) as { rows: object[] };
    return rows[0] as Record<string, unknown>;
  };
  const { version } = await ask("SELECT version() AS version");
  const reason = REFUSED.find(([engine]) => engine.test(`${version} at ${new URL(url).hostname}`))?.[1];
  if (reason !== undefined && !settings.unverified) {
    throw new Unfit(
      `it is ${reason} (${version}). Penstock is tested on PostgreSQL; ?engine=unverified runs it all the same`,
    );
  }
  // Some that are close to PostgreSQL have no WAL, or do not tell.
  const refused = (error: unknown) => {
    if (!isRefusal(error)) throw error;
    return null;
  };
  const look = (await ask(LINE).catch(refused)) === null ? PLAIN : LINE;
  const { neon, citus } = (await ask(KIND).catch(refused)) ?? {};
  return { look, neon: neon === true, citus: citus === true };
}
