/**
 * Versions of what is stored: which tables there are, which keys, and what their values look like. How an older version becomes the
 * present one is a list of steps for each engine.
 */

/**
 * Of keys and values, as exports have them, and of the table of PostgreSQL. Rises with every change that an older release would misread.
 * The tables of a SQLite file have a version of their own.
 */
export const LAYOUT_VERSION = 2;

/** How one version becomes the next. It runs in a transaction with all other steps, so that it may fail anywhere. */
export interface LayoutStep<Database> {
  readonly from: number;
  /** For the user: "gives every message its length". */
  readonly what: string;
  apply(database: Database): Promise<void>;
}

export interface StoreLayout<Database> {
  readonly version: number;
  /** One for each version that can be upgraded, in order. */
  readonly steps: readonly LayoutStep<Database>[];
}

/**
 * The steps from the version that was found to the present one.
 *
 * @param where the store in messages, and `instead` what kind of thing could be used in its place
 * @throws Error with a message for the user when no steps lead there
 */
export function pendingSteps<Database>(
  { version, steps }: StoreLayout<Database>,
  found: number,
  { where, instead }: { where: string; instead: string },
): readonly LayoutStep<Database>[] {
  if (found > version) {
    throw new Error(
      `${where} was written by a newer version (schema ${found}; this one knows ${version}): run that version, or name ${instead}`,
    );
  }
  const pending = steps.filter(({ from }) => from >= found);
  if (pending.length !== version - found) {
    throw new Error(
      `${where} was written by a version before the first release (schema ${found}; this one needs ${version}): name ${instead}`,
    );
  }
  return pending;
}
