/** Brings the vectors of rows into the tables in which pgvector compares them (postgres-vector-sql.ts says what there is). */
import { setTimeout as sleep } from "node:timers/promises";
import type { Pool, QueryConfig } from "pg";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { createTogether } from "./postgres-schema.ts";
import type { Session } from "./postgres-session.ts";
import type { VectorNames } from "./postgres-vector-names.ts";
import { isWalked } from "./postgres-vector-schema.ts";
import {
  createVectorTable,
  fillTable,
  indexRows,
  LARGEST_NUMBER,
  MOST_DIMENSIONS,
  MOST_INDEXED_DIMENSIONS,
  noteDimensions,
  removeOrphans,
  unfilledRows,
  walkOn,
} from "./postgres-vector-sql.ts";
import type { VectorRows } from "./vector-tables.ts";

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

interface Range {
  readonly low: string;
  readonly high: string;
  readonly dimensions: number;
}

export class VectorFiller {
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
  async hasTable(dimensions: number, ask = (statement: QueryConfig) => this.#parts.database.read(statement)) {
    if (this.#tables.has(dimensions)) return true;
    const text = "SELECT to_regclass($1) IS NOT NULL AS found";
    const { rows } = await ask({ text, values: [this.#parts.names.tableOf(dimensions)] });
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
    for (const [name, range] of this.#ranges) {
      await this.#index(range);
      this.#ranges.delete(name);
    }
    this.#isFailing = false;
  }

  /** @returns whether there may be more to do, as in the following ones */
  async #walk(): Promise<boolean> {
    const { names, rows } = this.#parts;
    const walked = await this.#use((session) => session.query({ text: walkOn(names, rows.prefix) }));
    return walked.rows.length > 0 && !isWalked(walked.rows[0]?.value);
  }

  async #fill(): Promise<boolean> {
    let missing: number | undefined;
    let done = 0;
    await this.#use((session) =>
      // Each row is looked up by its key, whatever the planner thinks of a table that was empty just now.
      session.transaction(["SET LOCAL enable_seqscan = off"], async () => {
        const { rows } = await session.query({ text: unfilledRows(this.#parts.names) });
        const orphans = rows.filter(({ stored }) => stored === null).map(({ key }) => key as string);
        const vectors = this.#byDimensions(rows.filter(({ same }) => same === true));
        for (const dimensions of vectors.keys()) {
          if (dimensions > 0 && !(await this.hasTable(dimensions, (asked) => session.query(asked))))
            missing = dimensions;
        }
        if (missing !== undefined) return false;
        for (const [dimensions, found] of vectors) await this.#write(session, dimensions, found);
        if (orphans.length > 0) await session.query({ text: removeOrphans(this.#parts.names), values: [orphans] });
        done = orphans.length + rows.filter(({ same }) => same === true).length;
        return true;
      }),
    );
    if (missing !== undefined) await this.#createTable(missing);
    return missing !== undefined || done > 0;
  }

  /** Key and binary form. Under 0 what pgvector does not take. */
  #byDimensions(rows: readonly Record<string, unknown>[]): Map<number, [key: string, vector: Buffer][]> {
    const found = new Map<number, [string, Buffer][]>();
    for (const { key, value } of rows) {
      const vector = this.#parts.rows.decode(value as string);
      const dimensions = isTaken(vector) ? vector.length : 0;
      const others = found.get(dimensions);
      const one: [string, Buffer] = [key as string, binaryVector(vector)];
      if (others === undefined) found.set(dimensions, [one]);
      else others.push(one);
    }
    return found;
  }

  async #write(session: Session, dimensions: number, vectors: readonly [string, Buffer][]): Promise<void> {
    const { names, extension } = this.#parts;
    if (dimensions > 0) {
      const text = fillTable(names, extension, dimensions, vectors.length);
      await session.query({ text, values: vectors.flat() });
    }
    await session.query({ text: noteDimensions(names), values: [vectors.map(([key]) => key), dimensions] });
  }

  async #createTable(dimensions: number): Promise<void> {
    const { database, names, extension } = this.#parts;
    await createTogether(database, createVectorTable(names, extension, dimensions));
  }

  async #index({ low, high, dimensions }: Range): Promise<void> {
    const { signal } = this.#closing;
    const text = indexRows(this.#parts.names, dimensions);
    while (!signal.aborted) {
      const begun = performance.now();
      const { rowCount } = await this.#use((session) => session.query({ text, values: [low, high] }));
      if (rowCount === 0) return;
      // Half of the time is for others, and new vectors come first.
      await sleep(performance.now() - begun, undefined, { signal }).catch(() => {});
      while (!signal.aborted && (await this.#fill())) {}
    }
  }

  #use<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#parts.database.use(this.#parts.pool, work);
  }
}

/** A number that is not finite is not taken either. */
const isTaken = (vector: Float32Array): boolean =>
  vector.length > 0 && vector.length <= MOST_DIMENSIONS && vector.every((number) => Math.abs(number) <= LARGEST_NUMBER);

/** As pgvector receives its type `vector`: the dimensions in 16 bits, 16 zeros, and the numbers in 32 bits, all big-endian. */
export function binaryVector(vector: Float32Array): Buffer {
  const bytes = Buffer.alloc(4 + vector.byteLength);
  bytes.writeUInt16BE(vector.length);
  for (let index = 0; index < vector.length; index++) bytes.writeFloatBE(vector[index]!, 4 + 4 * index);
  return bytes;
}
