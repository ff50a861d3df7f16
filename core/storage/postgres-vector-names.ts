/** Names of what Penstock makes in a database that has pgvector. */
import type { PostgresNames } from "./postgres-names.ts";

/** In the names: what changes its form gets another number, since processes of several releases work on one database. */
const VERSION = 1;

export interface VectorNames extends PostgresNames {
  readonly notes: string;
  /** Without the schema: what the tables of vectors begin with, and the rows of the meta table that say which there must be. Behind it are the dimensions. */
  readonly tablePrefix: string;
  tableOf(dimensions: number): string;
  /** Function of the trigger. */
  readonly note: string;
  readonly trigger: string;
  /** Row of the meta table: up to which key the rows were noted that had been there before the trigger. */
  readonly walk: string;
}

/** The position of a walk that is through: it sorts after all keys. */
export const WALKED = "~";

export function vectorNames(names: PostgresNames): VectorNames {
  const tablePrefix = `penstock_vectors_${VERSION}_`;
  return {
    ...names,
    notes: `${names.schema}.penstock_vector_notes_${VERSION}`,
    tablePrefix,
    tableOf: (dimensions) => `${names.schema}.${tablePrefix}${dimensions}`,
    note: `${names.schema}.penstock_note_vector_${VERSION}`,
    trigger: `penstock_note_vector_${VERSION}`,
    walk: `vectors_${VERSION}`,
  };
}
