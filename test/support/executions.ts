/** Executions as they stand in a store, made without an engine; and the stores that they stand in. */
import { after, type TestContext } from "node:test";
import {
  executionKey,
  executionNameKey,
  journalKey,
  encodeNumber as numberPart,
  openExecutionKey,
} from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Range, Store } from "../../core/storage/store.ts";
import type { Outline } from "../../core/workflows/definition/definition.ts";
import { expand } from "../../core/workflows/journal/compact-text.ts";
import {
  type ExecutionStart,
  type ExecutionStatus,
  entriesText,
  type JournalEntry,
  openRowText,
  parseOwnId,
  recordRowText,
  reopenedRowText,
} from "../../core/workflows/journal/entries.ts";
import { indexKeys } from "../../core/workflows/journal/index-rows.ts";
import { executionRecord } from "../../core/workflows/journal/record.ts";
import { stateFromJournal } from "../../core/workflows/journal/state.ts";
import { sharedPostgres } from "./postgres.ts";
import { silent } from "./providers.ts";
import { temporaryFolder } from "./storage.ts";

export interface Sample {
  number: number;
  status: ExecutionStatus;
  /** When it began, milliseconds since 1970. */
  at: number;
  /** When it came to rest; default a second later. */
  rested?: number;
  /** Default: one as the engine makes them. */
  id?: string;
  workflowId?: string;
  userId?: string;
  metadata?: Record<string, unknown>;
}

/** One step, `total`. */
const OUTLINE: Outline = new Map([
  ["total", { path: "total", id: "total", name: "Add tax", type: "andThen", index: 0, order: 0, parents: [] }],
]);

export const outlineOf = async () => OUTLINE;

const idOf = (number: number): string => `${numberPart(number)}-${String(number).padStart(16, "0")}`;

export function startOf({
  number,
  at,
  id = idOf(number),
  workflowId = "expense",
  userId,
  metadata,
}: Sample): ExecutionStart {
  return {
    id,
    number,
    workflowId,
    workflowName: workflowId,
    definition: "hash",
    at,
    input: { amount: number },
    context: {},
    state: {},
    ...(userId !== undefined && { userId }),
    ...(metadata !== undefined && { metadata }),
  };
}

const begun = (at: number): JournalEntry[] => [["begin", "total", at, ""]];

function lastOf(status: ExecutionStatus, at: number): JournalEntry[] {
  if (status === "suspended")
    return [
      ["wait", "total", at, "asks", null],
      ["suspend", "total", at, "asks", null],
    ];
  if (status === "error")
    return [
      ["fail", "total", at, "broken"],
      ["error", "total", at, "broken"],
    ];
  if (status === "cancelled") return [["cancel", "", at, "no more"]];
  return [
    ["done", "total", at, { total: 1 }],
    ["end", "", at, { total: 1 }],
  ];
}

const textOf = (entries: readonly JournalEntry[]) => entriesText(entries.map((entry) => JSON.stringify(entry)));

/** What it has as the record. */
export function recordOfSample(sample: Sample): Record<string, unknown> {
  const { status, at, rested = at + 1000 } = sample;
  const entries = status === "running" ? begun(at) : [...begun(at), ...lastOf(status, rested)];
  return JSON.parse(expand(executionRecord(stateFromJournal(startOf(sample), entries), OUTLINE)).join(""));
}

/** The rows of an execution that rests: its first entry in the record row, its second in the journal, the others in the tail. */
export function restRows(sample: Sample): [string, string][] {
  const { status, at, rested = at + 1000, number } = sample;
  const start = startOf(sample);
  const [second, ...tail] = lastOf(status, rested);
  const state = stateFromJournal(start, [...begun(at), second!, ...tail]);
  const value = recordRowText(
    executionRecord(state, OUTLINE),
    JSON.stringify(start),
    textOf(begun(at)),
    1,
    textOf(tail),
  );
  const rows: [string, string][] = [
    [executionKey(number), value],
    [journalKey(number, 0), textOf([second!])],
  ];
  for (const key of indexKeys(start, status)) rows.push([key, String(state.endedAt ?? 0)]);
  if (parseOwnId(start.id) !== number) rows.push([executionNameKey(start.id), String(number)]);
  return rows;
}

/** The rows of an execution that another process runs. */
export function openRows(sample: Sample): [string, string][] {
  const entries = begun(sample.at).map((entry) => JSON.stringify(entry));
  return [[openExecutionKey(sample.number), openRowText("other", JSON.stringify(startOf(sample)), entries)]];
}

/** Puts executions into a store, each in a commit of its own where its revision matters. */
export async function putExecutions(store: Store, samples: readonly Sample[]): Promise<void> {
  await Promise.all(
    samples.map((sample) => store.commit({ put: sample.status === "running" ? openRows(sample) : restRows(sample) })),
  );
}

/** What happens when another process resumes a suspended execution. */
export async function resumeElsewhere(store: Store, sample: Sample): Promise<void> {
  const [, last] = lastOf("suspended", sample.at + 1000);
  await store.commit({
    put: [
      [openExecutionKey(sample.number), reopenedRowText("other")],
      [journalKey(sample.number, 1), textOf([last!])],
      [journalKey(sample.number, 2), textOf([["resume", "total", sample.at + 2000, 1]])],
    ],
    delete: indexKeys(startOf(sample), "suspended"),
  });
}

/** Resumes a suspended execution, and ends it. */
export async function finish(store: Store, sample: Sample): Promise<void> {
  await resumeElsewhere(store, sample);
  const done = restRows({ ...sample, status: "completed", rested: sample.at + 3000 });
  await store.commit({ put: done, delete: [openExecutionKey(sample.number)] });
}

/** A store that calls `between` once after the first scan, and counts the rows that were read. */
export function watchedStore(store: Store, between?: () => Promise<void>): Store & { read: number } {
  let left = between;
  const watched = {
    ...store,
    read: 0,
    async scan(range: Range) {
      const rows = await store.scan(range);
      watched.read += rows.length + (range.skip ?? 0);
      const once = left;
      left = undefined;
      await once?.();
      return rows;
    },
    async getMany(keys: readonly string[]) {
      const rows = await store.getMany(keys);
      watched.read += rows.length;
      return rows;
    },
  };
  return watched;
}

const server = await sharedPostgres();
after(() => server?.close());

interface Engine {
  readonly name: string;
  /** An empty store, closed when the test ends. */
  open(t: TestContext): Promise<Store>;
}

const closed = (t: TestContext, store: Store): Store => {
  t.after(() => store.close());
  return store;
};

/** PostgreSQL is left out, and that is said, where there is no server. */
export const ENGINES: readonly Engine[] = [
  { name: "memory:", open: async () => createMemoryStore() },
  {
    name: "sqlite:",
    async open(t) {
      const folder = await temporaryFolder(t);
      const options = {
        file: `${folder}/test.db`,
        where: "sqlite:test.db",
        synchronous: "normal",
        logger: silent,
      } as const;
      return closed(t, await openSqliteStore(options));
    },
  },
  ...(server === null
    ? []
    : [
        {
          name: "postgres:",
          open: async (t: TestContext) =>
            closed(t, await openPostgresStore(await server.createDatabase(), { logger: silent })),
        },
      ]),
];
