/** A SQLite file with very many executions of workflows, written row by row like the engine does, and the requests for it. */
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { pino } from "pino";
import { EXECUTION_SEQUENCE, executionKey, journalKey, encodeNumber as numberPart } from "../core/storage/keys.ts";
import { openSqliteStore } from "../core/storage/sqlite-store.ts";
import type { Outline, StepOutline } from "../core/workflows/definition/definition.ts";
import {
  type ExecutionStart,
  type ExecutionStatus,
  entriesText,
  type JournalEntry,
  recordRowText,
} from "../core/workflows/journal/entries.ts";
import { indexKeys } from "../core/workflows/journal/index-rows.ts";
import { executionRecord } from "../core/workflows/journal/record.ts";
import { stateFromJournal } from "../core/workflows/journal/state.ts";
import { MARKER, numeral } from "./numbers.ts";
import { enveloped } from "./replies.ts";
import type { HttpScenario } from "./scenarios.ts";

/** Executions per user. */
const EACH_USER = 50;
const PAGE = 20;
/** Start of the first execution; each of the others starts a second later than the previous one. */
const BEGAN = Date.parse("2026-01-01T00:00:00Z");
const APART = 1_000;
/** Executions in one commit. */
const WAVE = 1_000;

const FINISHED = "s/bench";

const atOf = (index: number): number => BEGAN + index * APART;
const instant = (index: number): string => new Date(atOf(index)).toISOString();

/** One in ten waits, one in a hundred has failed. */
const statusOf = (index: number): ExecutionStatus =>
  index % 10 === 3 ? "suspended" : index % 100 === 5 ? "error" : "completed";

const step = (id: string, index: number): [string, StepOutline] => [
  id,
  { path: id, id, name: id, type: "andThen", index, order: index, parents: [] },
];
const OUTLINE: Outline = new Map([step("total", 0), step("shape", 1), step("rate", 2)]);

/** Requests that read, and one for something that no index has. */
export function executionScenarios(count: number): HttpScenario[] {
  const users = Math.floor(count / EACH_USER);
  const middle = Math.floor(count / 2);
  const get = (name: string, title: string, query: string, check: (one: Record<string, unknown>) => boolean) => ({
    kind: "http" as const,
    service: "workflow" as const,
    aim: { measure: "requests/s" as const },
    method: "GET" as const,
    body: null,
    name,
    title,
    path: `/workflows/executions?limit=${PAGE}${query}`,
    check: enveloped((data) => {
      const page = data as unknown as Record<string, unknown>[];
      return page.length === PAGE && page.every(check) ? null : `${page.length} executions, or others`;
    }),
  });
  return [
    get("newest", `newest ${PAGE}`, "", () => true),
    get("workflow", "of a workflow", "&workflowId=expense", (one) => one.workflowId === "expense"),
    get("status", "of a status", "&status=suspended", (one) => one.status === "suspended"),
    {
      ...get("user", "of a user", `&userId=user-${MARKER}`, (one) => String(one.userId).startsWith("user-")),
      numbers: { below: users, pick: "random" },
    },
    get(
      "time",
      "of a time",
      `&workflowId=expense&status=completed&from=${instant(middle - 200)}&to=${instant(middle)}`,
      (one) => one.status === "completed" && String(one.createdAt) <= instant(middle),
    ),
    get("offset", "after 200 others", "&offset=200", () => true),
    get("metadata", "with metadata that half of them have", "&metadata.parity=even", () => true),
  ];
}

function rowsOf(index: number): [string, string][] {
  const number = index + 1;
  const at = atOf(index);
  const status = statusOf(index);
  const start: ExecutionStart = {
    id: `${numberPart(number)}-${String(number).padStart(16, "0")}`,
    number,
    workflowId: "expense",
    workflowName: "Expense",
    definition: "bench",
    at,
    input: { employee: "Ada", amount: 100 },
    context: {},
    state: {},
    userId: `user-${numeral(Math.floor(index / EACH_USER))}`,
    metadata: { parity: index % 2 === 0 ? "even" : "odd" },
  };
  const groups = entriesOf(status, at);
  const [first, journal, tail] = groups.map((group) => entriesText(group.map((entry) => JSON.stringify(entry))));
  const record = executionRecord(stateFromJournal(start, groups.flat()), OUTLINE);
  const put: [string, string][] = [
    [executionKey(number), recordRowText(record, JSON.stringify(start), first!, 1, tail!)],
    [journalKey(number, 0), journal!],
  ];
  const ended = status === "suspended" ? "0" : String(at + 5);
  for (const key of indexKeys(start, status)) put.push([key, ended]);
  return put;
}

/** The entries that are committed with the start, in the journal, and with the record. */
function entriesOf(status: ExecutionStatus, at: number): [JournalEntry[], JournalEntry[], JournalEntry[]] {
  const total: JournalEntry = ["done", "total", at + 1, { employee: "Ada", amount: 100, total: 120 }];
  const shape: JournalEntry[] = [
    ["begin", "shape", at + 1, "total"],
    ["done", "shape", at + 1, { amount: 120, who: "Ada" }],
    ["begin", "rate", at + 2, "shape"],
  ];
  const last: Record<string, JournalEntry[]> = {
    suspended: [
      ["wait", "rate", at + 5, "Manager approval needed", null],
      ["suspend", "rate", at + 5, "Manager approval needed", null],
    ],
    error: [
      ["fail", "rate", at + 5, "it broke"],
      ["error", "rate", at + 5, "it broke"],
    ],
    completed: [
      ["done", "rate", at + 5, { sum: 121 }],
      ["end", "", at + 5, { sum: 121 }],
    ],
  };
  return [[["begin", "total", at, ""]], [total, ...shape], last[status]!];
}

/** Writes the file, unless it exists and is complete. Resolves when it is closed. */
export async function buildExecutions(file: string, count: number, say: (line: string) => void): Promise<void> {
  mkdirSync(dirname(file), { recursive: true });
  const open = () =>
    openSqliteStore({ file, where: file, synchronous: "normal", logger: pino({ level: "warn" }, pino.destination(2)) });
  if (existsSync(file)) {
    const store = await open();
    const finished = await store.get(FINISHED);
    await store.close();
    if (finished?.value === String(count)) return;
    for (const suffix of ["", "-wal", "-shm"]) rmSync(file + suffix, { force: true });
  }
  const store = await open();
  const began = performance.now();
  try {
    for (let from = 0; from < count; from += WAVE) {
      const put: [string, string][] = [];
      for (let index = from; index < Math.min(count, from + WAVE); index += 1) put.push(...rowsOf(index));
      await store.commit({ put });
      const done = from + WAVE;
      if (done % (50 * WAVE) === 0) {
        const rate = Math.round((done * 1_000) / (performance.now() - began)).toLocaleString("en-US");
        say(`${done.toLocaleString("en-US")} executions, ${rate} a second`);
      }
    }
    const put: [string, string][] = [
      [EXECUTION_SEQUENCE, String(count + 1)],
      [FINISHED, String(count)],
    ];
    await store.commit({ put });
  } finally {
    await store.close();
  }
}
