/** What is done with a group of commits while the disk is full, or has failed. */
import { unavailable } from "../lib/errors.ts";
import type { Refusal } from "./health.ts";
import { sqliteErrorCode } from "./sqlite-connection.ts";
import type { SqliteReserve } from "./sqlite-reserve.ts";
import { type SqliteWriter, UnknownOutcome } from "./sqlite-write.ts";
import type { Commit } from "./store.ts";

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
      const refusal = refusalOf(await refused(error), true);
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
      return group.map(() => refusalOf(refusal, false));
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

function refusalOf(refusal: Refusal, deletes: boolean): Error {
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
