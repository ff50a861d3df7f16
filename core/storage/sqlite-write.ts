/** Writes a group of commits in one transaction of SQLite. */
import { messageOf, unavailable } from "../lib/errors.ts";
import { unpack } from "./bounded-reader.ts";
import { type Change, type Changes, expectedKeys, mergeCommits } from "./group.ts";
import type { Refusal } from "./health.ts";
import { prefixEnd } from "./keys.ts";
import type { SqliteReserve } from "./sqlite-reserve.ts";
import { type Revisions, SQLITE_META, type SqliteConnection, sqliteErrorCode } from "./sqlite-schema.ts";
import type { Commit } from "./store.ts";

const REVISIONS_OF_KEYS = `SELECT group_concat(key || char(31) || revision || char(31), char(30)) AS packed
  FROM rows WHERE key IN (SELECT value FROM json_each(?))`;

/**
 * The parameter is a JSON object by key: a text is put, a number is added, and null deletes (by the trigger of sqlite-schema.ts). All in
 * one statement, since each costs two switches between threads. Adding to a row that is not a counter gives NULL, which the column refuses.
 */
const WRITE = `INSERT INTO rows (key, value, revision) SELECT key, value, ?2 FROM json_each(?1) WHERE true
  ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, size = NULL, large_id = NULL, value = iif(typeof(excluded.value) = 'text', excluded.value,
    iif(CAST(CAST(rows.value AS INTEGER) AS TEXT) = CAST(rows.value AS TEXT), rows.value + excluded.value, NULL))`;

const CLEAR = "DELETE FROM rows WHERE key >= ? AND key < ?";

/** Errors that the content of a commit causes, so that a retry would fail again. */
const CONTENT_ERRORS: ReadonlyMap<string, string> = new Map([
  ["SQLITE_CONSTRAINT", "a row that is added to is not a counter"],
  ["SQLITE_TOOBIG", "a value is too large"],
]);

/**
 * The disk failed at the end of a transaction, so that its rows may be in the log, whole. No reader sees them, and the next transaction is
 * written over them; but when the process ends before that, they are found by the next one.
 */
class UnknownOutcome extends Error {
  /** The driver's name of the failure. */
  readonly code: string;

  constructor(cause: unknown) {
    super(messageOf(cause), { cause });
    this.code = sqliteErrorCode(cause);
  }
}

interface SqliteWriter {
  /**
   * Resolves when the transaction is on disk, with the revision or the error of each commit.
   *
   * @throws UnknownOutcome, after which nothing may be written before `probe` resolves
   */
  write(commits: readonly Commit[]): Promise<readonly (number | Error)[]>;
  /** Rejects when no transaction can be written now. Changes nothing, and what had an unknown outcome did not happen then. */
  probe(): Promise<void>;
  /** Runs work of others between two transactions. */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
}

export function createSqliteWriter(connection: SqliteConnection, revisions: Revisions): SqliteWriter {
  /** Transactions take turns, since statements of two of them on one connection would mix. */
  let turn: Promise<unknown> = Promise.resolve();

  function inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = turn.then(work);
    turn = result.catch(() => revisions.forget());
    return result;
  }

  async function transaction<T>(work: () => Promise<T>): Promise<T> {
    await connection.query("BEGIN IMMEDIATE");
    try {
      const result = await work();
      await ending(connection.query("COMMIT"));
      return result;
    } catch (error) {
      // After some failures SQLite has rolled back by itself, and refuses ROLLBACK: the first error is the one that counts.
      await connection.query("ROLLBACK").catch(() => {});
      throw error;
    }
  }

  async function readRevisions(keys: readonly string[]): Promise<Map<string, number>> {
    const found = new Map<string, number>();
    if (keys.length === 0) return found;
    const [row] = await connection.query<{ packed: string | null }>(REVISIONS_OF_KEYS, JSON.stringify(keys));
    for (const { key, revision } of unpack(row?.packed ?? null)) found.set(key, revision);
    return found;
  }

  async function apply({ clear, rows }: Changes): Promise<void> {
    for (const prefix of clear) await connection.query(CLEAR, prefix, prefixEnd(prefix));
    for (const [revision, written] of byRevision(rows)) await connection.query(WRITE, changesJson(written), revision);
  }

  /**
   * Expected revisions are read before the transaction. That is safe: this process holds the lock of the file, and groups take turns. A
   * single statement is a transaction by itself.
   */
  const writeTogether = (commits: readonly Commit[]) =>
    inTurn(async () => {
      const stored = await readRevisions(expectedKeys(commits));
      const base = await revisions.take(commits.length);
      const { changes, results } = mergeCommits(commits, stored, base);
      if (changes.clear.length === 0 && changes.rows.every(({ revision }) => revision === base))
        await ending(apply(changes));
      else await transaction(() => apply(changes));
      return results;
    });

  /** One by one, in one transaction: all happen but those that are refused, or none does. */
  const writeSeparately = (commits: readonly Commit[]) =>
    inTurn(async () => {
      const base = await revisions.take(commits.length);
      return transaction(async () => {
        const results: (number | Error)[] = [];
        for (const [index, commit] of commits.entries()) {
          await connection.query("SAVEPOINT one");
          try {
            const stored = await readRevisions(expectedKeys([commit]));
            const { changes, results: own } = mergeCommits([commit], stored, base + index);
            await apply(changes);
            results.push(...own);
          } catch (error) {
            results.push(refusalOf(error));
            await connection.query("ROLLBACK TO one");
          }
          await connection.query("RELEASE one");
        }
        return results;
      });
    });

  /** When the content of one commit is refused, it fails alone. */
  async function write(commits: readonly Commit[]): Promise<readonly (number | Error)[]> {
    try {
      return await writeTogether(commits);
    } catch (error) {
      const refusal = refusalOf(error);
      return commits.length === 1 ? [refusal] : writeSeparately(commits);
    }
  }

  return {
    write,
    inTurn,
    probe: () =>
      inTurn(() =>
        transaction(async () => {
          // Large enough to fail on a full disk.
          await connection.query(
            `INSERT OR REPLACE INTO ${SQLITE_META} (key, value) VALUES ('probe', hex(zeroblob(16384)))`,
          );
          await connection.query(`DELETE FROM ${SQLITE_META} WHERE key = 'probe'`);
        }),
      ),
  };
}

