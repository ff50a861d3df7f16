/** Writes a group of commits to PostgreSQL: in one round trip when everything is as they expect. postgres-commit-sql.ts says why that is safe. */
import { setTimeout as sleep } from "node:timers/promises";
import type { QueryResult } from "pg";
import { type Changes, mergeCommits } from "./group.ts";
import { prefixEnd } from "./keys.ts";
import { LAYOUT_VERSION } from "./layout.ts";
import {
  type CommitArguments,
  callCommit,
  clearRange,
  countKept,
  LIST_SEPARATOR,
  moveLane,
  removeRows,
  writeRows,
  wrongRows,
} from "./postgres-commit-sql.ts";
import type { Session } from "./postgres-connections.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { isRefusal, isStatementError, neverFound, rowsChanged } from "./postgres-errors.ts";
import { closeLaneSql, hasMoved, PostgresLane, type Ticket } from "./postgres-lane.ts";
import type { PostgresNames } from "./postgres-names.ts";
import type { Commit } from "./store.ts";

/** Null: everything is written. `lane`, or JSON of the rows that are not as expected: nothing is. */
type Answer = string | null;

/** The changes as PostgreSQL gets them. */
interface Packed extends CommitArguments {
  /** Null: none. */
  readonly cleared: readonly string[] | null;
  readonly wanted: number;
}

interface SentRow {
  readonly key: string;
  readonly text: string;
  readonly revision: number;
}

const NOTHING = "{}";

/** @param stored the expected revisions; null for rows that are expected absent */
function packChanges({ clear, rows }: Changes, stored: ReadonlyMap<string, number | null>): Packed {
  // A commit that clears is alone, and checks before it writes.
  const expected = clear.length > 0 ? new Map<string, number | null>() : stored;
  const sent: SentRow[] = [];
  const added: [string, 1][] = [];
  const removed: string[] = [];
  const kept: string[] = [];
  const rest = new Set(expected.keys());
  for (const { key, kind, value, revision } of rows) {
    if (rest.size > 0) rest.delete(key);
    if (kind === "add") added.push([key, 1]);
    if (kind === "delete") removed.push(key);
    const mustExist = typeof expected.get(key) === "number";
    sent.push({ key, text: value, revision: kind === "delete" ? 0 : mustExist ? -revision : revision });
  }
  for (const key of rest) {
    (expected.get(key) === null ? removed : kept).push(key);
    sent.push({ key, text: "", revision: 0 });
  }
  return {
    cleared: clear.length === 0 ? null : clear,
    keys: sent.map(({ key }) => key).join(LIST_SEPARATOR),
    texts: sent.map(({ text }) => text).join(LIST_SEPARATOR),
    revisions: sent.map(({ revision }) => revision).join(LIST_SEPARATOR),
    expected: stored.size === 0 ? NOTHING : JSON.stringify(Object.fromEntries(stored)),
    added: added.length === 0 ? NOTHING : JSON.stringify(Object.fromEntries(added)),
    removed: removed.join(LIST_SEPARATOR),
    kept: kept.join(LIST_SEPARATOR),
    wanted: sent.length,
  };
}

/** One statement. `ending` is told when the commit is on its way. */
type Send = (session: Session, ticket: Ticket, packed: Packed, ending: () => void) => Promise<Answer>;

function sendByCall(name: string): Send {
  const text = callCommit(name);
  return async (session, { lane, from, to }, packed, ending) => {
    const { cleared, keys, texts, revisions, expected, added, removed, kept, wanted } = packed;
    ending();
    const { rows } = await session.query({
      name: "penstock-commit",
      text,
      values: [lane, from, to, LAYOUT_VERSION, cleared, keys, texts, revisions, expected, added, removed, kept, wanted],
    });
    return rows[0]?.answer as Answer;
  };
}

/** The same in a transaction of four to seven statements. */
function sendInSteps(names: PostgresNames): Send {
  const texts = {
    wrong: wrongRows(names, { expected: "$1::jsonb" }),
    clear: clearRange(names, "$1", "$2"),
    write: writeRows(names, {
      keys: "$1::text",
      texts: "$2::text",
      revisions: "$3::text",
      expected: "$4::jsonb",
      added: "$5::jsonb",
    }),
    keep: countKept(names, { kept: "$1::text", expected: "$2::jsonb" }),
    remove: removeRows(names, { removed: "$1::text", expected: "$2::jsonb" }),
  };
  return async (session, { lane, from, to }, packed, ending) => {
    const run = (name: keyof typeof texts, ...values: unknown[]): Promise<QueryResult> =>
      session.query({ name: `penstock-${name}`, text: texts[name], values });
    const count = async (result: Promise<QueryResult>) => Number((await result).rows[0]?.count);
    let answer: Answer = null;
    const first = [
      `SELECT ${packed.cleared === null ? names.shared : names.alone}`,
      moveLane(names, `'${lane}'`, `'${from}'`, `'${to}'`, `'${LAYOUT_VERSION}'`),
    ];
    await session.transaction(first, async ([, moved]) => {
      const wrong = packed.expected === NOTHING ? null : (await run("wrong", packed.expected)).rows[0]?.wrong;
      answer = (wrong ?? (moved?.rowCount === 1 ? null : "lane")) as Answer;
      if (answer !== null) return false;
      for (const prefix of packed.cleared ?? []) await run("clear", prefix, prefixEnd(prefix));
      const expected = packed.cleared === null ? packed.expected : NOTHING;
      let found = await count(run("write", packed.keys, packed.texts, packed.revisions, expected, packed.added));
      if (packed.kept !== "") found += await count(run("keep", packed.kept, expected));
      if (packed.removed !== "") found += (await run("remove", packed.removed, expected)).rowCount ?? 0;
      if (found !== packed.wanted) throw rowsChanged();
      ending();
      return true;
    });
    return answer;
  };
}

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
  async function write(session: Session, ticket: Ticket, packed: Packed) {
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
