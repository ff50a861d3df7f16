/** Writes a group of commits to PostgreSQL: in one round trip when everything is as they expect. */
import { setTimeout as sleep } from "node:timers/promises";
import { mergeCommits } from "./group.ts";
import { packChanges, sendByCall, sendInSteps } from "./postgres-commit.ts";
import type { Session } from "./postgres-connections.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { isRefusal, isStatementError, neverFound } from "./postgres-errors.ts";
import { closeLaneSql, hasMoved, PostgresLane, type Ticket } from "./postgres-lane.ts";
import type { Commit } from "./store.ts";

/** How long, and how often, the server is asked for the fate of a commit whose connection broke. */
const OUTCOME_TIMEOUT_MS = 2_000;
const OUTCOME_PAUSE_MS = 50;
/** Each time something was found changed that others can only change now and then. */
const MAX_ROUNDS = 50;

/** @param commitFunction that of postgres-commit-sql.ts; null where the database has none */
export function createGroupWriter(database: PostgresDatabase, commitFunction: string | null) {
  const { names } = database;
  const send = commitFunction === null ? sendInSteps(names) : sendByCall(commitFunction);
  const lane = new PostgresLane(names);

  /** Once it has thrown, the changes are not written, and will not be. */
  async function write(session: Session, ticket: Ticket, packed: ReturnType<typeof packChanges>) {
    let decided = true;
    try {
      return await send(session, ticket, packed, () => {
        decided = false;
      });
    } catch (error) {
      if (isRefusal(error)) throw error;
      lane.leave();
      if (decided) throw error;
      const happened = await outcome(ticket);
      if (happened === undefined) throw database.uncertain(error);
      if (!happened) throw error;
      return null;
    }
  }

  /** Whether a commit happened. If it did not, it can no longer happen. Undefined when nobody can be asked. */
  async function outcome(ticket: Ticket): Promise<boolean | undefined> {
    const end = performance.now() + OUTCOME_TIMEOUT_MS;
    while (performance.now() < end) {
      const rows = await database.ask({ text: closeLaneSql(names), values: [ticket.lane] });
      if (rows !== undefined) return hasMoved(rows[0]?.value, ticket);
      await sleep(OUTCOME_PAUSE_MS);
    }
    return undefined;
  }

  async function attempt(session: Session, group: readonly Commit[]): Promise<(number | Error)[]> {
    /** Revisions that the database told, because they are not as expected. */
    const known = new Map<string, number | null>();
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const ticket = await lane.ticket(session, group.length);
      const stored = assumedRevisions(group, known);
      const { changes, results } = mergeCommits(group, stored, ticket.base);
      const writesNothing = changes.rows.length === 0 && changes.clear.length === 0;
      // Then all that is assumed was so at one moment.
      if (writesNothing && (known.size > 0 || stored.size === 0)) return results;
      const answer = await write(session, ticket, packChanges(changes, stored));
      if (answer === null) {
        lane.moved(ticket, lastRevision(results, ticket.base));
        return results;
      }
      if (answer === "lane") lane.leave();
      else for (const [key, revision] of Object.entries(JSON.parse(answer))) known.set(key, revision as number | null);
    }
    throw neverFound(MAX_ROUNDS);
  }

  /**
   * Returns the revision of each commit, or its error. When PostgreSQL refuses the content of one commit, the others are written again
   * without it, one by one, so that it fails alone.
   *
   * @throws ServiceError `unavailable`
   */
  async function writeGroup(group: readonly Commit[]): Promise<(number | Error)[]> {
    try {
      return await database.write((session) => attempt(session, group));
    } catch (error) {
      if (!isStatementError(error)) throw error;
      if (group.length === 1) return [error as Error];
    }
    const results: (number | Error)[] = [];
    for (const commit of group) {
      // The commits before it are written already, whatever happens to this one.
      results.push(...(await writeGroup([commit]).catch((error: Error) => [error])));
    }
    return results;
  }

  return writeGroup;
}

/** What the commits expect is taken for true: the first that expects a row says what it is. */
function assumedRevisions(group: readonly Commit[], known: ReadonlyMap<string, number | null>) {
  const assumed = new Map<string, number | null>();
  for (const { expect } of group) {
    if (expect === undefined) continue;
    for (const [key, revision] of expect) {
      if (!assumed.has(key)) assumed.set(key, known.has(key) ? (known.get(key) ?? null) : revision);
    }
  }
  return assumed;
}

function lastRevision(results: readonly (number | Error)[], base: number): number {
  let last = base;
  for (const result of results) if (typeof result === "number" && result > last) last = result;
  return last;
}