/** Of the statement that ends a transaction. */
async function ending<T>(statement: Promise<T>): Promise<T> {
  try {
    return await statement;
  } catch (error) {
    throw /^SQLITE_IOERR/.test(sqliteErrorCode(error)) ? new UnknownOutcome(error) : error;
  }
}

/** @throws the error when it is not about the content of a commit */
function refusalOf(error: unknown): Error {
  const refusal = CONTENT_ERRORS.get(sqliteErrorCode(error));
  if (refusal === undefined) throw error;
  return new Error(refusal, { cause: error });
}

/** There is nearly always only one revision: see `mergeCommits`. */
function byRevision(rows: readonly Change[]): Map<number, Change[]> {
  const groups = new Map<number, Change[]>();
  for (const row of rows) {
    const group = groups.get(row.revision);
    if (group === undefined) groups.set(row.revision, [row]);
    else group.push(row);
  }
  return groups;
}

function changesJson(rows: readonly Change[]): string {
  let json = "";
  for (const { key, kind, value } of rows) {
    const shown = kind === "put" ? JSON.stringify(value) : kind === "add" ? value : "null";
    json += `${json === "" ? "{" : ","}${JSON.stringify(key)}:${shown}`;
  }
  return `${json}}`;
}

// What is done with a group of commits while the disk is full, or has failed.

type Results = readonly (number | Error)[];

interface Parts {
  readonly writer: SqliteWriter;
  readonly reserve: SqliteReserve;
  /** Rejects when the file is not in its place. */
  present(now?: boolean): Promise<void>;
  /** Runs work that shows whether commits can be written. Rejects with ServiceError. */
  tracked<T>(work: () => Promise<T>): Promise<T>;
  /** Deletions were written with room from the reserve. */
  pressed(): void;
}

interface SqliteCommits {
  /** Never rejects. */
  write(group: readonly Commit[]): Promise<Results>;
  /** Rejects when nothing can be written now. */
  check(): Promise<void>;
}

export function createSqliteCommits({ writer, reserve, present, tracked, pressed }: Parts): SqliteCommits {
  /** The newest transaction may have happened. Nothing is written before it is known to have not. */
  let isUnknown = false;

  async function settle(): Promise<void> {
    await present(true);
    await writer.probe();
    isUnknown = false;
  }

  async function writeAll(group: readonly Commit[]): Promise<Results> {
    if (isUnknown) await settle();
    await present();
    try {
      return await writer.write(group);
    } catch (error) {
      if (!(error instanceof UnknownOutcome)) throw error;
      isUnknown = true;
      // The connection is opened anew, and another transaction is written over the one that failed.
      await settle().catch(() => Promise.reject(error));
      throw error.cause;
    }
  }

  /** On a full disk: those that make room are written with the reserve, as long as that lasts. */
  async function writeDeletions(group: readonly Commit[], full: Error): Promise<Results> {
    const deletions = group.filter(makesRoom);
    if (deletions.length === 0) return group.map(() => full);
    await reserve.spend();
    const written = await writeAll(deletions).catch(async (error) => {
      const refusal = commitRefusal(await refused(error), true);
      return deletions.map(() => refusal);
    });
    if (reserve.isSpent()) pressed();
    const results = written.values();
    return group.map((commit) => (makesRoom(commit) ? (results.next().value as number | Error) : full));
  }

  const refused = (error: unknown): Promise<Refusal> =>
    tracked(() => Promise.reject(error)).catch((refusal: Refusal) => refusal);

  async function write(group: readonly Commit[]): Promise<Results> {
    if (reserve.isSpent()) await reserve.keep();
    if (reserve.isSpent()) return writeDeletions(group, await refused(DISK_IS_FULL));
    try {
      return await tracked(() => writeAll(group));
    } catch (error) {
      const refusal = error as Refusal;
      if (isFull(refusal.reason)) return writeDeletions(group, refusal);
      return group.map(() => commitRefusal(refusal, false));
    }
  }

  return {
    write,
    async check() {
      if (reserve.isSpent()) await reserve.keep();
      if (reserve.isSpent()) throw DISK_IS_FULL;
      await settle();
    },
  };
}

const DISK_IS_FULL = Object.assign(new Error("its last room is kept for deletions"), { code: "SQLITE_FULL" });

const isFull = (error: unknown): boolean => sqliteErrorCode(error) === "SQLITE_FULL";

const makesRoom = ({ put = [], delete: removed = [], clear = [], makesRoom }: Commit): boolean =>
  removed.length + clear.length > 0 && (makesRoom === true || put.length === 0);

function commitRefusal(refusal: Refusal, deletes: boolean): Error {
  const { reason } = refusal;
  const more =
    reason instanceof UnknownOutcome
      ? " during the commit, which may have happened"
      : deletes && isFull(reason)
        ? "; to delete, SQLite needs a few MiB for its log: make room for it first"
        : "";
  if (more === "") return refusal;
  return Object.assign(unavailable(refusal.message + more), { reason });
}
