/** Reads executions from the store. */
import { invalid, notFound, quoted, ServiceError, unavailable } from "../../lib/errors.ts";
import { executionKey, executionNameKeys, journalRows, openExecutionKey } from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import { findIdPlace, findIdPlaces, type IdSpaces, type Row, type Store } from "../../storage/store.ts";
import {
  type ExecutionStart,
  type ExecutionStatus,
  type JournalEntry,
  type OpenRow,
  parseEntries,
  parseOpenRow,
  parseOwnId,
  parseRecordRow,
  type RecordRow,
  type StepPath,
} from "./entries.ts";
import { Slice } from "./slice.ts";
import { type JournalState, stateFromJournal } from "./state.ts";

const ROWS_PER_READ = 200;
/** How often an execution that changed during the read is read again. None settles and is resumed that often in so short a time. */
const MAX_READS = 20;

/** The rows of an execution that is in the store, whether it runs or not, in this process or another. */
export interface FoundExecution {
  readonly start: ExecutionStart;
  /** Null unless the execution runs. */
  readonly openRow: Row | null;
  /** Null while the execution runs for the first time. */
  readonly recordRow: Row | null;
  /** What these rows say. */
  readonly open: OpenRow | null;
  readonly record: RecordRow | null;
}

/** Selects one of the executions that have the same id. */
export interface ExecutionSelector {
  readonly spaces: IdSpaces;
  /** The user whose own ids are searched; undefined when ids are unique across users. */
  readonly owner: string | undefined;
  matches(start: ExecutionStart): boolean;
}

const ANY_OWNER: ExecutionSelector = {
  spaces: { isolated: false, owned: false },
  owner: undefined,
  matches: () => true,
};

/** @returns null when no execution with this id is selected */
export async function findExecution(
  store: Store,
  id: string,
  selector: ExecutionSelector = ANY_OWNER,
): Promise<FoundExecution | null> {
  const ours = parseOwnId(id);
  const found = ours === null ? null : await readExecution(store, ours, id);
  if (found !== null && selector.matches(found.start)) return found;
  const place = await findIdPlace(store, selector.spaces, executionNameKeys(id), selector.owner);
  const named = place === undefined ? null : await readExecution(store, place.number, id);
  return named !== null && selector.matches(named.start) ? named : null;
}

/** The starts of all executions with an id, of any user: at most `MAX_ID_PLACES` for a chosen id, and one for an engine's id. */
export async function startsWithId(store: Store, spaces: IdSpaces, id: string): Promise<ExecutionStart[]> {
  const places = await findIdPlaces(store, spaces, executionNameKeys(id));
  const ours = parseOwnId(id);
  const numbers = new Set([...(ours === null ? [] : [ours]), ...places.map(({ number }) => number)]);
  const found = await Promise.all([...numbers].map((number) => readExecution(store, number)));
  return found.flatMap((each) => (each?.start.id === id ? [each.start] : []));
}

/** @param id when given, an execution with that number but another id is ignored */
export async function readExecution(store: Store, number: number, id?: string): Promise<FoundExecution | null> {
  const [open, rest] = await store.getMany([openExecutionKey(number), executionKey(number)]);
  const found = foundExecution(open, rest);
  return found === null || (id !== undefined && found.start.id !== id) ? null : found;
}

/** Null when neither row has the start. */
export function foundExecution(openRow: Row | null = null, recordRow: Row | null = null): FoundExecution | null {
  const open = openRow && parseOpenRow(openRow.value);
  const record = recordRow && parseRecordRow(recordRow.value);
  const start = open?.start ?? record?.start;
  return start === undefined ? null : { start, openRow, recordRow, open, record };
}

/** Everything the store has of an execution. */
export interface Loaded {
  readonly state: JournalState;
  readonly entries: readonly JournalEntry[];
  /** Entries that were committed with the start. */
  readonly first: readonly JournalEntry[];
  /** Entries in the record row. Empty while the execution runs. */
  readonly tail: readonly JournalEntry[];
  /** Number of journal rows, and their bytes. */
  readonly rows: number;
  readonly journalBytes: number;
}

/** @returns null when it was resumed or removed meanwhile */
export async function loadExecution(store: Store, found: FoundExecution): Promise<Loaded | null> {
  const { start, open, record } = found;
  const first = firstEntries(found);
  const resting = open === null ? record : null;
  let rows = resting?.rows === 0 ? [] : await readJournal(store, start.number);
  if (resting !== null) {
    if (rows.length < resting.rows) return null;
    // Later rows belong to a run that was resumed after the record row was read.
    rows = rows.slice(0, resting.rows);
  }
  const tail = resting?.tail ?? [];
  const journalBytes = rows.reduce((bytes, { value }) => bytes + Buffer.byteLength(value), 0);
  const entries = [...first];
  const slice = new Slice();
  for (const { value } of rows) {
    while (slice.isOver) await slice.next();
    for (const entry of parseEntries(value)) entries.push(entry);
    slice.add(value.length);
  }
  entries.push(...tail);
  return { state: stateFromJournal(start, entries), entries, first, tail, rows: rows.length, journalBytes };
}

