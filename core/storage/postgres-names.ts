/** Names of what Penstock has in a database. All statements use them with the schema, since sessions have no state of ours. */

import { LAYOUT_VERSION } from "./layout.ts";

export interface PostgresNames {
  readonly schema: string;
  readonly table: string;
  readonly sequence: string;
  /** The table of Keyv's adapter (key, value): the version of the layout, and the lanes of processes. */
  readonly meta: string;
  readonly commitFunction: string;
  /** SQL of the lock that every transaction has which writes rows: shared, and alone where it clears a range or changes the layout. */
  readonly shared: string;
  readonly alone: string;
}

export const META = "penstock_meta";

/** The first version that was released; its table has no number in its name. */
const FIRST_VERSION = 2;

/** Of another version is another name: processes of an older release, which are still running, then find no table. */
export const tableOf = (version: number): string => (version === FIRST_VERSION ? "penstock" : `penstock_${version}`);

/** In the name, since processes of several releases work on one database: a function that changes gets another number. */
const COMMIT_FUNCTION_VERSION = 1;

export function postgresNames(schema: string): PostgresNames {
  const inSchema = (name: string) => `"${schema}".${name}`;
  // Any numbers that nobody else uses; those of two schemas differ.
  const lock = `(736377, hashtext('penstock ${schema}'))`;
  return {
    schema: `"${schema}"`,
    table: inSchema(tableOf(LAYOUT_VERSION)),
    sequence: inSchema("penstock_revision"),
    meta: inSchema(META),
    commitFunction: inSchema(`penstock_commit_${LAYOUT_VERSION}_${COMMIT_FUNCTION_VERSION}`),
    shared: `pg_advisory_xact_lock_shared${lock}`,
    alone: `pg_advisory_xact_lock${lock}`,
  };
}
