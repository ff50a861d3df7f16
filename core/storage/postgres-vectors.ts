/** Vectors that PostgreSQL compares by itself, with the extension pgvector. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Pool, QueryConfig, QueryResult } from "pg";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { prefixEnd } from "./keys.ts";
import { createTogether, type PostgresDatabase } from "./postgres-database.ts";
import { isGone } from "./postgres-errors.ts";
import { type VectorNames, vectorNames } from "./postgres-vector-names.ts";
import { isWalked, prepareVectors } from "./postgres-vector-schema.ts";
import {
  createVectorTable,
  fillNothing,
  fillTable,
  indexRows,
  LARGEST_NUMBER,
  lookAtRange,
  MOST_DIMENSIONS,
  MOST_INDEXED_DIMENSIONS,
  nearestKeys,
  removeOrphans,
  searchSettings,
  unfilledRows,
  walkOn,
} from "./postgres-vector-sql.ts";
import type { NearestKeys, VectorRows, VectorTables } from "./vector-tables.ts";

// Brings the vectors of rows into the tables in which pgvector compares them (postgres-vector-sql.ts says what there is).

/** What processes without these tables have written is found so soon. */
const INTERVAL_MS = 15_000;
/** Ranges that wait to be indexed; others are asked for again. */
const MOST_RANGES = 1_000;

interface FillerParts {
  readonly database: PostgresDatabase;
  /** Of one connection, for this alone. */
  readonly pool: Pool;
  readonly names: VectorNames;
  /** The schema of pgvector. */
  readonly extension: string;
  readonly rows: VectorRows;
  readonly logger: Logger;
}

interface UnfilledRow {
  readonly key: string;
  /** The driver gives a bigint as text. */
  readonly revision: string;
  readonly gone: boolean;
  readonly value: string | null;
}

interface FoundVector extends Pick<UnfilledRow, "key" | "revision"> {
  readonly vector: Float32Array;
}

interface Range {
  readonly low: string;
  readonly high: string;
  readonly dimensions: number;
}