/**
 * Loads everything of an execution, again when it has changed between two reads.
 *
 * @param find reads its rows; null when there is none
 * @param enough whether the entries that are known to exist are among those that were read
 * @throws ServiceError `internal` when rows of its journal are missing
 */
export async function loadWhole(
  store: Store,
  find: () => Promise<FoundExecution | null>,
  enough: (loaded: Loaded) => boolean = () => true,
): Promise<{ found: FoundExecution; loaded: Loaded } | null> {
  for (let tries = 1; ; tries++) {
    const found = await find();
    if (found === null) return null;
    const loaded = await loadExecution(store, found);
    if (loaded !== null && enough(loaded)) return { found, loaded };
    if (tries === MAX_READS) throw incompleteJournal(found.start.id);
  }
}

/** How far a reader has read the entries of an execution: their number, and the key of the last row. */
export interface JournalPosition {
  entries: number;
  rows: number;
  lastRow: string | undefined;
}

export const JOURNAL_BEGIN: JournalPosition = Object.freeze({ entries: 0, rows: 0, lastRow: undefined });

/**
 * The entries after a position, row by row, each with the position after it. Ends with what is on disk.
 *
 * @throws ServiceError `unavailable` when the execution has been removed
 */
export async function* entriesBehind(
  store: Store,
  { number, id }: ExecutionStart,
  position: JournalPosition,
): AsyncGenerator<{ entries: readonly JournalEntry[]; position: JournalPosition }, void> {
  let at = position;
  const read = (entries: readonly JournalEntry[], row: string | undefined) => {
    at = {
      entries: at.entries + entries.length,
      rows: row === undefined ? at.rows : at.rows + 1,
      lastRow: row ?? at.lastRow,
    };
    return { entries, position: at };
  };
  const find = async () => {
    const found = await readExecution(store, number, id);
    if (found === null) throw unavailable("the journal of the execution is gone");
    return found;
  };
  if (at.entries === 0) {
    const first = firstEntries(await find());
    if (first.length > 0) yield read(first, undefined);
  }
  for await (const rows of allRows(store, journalRange(number, at.lastRow), ROWS_PER_READ))
    for (const row of rows) yield read(parseEntries(row.value), row.key);
  const { open, record: rest } = await find();
  if (open !== null || rest === null) return;
  // Otherwise the execution was resumed since, and the tail is in a further row.
  if (rest.rows === at.rows && rest.tail.length > 0) yield read(rest.tail, undefined);
}

/** The entries that were committed with the start. */
export const firstEntries = ({ open, record }: FoundExecution): readonly JournalEntry[] =>
  open?.first ?? record?.first ?? [];

/** The first entries of an execution, up to the number that is known to be on disk. */
export async function readEntries(
  store: Store,
  { number, id }: ExecutionStart,
  count: number,
): Promise<readonly JournalEntry[]> {
  const record = await loadWhole(
    store,
    () => readExecution(store, number, id),
    ({ entries }) => entries.length >= count,
  );
  if (record === null) throw unavailable("the journal of the execution is gone");
  return record.loaded.entries.slice(0, count);
}

export const incompleteJournal = (id: string) =>
  new ServiceError("internal", "the journal of the execution is not complete", { facts: { executionId: id } });

/** Rows of the journal; with `behind`, only those after the row with that key. */
export async function readJournal(store: Store, number: number, behind?: string): Promise<Row[]> {
  const all: Row[] = [];
  for await (const rows of allRows(store, journalRange(number, behind), ROWS_PER_READ)) all.push(...rows);
  return all;
}

const journalRange = (number: number, behind: string | undefined) => ({
  prefix: journalRows(number),
  ...(behind !== undefined && { after: behind }),
});

// The errors that clients get for workflows and executions.

const describeStatus = (status: ExecutionStatus): string => (status === "error" ? "over: it failed" : status);

export const noWorkflow = (id: string) => notFound(`workflow ${quoted(id)} does not exist`);

export const noExecution = (id: string) => notFound(`execution ${quoted(id)} does not exist`);

export const severalUsers = (id: string) =>
  invalid(`several users have an execution ${quoted(id)}: say whose with userId`);

/** @param waiting the steps that can be resumed while the execution runs */
export const notSuspended = (id: string, status: ExecutionStatus, waiting: readonly StepPath[] = []) => {
  const hint = waiting.length === 0 ? "" : `; name in options.stepId which step you mean: ${waiting.join(", ")}`;
  return notFound(`execution ${quoted(id)} is not suspended: it is ${describeStatus(status)}${hint}`);
};

export const alreadyResumed = (path: StepPath) =>
  new ServiceError("conflict", `options.stepId: step ${JSON.stringify(path)} has been resumed already`);

export const alreadyEnded = (status: ExecutionStatus) => invalid(`the execution is already ${describeStatus(status)}`);

export const executionIdTaken = (id: string) =>
  new ServiceError("conflict", `options.executionId: ${quoted(id)} is taken`);

/** The execution settled, but was resumed before the request to suspend it was answered. */
export const resumedMeanwhile = (id: string) =>
  unavailable("the execution has been resumed meanwhile: suspend it again", 1, { executionId: id });

/** The execution is in the store, and continues after a restart or in another process. */
export const stillRunning = (id: string) =>
  unavailable("the execution has been interrupted: it goes on when the server is back", 1, { executionId: id });
