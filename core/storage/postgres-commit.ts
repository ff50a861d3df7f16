/** Sends the changes of a group of commits to PostgreSQL. postgres-commit-sql.ts says what makes them safe. */
import type { QueryResult } from "pg";
import { prefixEnd } from "./encoding.ts";
import type { Changes } from "./group.ts";
import { LAYOUT_VERSION } from "./layout.ts";
import {
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
import { rowsChanged } from "./postgres-errors.ts";
import type { Ticket } from "./postgres-lane.ts";
import type { PostgresNames } from "./postgres-names.ts";

/** Null: everything is written. `lane`, or JSON of the rows that are not as expected: nothing is. */
type Answer = string | null;

/** The changes as PostgreSQL gets them. */
interface Packed {
  /** Null: none. */
  readonly cleared: readonly string[] | null;
  readonly keys: string;
  readonly texts: string;
  readonly revisions: string;
  readonly expected: string;
  readonly added: string;
  readonly removed: string;
  readonly kept: string;
  readonly wanted: number;
}

interface SentRow {
  readonly key: string;
  readonly text: string;
  readonly revision: number;
}

const NOTHING = "{}";

/** @param stored the expected revisions; null for rows that are expected absent */
export function packChanges({ clear, rows }: Changes, stored: ReadonlyMap<string, number | null>): Packed {
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

export function sendByCall(name: string): Send {
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
export function sendInSteps(names: PostgresNames): Send {
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