class VectorFiller {
  readonly #parts: FillerParts;
  readonly #closing = new AbortController();
  readonly #interval = new Interval(
    INTERVAL_MS,
    async () => this.wake(),
    () => undefined,
  );
  /** Ranges to be indexed. */
  readonly #ranges = new Map<string, Range>();
  #running: Promise<void> | null = null;
  #again = false;
  #isFailing = false;
  /** Dimensions that have a table. */
  #tables = new Set<number>();

  constructor(parts: FillerParts) {
    this.#parts = parts;
    this.#interval.start();
  }

  wake(): void {
    this.#again = true;
    if (!this.#closing.signal.aborted) this.#running ??= this.#run();
  }

  /** Takes the vectors of a range into the index. Returns at once. */
  index(range: Range): void {
    const name = `${range.low} ${range.dimensions}`;
    if (range.dimensions > MOST_INDEXED_DIMENSIONS || this.#ranges.has(name) || this.#ranges.size >= MOST_RANGES)
      return;
    this.#ranges.set(name, range);
    this.wake();
  }

  /** Whether there is a table of vectors with so many dimensions. */
  async hasTable(dimensions: number): Promise<boolean> {
    if (this.#tables.has(dimensions)) return true;
    const { database, names } = this.#parts;
    const text = "SELECT to_regclass($1) IS NOT NULL AS found";
    const { rows } = await database.read({ text, values: [names.tableOf(dimensions)] });
    if (rows[0]?.found === true) this.#tables.add(dimensions);
    return rows[0]?.found === true;
  }

  forgetTables(): void {
    this.#tables = new Set();
  }

  async idle(): Promise<void> {
    while (this.#running !== null) await this.#running;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#interval.stop();
    await this.#running;
    await this.#parts.pool.end();
  }

  async #run(): Promise<void> {
    await null;
    while (this.#again && !this.#closing.signal.aborted) {
      this.#again = false;
      await this.#round().catch((error) => this.#failed(error));
    }
    this.#running = null;
  }

  /** Whatever it was, the next round begins anew. The first failure of several is reported. */
  #failed(error: unknown): void {
    this.forgetTables();
    this.#ranges.clear();
    if (this.#isFailing || this.#closing.signal.aborted) return;
    this.#isFailing = true;
    this.#parts.logger.warn({ err: error }, `PostgreSQL: vectors wait to be compared by pgvector: ${messageOf(error)}`);
  }

  async #round(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted && (await this.#walk())) {}
    while (!signal.aborted && (await this.#fill())) {}
    while (!signal.aborted && this.#ranges.size > 0) {
      // In turn, so that nobody waits for the end of a range that is very large.
      for (const [name, range] of this.#ranges) if (!(await this.#index(range))) this.#ranges.delete(name);
    }
    this.#isFailing = false;
  }

  /** @returns whether there may be more to do, as in the following ones */
  async #walk(): Promise<boolean> {
    const { names, rows } = this.#parts;
    const walked = await this.#send({ text: walkOn(names, rows.prefix) });
    return walked.rows.length > 0 && !isWalked(walked.rows[0]?.value);
  }

  async #fill(): Promise<boolean> {
    const { names } = this.#parts;
    const { rows } = await this.#send({ text: unfilledRows(names) });
    const notes = rows as unknown as UnfilledRow[];
    let done = await this.#change(
      removeOrphans(names),
      notes.filter(({ gone }) => gone),
    );
    for (const [dimensions, found] of this.#byDimensions(notes)) {
      if (dimensions === 0) done += await this.#change(fillNothing(names), found);
      else done += await this.#fillTable(dimensions, found);
    }
    // Nothing is done of what another process is just at.
    return done > 0;
  }

  /** Under 0 what pgvector does not take. */
  #byDimensions(notes: readonly UnfilledRow[]): Map<number, FoundVector[]> {
    const found = new Map<number, FoundVector[]>();
    for (const { key, revision, value } of notes) {
      if (value === null) continue;
      const vector = this.#vectorOf(value);
      const dimensions = isTaken(vector) ? vector.length : 0;
      const others = found.get(dimensions);
      const one = { key, revision, vector };
      if (others === undefined) found.set(dimensions, [one]);
      else others.push(one);
    }
    return found;
  }

  /** A row that cannot be read must not keep the others waiting. */
  #vectorOf(value: string): Float32Array {
    try {
      return this.#parts.rows.decode(value);
    } catch {
      return new Float32Array();
    }
  }

  async #fillTable(dimensions: number, found: readonly FoundVector[]): Promise<number> {
    const { database, names, extension } = this.#parts;
    if (!(await this.hasTable(dimensions)))
      await createTogether(database, createVectorTable(names, extension, dimensions));
    const text = fillTable(names, extension, dimensions, found.length);
    const values = found.flatMap(({ key, revision, vector }) => [key, revision, binaryVector(vector)]);
    return (await this.#send({ text, values })).rowCount ?? 0;
  }

  /** @returns how many notes it has changed */
  async #change(text: string, notes: readonly Pick<UnfilledRow, "key" | "revision">[]): Promise<number> {
    if (notes.length === 0) return 0;
    const values = [notes.map(({ key }) => key), notes.map(({ revision }) => revision)];
    return (await this.#send({ text, values })).rowCount ?? 0;
  }

  async #index({ low, high, dimensions }: Range): Promise<boolean> {
    const { signal } = this.#closing;
    if (signal.aborted) return false;
    const begun = performance.now();
    const text = indexRows(this.#parts.names, dimensions);
    const { rowCount } = await this.#send({ text, values: [low, high] });
    if (rowCount === 0) return false;
    // Half of the time is for others, and new vectors come first.
    await sleep(performance.now() - begun, undefined, { signal }).catch(() => {});
    while (!signal.aborted && (await this.#fill())) {}
    return true;
  }

  #send(statement: QueryConfig): Promise<QueryResult> {
    return this.#parts.database.use(this.#parts.pool, (session) => session.query(statement));
  }
}

/** A number that is not finite is not taken either. */
const isTaken = (vector: Float32Array): boolean =>
  vector.length > 0 && vector.length <= MOST_DIMENSIONS && vector.every((number) => Math.abs(number) <= LARGEST_NUMBER);

/** As pgvector receives its type `vector`: the dimensions in 16 bits, 16 zeros, and the numbers in 32 bits, all big-endian. */
function binaryVector(vector: Float32Array): Buffer {
  const bytes = Buffer.alloc(4 + vector.byteLength);
  bytes.writeUInt16BE(vector.length);
  for (let index = 0; index < vector.length; index++) bytes.writeFloatBE(vector[index]!, 4 + 4 * index);
  return bytes;
}

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
