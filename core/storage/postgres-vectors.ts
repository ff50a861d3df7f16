/** Vectors that PostgreSQL compares by itself, with the extension pgvector. */
import type { Logger } from "pino";
import { prefixEnd } from "./encoding.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { isGone } from "./postgres-errors.ts";
import { binaryVector, VectorFiller } from "./postgres-vector-fill.ts";
import { vectorNames } from "./postgres-vector-names.ts";
import { isWalked, prepareVectors } from "./postgres-vector-schema.ts";
import { lookAtRange, MOST_DIMENSIONS, nearestKeys, searchSettings } from "./postgres-vector-sql.ts";
import type { NearestKeys, VectorRows, VectorTables } from "./vector-tables.ts";

/** From so many on the index is faster: so many of 512 dimensions are compared in 3 ms. */
const INDEXED_FROM = 5_000;
/** With more of them, the rows are searched elsewhere. */
const MOST_UNFILLED = 1_000;
/** How many the index looks at closely. With fewer, recall is less; more are not possible. */
const LEAST_CANDIDATES = 200;
const MOST_CANDIDATES = 1_000;

interface Options {
  readonly logger: Logger;
  readonly indexedFrom?: number;
}

export function createPostgresVectors(database: PostgresDatabase, options: Options) {
  let opened: Promise<Tables | { problem: string }> | undefined;
  return {
    open: (rows: VectorRows) =>
      (opened ??= openTables(database, rows, options).catch((error: unknown) => {
        // It may work when it is asked for again, as by a reload.
        opened = undefined;
        throw error;
      })),
    async close() {
      const tables = await opened?.catch(() => undefined);
      if (tables !== undefined && "close" in tables) await tables.close();
    },
  };
}

interface Tables extends VectorTables {
  close(): Promise<void>;
}

async function openTables(
  database: PostgresDatabase,
  rows: VectorRows,
  { logger, indexedFrom = INDEXED_FROM }: Options,
): Promise<Tables | { problem: string }> {
  const names = vectorNames(database.names);
  const found = await prepareVectors(database, names, rows.prefix);
  if ("problem" in found) {
    const text = `PostgreSQL: vectors are compared in this process, not in the database: ${found.problem}`;
    if (found.wasUsed) logger.warn(text);
    else logger.info(text);
    return found;
  }
  logger.info(`PostgreSQL: vectors are compared in the database, by pgvector ${found.version}`);
  const { schema: extension } = found;
  const filler = new VectorFiller({
    database,
    pool: database.connections.createPool(1),
    names,
    extension,
    rows,
    logger,
  });
  filler.wake();
  let isFailing = false;

  async function search(prefix: string, vector: Float32Array, limit: number): Promise<NearestKeys | null> {
    const dimensions = vector.length;
    const range = { low: prefix, high: prefixEnd(prefix), dimensions };
    const bounds = [range.low, range.high];
    const table = (await filler.hasTable(dimensions)) ? dimensions : null;
    const looked = await database.read({
      name: `penstock-vectors-look-${table ?? 0}`,
      text: lookAtRange(names, table),
      values: [...bounds, MOST_UNFILLED + 1, indexedFrom],
    });
    const [{ walk, unfilled, large, small } = {}] = looked.rows;
    const waiting = unfilled === null ? [] : String(unfilled).split(" ");
    if (waiting.length > 0) filler.wake();
    if (!isWalked(walk) || waiting.length > MOST_UNFILLED) return null;
    if (table === null) {
      // It may have been made and filled meanwhile.
      return (await filler.hasTable(dimensions)) ? search(prefix, vector, limit) : { keys: [], unfilled: waiting };
    }
    // The driver gives a bigint as text.
    if (Number(small) >= indexedFrom) filler.index(range);
    const values = [...bounds, binaryVector(vector), limit];
    const ask = async (how: "exact" | "indexed") => {
      const text = nearestKeys(names, extension, dimensions, how);
      const candidates = Math.min(Math.max(limit, LEAST_CANDIDATES), MOST_CANDIDATES);
      const settings = how === "exact" ? undefined : searchSettings(candidates);
      const nearest = await database.read({ text, values }, settings);
      return nearest.rows as { key: string; large: boolean }[];
    };
    const isIndexed = Number(large) >= indexedFrom;
    let nearest = await ask(isIndexed ? "indexed" : "exact");
    // The index gives up where too many of others are nearer. Those beside it are no replacement for what it has not found.
    const fromIndex = nearest.filter((row) => row.large).length;
    if (isIndexed && fromIndex < Math.min(limit, Number(large))) nearest = await ask("exact");
    return { keys: nearest.map(({ key }) => key), unfilled: waiting };
  }

  return {
    async nearest({ prefix, vector, limit }) {
      if (vector.length > MOST_DIMENSIONS) return null;
      try {
        const nearest = await search(prefix, vector, limit);
        isFailing = false;
        return nearest;
      } catch (error) {
        // Somebody has dropped the extension, or another process makes its tables anew.
        if (!isGone(error)) throw error;
        filler.forgetTables();
        if (!isFailing)
          logger.warn({ err: error }, "PostgreSQL: pgvector does not work, vectors are compared in this process");
        isFailing = true;
        return null;
      }
    },
    wake: () => filler.wake(),
    idle: () => filler.idle(),
    close: () => filler.close(),
  };
}
