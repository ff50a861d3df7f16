/** Guards of the engines, each with the change that takes it away. Without it, some case of the engine must go wrong. */
import type { Patch } from "./built.ts";
import type { Engine } from "./engine-cases.ts";

interface Guard extends Patch {
  /** What nobody takes care of without it. */
  readonly title: string;
  /** Where its absence shows. */
  readonly engine: Engine;
  /** `seldom`: some ten cases may pass before it does. */
  readonly shows?: "seldom";
}

const MEMORY = { engine: "memory", file: "core/storage/memory-store.ts" } as const;
const GROUP = { engine: "sqlite", file: "core/storage/group.ts" } as const;
const SEQUENCE = { engine: "sqlite", file: "core/storage/sequence.ts" } as const;
const SQLITE_WRITE = { engine: "sqlite", file: "core/storage/sqlite-write.ts" } as const;
const SQLITE_SCHEMA = { engine: "sqlite", file: "core/storage/sqlite-schema.ts" } as const;
/** In steps there is time between two statements, in which others can do something. */
const STEPS = { engine: "postgres in steps" } as const;
const COMMIT_SQL = { ...STEPS, file: "core/storage/postgres-commit-sql.ts" } as const;
const COMMIT = { ...STEPS, file: "core/storage/postgres-write.ts" } as const;
const CALL = { engine: "postgres in one call", file: "core/storage/postgres-commit-sql.ts" } as const;
const LANE = { engine: "postgres in one call", file: "core/storage/postgres-lane.ts" } as const;
const POSTGRES_WRITE = { engine: "postgres in one call", file: "core/storage/postgres-write.ts" } as const;

