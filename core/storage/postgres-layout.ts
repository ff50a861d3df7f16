/** The version of the tables and keys in a database, and what this release does with another one. */

/** Rises with every incompatible change of tables or keys. The release that changes them holds the lock `alone` of postgres-names.ts. */
export const LAYOUT = 2;

/** Its message is for the user. */
export class LayoutError extends Error {}

/** @param found the row `schema` as it is stored */
export function checkLayout(found: unknown): LayoutError | null {
  const layout = Number(found);
  if (layout === LAYOUT) return null;
  const what = `(schema ${layout}; this one ${layout < LAYOUT ? "needs" : "knows"} ${LAYOUT})`;
  return new LayoutError(
    layout < LAYOUT
      ? `it was written by a version before the first release ${what}: name another database`
      : `it was written by a newer version ${what}: run that version, or name another database`,
  );
}
