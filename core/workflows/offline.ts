/** Operations on executions without an engine, while no process runs them, or beside the one that runs others. */
import { pino } from "pino";
import { CommitConflict, invalid, notFound } from "../lib/errors.ts";
import { requireIdle } from "../storage/idle.ts";
import {
  executionEntry,
  executionIndex,
  executionKey,
  indexedExecution,
  journalKey,
  journalRows,
  OPEN_EXECUTIONS,
  OWN_EXECUTION_NAMES,
  openExecutionKey,
  processKey,
} from "../storage/keys.ts";
import { hasEnded, nameProcess } from "../storage/membership.ts";
import { allRows, rowsOf, sizeOf } from "../storage/ranges.ts";
import { isShared, openIdSpaces, type Row, type Store } from "../storage/store.ts";
import { endInterrupted } from "./cluster/recovery.ts";
import type { WorkflowDefinition } from "./definition/definition.ts";
import { Definitions } from "./definition/definitions.ts";
import {
  type ExecutionStart,
  entriesText,
  executionOwner,
  type OpenRow,
  parseOpenRow,
  type RecordHead,
  recordHead,
  takenOverRowText,
} from "./journal/entries.ts";
import { type FoundExecution, loadExecution, readExecution, startsWithId } from "./journal/load.ts";
import { timeAfter } from "./journal/state.ts";
import { Execution } from "./run/execution.ts";

const ROWS_PER_READ = 100;

/** An execution as named on the command line. */
export interface NamedExecution {
  readonly id: string;
  /** Its owner, needed when several users have an execution with this id. */
  readonly user: string | undefined;
}

interface Unfinished {
  readonly start: RecordHead;
  readonly status: "running" | "suspended";
  /** How often it was recovered since it last recorded progress. */
  readonly recoveries: number;
  /** Total size of its rows. */
  readonly bytes: number;
}

/** The executions that run, or ran when their process ended, then the suspended ones; each group in order of start. */
export async function* unfinishedExecutions(store: Store): AsyncGenerator<Unfinished, void> {
  for await (const rows of allRows(store, { prefix: OPEN_EXECUTIONS }, ROWS_PER_READ)) {
    for (const row of rows) {
      const number = indexedExecution(row.key);
      const { start, recovered } = parseOpenRow(row.value);
      const record = await store.get(executionKey(number));
      const head = start ?? (record === undefined ? null : recordHead(record.value));
      if (head === null) continue;
      const bytes = sizeOf(row) + (await bytesAtRest(store, number, record));
      yield { start: head, status: "running", recoveries: recovered.times, bytes };
    }
  }
  for await (const rows of allRows(store, { prefix: executionIndex("suspended") }, ROWS_PER_READ)) {
    const keys = rows.map(({ key }) => executionKey(indexedExecution(key)));
    for await (const records of rowsOf(store, keys)) {
      for (const record of records) {
        const start = recordHead(record.value);
        const bytes = await bytesAtRest(store, start.number, record);
        yield { start, status: "suspended", recoveries: 0, bytes };
      }
    }
  }
}

async function bytesAtRest(store: Store, number: number, record: Row | undefined): Promise<number> {
  let bytes = record === undefined ? 0 : sizeOf(record);
  const range = { prefix: journalRows(number), longest: 0 };
  for await (const rows of allRows(store, range, ROWS_PER_READ)) for (const row of rows) bytes += sizeOf(row);
  return bytes;
}

/**
 * Ends an execution with an error.
 *
 * @param silence milliseconds without a heartbeat after which a process of a shared store is considered dead
 * @throws Error with a message for the user when it has ended already, or when a process may run it
 */
export async function endExecution(
  store: Store,
  named: NamedExecution,
  reason: string,
  silence?: number,
): Promise<void> {
  const found = await findUnfinished(store, named, silence);
  const { openRow, start } = found;
  const loaded = await loadExecution(store, found);
  if (loaded === null) throw changedMeanwhile(named);
  const outline = await new Definitions(store, new Map(), () => ({ missing: [] })).outline(start.definition);
  const logger = pino({ level: "silent" });
  const environment = {
    store,
    process: nameProcess(),
    shared: true,
    lease: null,
    volatile: false,
    maxBytes: Number.POSITIVE_INFINITY,
  };
  const definition = { outline } as WorkflowDefinition;
  const execution = new Execution(loaded.state, definition, { requestId: "", logger }, environment, { found, loaded });
  await unlessChanged(named, async () => {
    if (openRow !== null) return endInterrupted(execution, reason);
    execution.append(["error", "", timeAfter(execution.state), reason]);
    return execution.writeRecord();
  });
}

/**
 * Resets the count of recoveries, as if the last process had stopped cleanly.
 *
 * @throws Error like `endExecution`, and for a suspended execution, which is never recovered
 */
export async function letRecoverAgain(store: Store, named: NamedExecution, silence?: number): Promise<void> {
  const found = await findUnfinished(store, named, silence);
  const { open, openRow, start } = found;
  if (open === null || openRow === null) throw invalid(`execution ${JSON.stringify(named.id)} is suspended: resume it`);
  const loaded = await loadExecution(store, found);
  if (loaded === null) throw changedMeanwhile(named);
  const entry = JSON.stringify(["interrupt", "", timeAfter(loaded.state)]);
  await unlessChanged(named, () =>
    store.commit({
      put: [
        [openExecutionKey(start.number), takenOverRowText(openRow.value, open.process, { times: 0, progress: 0 })],
        [journalKey(start.number, loaded.rows), entriesText([entry])],
      ],
      expect: [[openRow.key, openRow.revision]],
    }),
  );
}

async function findUnfinished(store: Store, named: NamedExecution, silence?: number): Promise<FoundExecution> {
  const found = await findNamed(store, named);
  if (found.open !== null) await requireNobodyRuns(store, found.open, silence);
  else if (!(await isSuspended(store, found.start)))
    throw invalid(`execution ${JSON.stringify(named.id)} is over: it can be replayed from any of its steps`);
  return found;
}

/** @throws ServiceError */
export async function findNamed(store: Store, { id, user }: NamedExecution): Promise<FoundExecution> {
  const quoted = JSON.stringify(id);
  const all = await startsWithId(store, await openIdSpaces(store, false, OWN_EXECUTION_NAMES), id);
  const starts = all.filter((start) => user === undefined || executionOwner(start) === user);
  if (starts.length > 1) throw invalid(`several users have an execution ${quoted}: say whose with --user`);
  const found = starts[0] === undefined ? null : await readExecution(store, starts[0].number, id);
  if (found === null) throw notFound(`there is no execution ${quoted}`);
  return found;
}

const isSuspended = async (store: Store, { at, number }: ExecutionStart): Promise<boolean> =>
  (await store.get(executionIndex("suspended") + executionEntry(at, number))) !== undefined;

/** Only a shared store can be in use at the same time: there the lease of the process tells whether it lives. */
async function requireNobodyRuns(store: Store, { process }: OpenRow, silence?: number): Promise<void> {
  if (!isShared(store)) return;
  if (hasEnded(process) || (await store.get(processKey(process))) === undefined) return;
  await requireIdle(store, silence);
}

async function unlessChanged(named: NamedExecution, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    throw error instanceof CommitConflict ? changedMeanwhile(named) : error;
  }
}

const changedMeanwhile = ({ id }: NamedExecution) =>
  invalid(`execution ${JSON.stringify(id)} has changed meanwhile: a process may run it`);
