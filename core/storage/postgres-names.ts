/** Names of what Penstock has in a database. All statements use them with the schema, since sessions have no state of ours. */

import { LAYOUT_VERSION } from "./layout.ts";

export interface PostgresNames {
  readonly schema: string;
  readonly table: string;
  /** The table of Keyv's adapter (key, value): the version of the layout, the revisions that are taken, and the lanes of processes. */
  readonly meta: string;
  /** SQL of the node of Citus (its group) that holds the schema, as the catalogs of every node say it. */
  readonly holder: string;
  /** SQL of the lock that every transaction has which writes rows: shared, and alone where it clears a range or changes the layout. */
  readonly shared: string;
  readonly alone: string;
}

export const META = "penstock_meta";

/** The first version that was released; its table has no number in its name. */
const FIRST_VERSION = 2;

/** Of another version is another name: processes of an older release, which are still running, then find no table. */
export const tableOf = (version: number): string => (version === FIRST_VERSION ? "penstock" : `penstock_${version}`);

export function postgresNames(schema: string): PostgresNames {
  const inSchema = (name: string) => `"${schema}".${name}`;
  // Any numbers that nobody else uses; those of two schemas differ.
  const lock = `(736377, hashtext('penstock ${schema}'))`;
  return {
    schema: `"${schema}"`,
    table: inSchema(tableOf(LAYOUT_VERSION)),
    meta: inSchema(META),
    holder: `SELECT groupid FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) WHERE logicalrelid = to_regclass('${inSchema(META)}')`,
    shared: `pg_advisory_xact_lock_shared${lock}`,
    alone: `pg_advisory_xact_lock${lock}`,
  };
}
