/** Guards of the engines, each with the change that takes it away. Without it, some case of the engine must go wrong. */
import type { Patch } from "./built.ts";
import type { Engine } from "./engine-cases.ts";

export interface Guard extends Patch {
  /** What nobody takes care of without it. */
  readonly title: string;
  /** Where its absence shows. */
  readonly engine: Engine;
}

const MEMORY = { engine: "memory", file: "core/storage/memory-store.ts" } as const;
const GROUP = { engine: "sqlite", file: "core/storage/group.ts" } as const;
const SEQUENCE = { engine: "sqlite", file: "core/storage/sequence.ts" } as const;
const SQLITE_WRITE = { engine: "sqlite", file: "core/storage/sqlite-write.ts" } as const;
const DATABASE = { engine: "postgres", file: "core/storage/postgres-database.ts" } as const;
const POSTGRES_WRITE = { engine: "postgres", file: "core/storage/postgres-write.ts" } as const;

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
    from: "else await transaction(() => apply(changes));",
    to: "else await apply(changes);",
  },
  {
    engine: "sqlite",
    file: "core/storage/sqlite-schema.ts",
    title: "in SQLite, revisions go on after a restart",
    from: "const first = Math.max(next, reserved);",
    to: "const first = next;",
  },
  {
    engine: "sqlite",
    file: "core/storage/sqlite-store.ts",
    title: "in SQLite, a file that is in use is locked",
    from: "const unlock = await lockFile(file, where);",
    to: "const unlock = async () => {};",
  },
  {
    ...DATABASE,
    title: "in PostgreSQL, a transaction is isolated from those of other processes",
    from: "BEGIN ISOLATION LEVEL SERIALIZABLE;",
    to: "BEGIN ISOLATION LEVEL READ COMMITTED;",
  },
  {
    ...DATABASE,
    title: "in PostgreSQL, a commit whose answer is missing is asked for before it is done again",
    from: "await this.#outcome(transaction) :",
    to: '"aborted" :',
  },
  {
    ...DATABASE,
    title: "in PostgreSQL, a commit whose answer is missing is acknowledged only if it happened",
    from: 'if (done !== null && outcome === "committed") return done.result;',
    to: "if (done !== null) return done.result;",
  },
  {
    ...POSTGRES_WRITE,
    title: "in PostgreSQL, what takes several statements is one transaction",
    from: "  if (changes.rows.length === 0) return;",
    to: '  if (changes.clear.length > 0) await session.query("COMMIT; BEGIN");\n  if (changes.rows.length === 0) return;',
  },
  {
    ...POSTGRES_WRITE,
    title: "in PostgreSQL, every group of commits has revisions of its own",
    from: "nextval('public.penstock_revision')",
    to: "1",
  },
];