// biome-ignore-start lint/suspicious/noTemplateCurlyInString: pieces of the source
export const GUARDS: readonly Guard[] = [
  {
    ...MEMORY,
    title: "in memory, a row that is expected to be absent is looked for",
    from: "filter(([key, wanted]) => (",
    to: "filter(([key, wanted]) => wanted !== null && (",
  },
  {
    ...MEMORY,
    title: "in memory, every commit has a revision of its own",
    from: "    revision++;\n",
    to: "",
  },
  {
    ...GROUP,
    title: "an expected revision is compared with the stored one",
    from: "return (stored.get(key) ?? null) === wanted;",
    to: "return stored.has(key) === (wanted !== null);",
  },
  {
    ...GROUP,
    title: "a row that is expected to be absent must not be stored",
    from: "return (stored.get(key) ?? null) === wanted;",
    to: "return wanted === null || stored.get(key) === wanted;",
  },
  {
    ...GROUP,
    title: "what an earlier commit of the group wrote counts for an expectation",
    from: 'if (change !== undefined) return change.kind === "delete" && wanted === null;',
    to: "",
  },
  {
    ...GROUP,
    title: "what an earlier commit of the group cleared counts for an expectation",
    shows: "seldom",
    from: "if (cleared.some((prefix) => key.startsWith(prefix))) return wanted === null;",
    to: "",
  },
  {
    ...GROUP,
    title: "a row that two commits of a group write gets two revisions",
    from: "if (cleared.length > 0 || rewrites(commit, changes)) revision++;",
    to: "",
  },
  {
    ...GROUP,
    title: "a clear takes what earlier commits of the group put under its prefix",
    shows: "seldom",
    from: "for (const key of changes.keys()) if (key.startsWith(prefix)) changes.delete(key);",
    to: "",
  },
  {
    ...GROUP,
    title: "additions of several commits of a group to one counter are added up",
    from: "value: addToCounter(key, change.value, delta), revision };",
    to: "value: String(delta), revision };",
  },
  {
    ...SEQUENCE,
    title: "a block of numbers is reserved only if nobody else has taken it",
    from: ", expect: [[key, row?.revision ?? null]] });",
    to: " });",
  },
  {
    ...SEQUENCE,
    title: "a block of numbers has an end",
    from: "if (next >= end) return undefined;",
    to: "",
  },
  {
    ...SQLITE_WRITE,
    title: "in SQLite, what takes several statements is one transaction",
    shows: "seldom",
    from: "else await transaction(() => apply(changes));",
    to: "else await apply(changes);",
  },
  {
    ...SQLITE_SCHEMA,
    title: "in SQLite, revisions go on after a restart",
    from: "const first = Math.max(next, reserved);",
    to: "const first = next;",
  },
  {
    ...SQLITE_SCHEMA,
    title: "in SQLite, a large value that is replaced is removed",
    from: 'removeLargeValue("UPDATE"),',
    to: "",
  },
  {
    ...SQLITE_SCHEMA,
    title: "in SQLite, a large value is removed with its row",
    from: 'removeLargeValue("DELETE"),',
    to: "",
  },
  {
    ...SQLITE_WRITE,
    title: "in SQLite, a row that gets a small value has no large one any more",
    from: "size = NULL, large_id = NULL, ",
    to: "",
  },
  {
    engine: "sqlite",
    file: "core/storage/sqlite-store.ts",
    title: "in SQLite, a file that is in use is locked",
    shows: "seldom",
    from: "const unlock = await lockFile(file, where);",
    to: "const unlock = async () => {};",
  },
  {
    ...COMMIT_SQL,
    title: "in PostgreSQL, a row is written only if its revision is still the expected one",
    from: "stored.revision = (${expected} ->> stored.key)::bigint)",
    to: "true)",
  },
  {
    ...COMMIT_SQL,
    title: "in PostgreSQL, a row that is expected and not written is compared while it is locked",
    shows: "seldom",
    from: "`(NOT ${expected} ? key OR revision = coalesce((${expected} ->> key)::bigint, 0))`",
    to: "`(${expected} IS NOT NULL)`",
  },
  {
    ...COMMIT_SQL,
    title: "in PostgreSQL, rows are locked in the order of their keys",
    shows: "seldom",
    from: 'ORDER BY key COLLATE "C"',
    to: "ORDER BY random()",
  },
  {
    ...COMMIT,
    title: "in PostgreSQL, a row that must exist and is gone is not made again",
    shows: "seldom",
    from: "mustExist ? -revision : revision",
    to: "revision",
  },
  {
    ...COMMIT,
    title: "in PostgreSQL, a commit that clears a prefix is alone",
    shows: "seldom",
    from: "packed.cleared === null ? names.shared : names.alone",
    to: "names.shared",
  },
  {
    ...COMMIT,
    title: "in PostgreSQL, a commit is undone whose rows were changed before they were locked",
    from: "if (found !== packed.wanted) throw rowsChanged();",
    to: "",
  },
  {
    ...STEPS,
    file: "core/storage/postgres-connections.ts",
    title: "in PostgreSQL, the steps of a commit are one transaction",
    from: "BEGIN ISOLATION LEVEL READ COMMITTED",
    to: "SELECT 1",
  },
  {
    ...CALL,
    title: "in PostgreSQL, a commit that was given up cannot happen later",
    shows: "seldom",
    from: "IF NOT FOUND THEN",
    to: "IF false THEN",
  },
  {
    ...LANE,
    title: "in PostgreSQL, who asks for the fate of a commit prevents it from happening afterwards",
    shows: "seldom",
    from: "`UPDATE ${meta} SET value = split_part(value, ' ', 1) || ' ' || split_part(value, ' ', 2) || ' closed' WHERE key = $1\n     RETURNING value`",
    to: "`SELECT value || ' closed' AS value FROM ${meta} WHERE key = $1`",
  },
  {
    ...POSTGRES_WRITE,
    title: "in PostgreSQL, a commit whose answer is missing is asked for before it is done again",
    from: "const happened = await outcome(ticket);",
    to: "const happened = false;",
  },
  {
    ...POSTGRES_WRITE,
    title: "in PostgreSQL, a commit whose answer is missing is acknowledged only if it happened",
    from: "if (!happened) throw error;",
    to: "",
  },
];
// biome-ignore-end lint/suspicious/noTemplateCurlyInString: pieces of the source
