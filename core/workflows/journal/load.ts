/** Executions as the store has them. */
import { ServiceError, unavailable } from "../../lib/errors.ts";
import { findIdPlace, findIdPlaces, type IdSpaces } from "../../storage/id-spaces.ts";
import { executionKey, executionNameKeys, journalRows, openExecutionKey } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { ExecutionStart, JournalEntry } from "./entries.ts";
import { numberIn } from "./ids.ts";
import { parseEntries, parseOpen, parseRest } from "./rows.ts";
import { type JournalState, stateFromJournal } from "./state.ts";

const ROWS = 200;
/** Reads of one that changes between two looks each time; no execution rests and goes on that often in so short a time. */
const TRIES = 20;

/** An execution that is on record, running or not, here or elsewhere. */
export interface FoundExecution {
  readonly start: ExecutionStart;
  /** Its first row, when it runs. */
  readonly open: Row | null;
  /** Null while it runs for the first time. */
  readonly rest: Row | null;
}

/** Which execution of an id is meant. */
export interface Meant {
  readonly spaces: IdSpaces;
  /** Undefined: an id is one for everybody. */
  readonly owner: string | undefined;
  is(start: ExecutionStart): boolean;
}

const ANYBODYS: Meant = { spaces: { isolated: false, owned: false }, owner: undefined, is: () => true };

/** @returns null when there is none with this id that is meant */
export async function findExecution(store: Store, id: string, meant: Meant = ANYBODYS): Promise<FoundExecution | null> {
  const isMeant = (found: FoundExecution | null) => found !== null && found.start.id === id && meant.is(found.start);
  const ours = numberIn(id);
  const found = ours === null ? null : await readExecution(store, ours);
  if (isMeant(found)) return found;
  const place = await findIdPlace(store, meant.spaces, executionNameKeys(id), meant.owner);
  const named = place === undefined ? null : await readExecution(store, place.number);
  return isMeant(named) ? named : null;
}

/** What all executions of an id began with, whosever they are; `MOST_PLACES` at most, beside one with an id of ours. */
export async function startsOf(store: Store, spaces: IdSpaces, id: string): Promise<ExecutionStart[]> {
  const places = await findIdPlaces(store, spaces, executionNameKeys(id));
  const ours = numberIn(id);
  const numbers = new Set([...(ours === null ? [] : [ours]), ...places.map(({ number }) => number)]);
  const found = await Promise.all([...numbers].map((number) => readExecution(store, number)));
  return found.flatMap((each) => (each?.start.id === id ? [each.start] : []));
}

export async function readExecution(store: Store, number: number): Promise<FoundExecution | null> {
  const [open, rest] = await store.getMany([openExecutionKey(number), executionKey(number)]);
  const start =
    (open === undefined ? null : parseOpen(open.value).start) ??
    (rest === undefined ? null : parseRest(rest.value).start);
  return start === null ? null : { start, open: open ?? null, rest: rest ?? null };
}

/** All that is on record of an execution. */
export interface Loaded {
  readonly state: JournalState;
  readonly entries: readonly JournalEntry[];
  /** Entries that were committed with the start. */
  readonly first: readonly JournalEntry[];
  /** Entries beside the record. None while it runs. */
  readonly tail: readonly JournalEntry[];
  /** Rows of the journal. */
  readonly rows: number;
}

/** @returns null when it is gone meanwhile */
export async function loadExecution(store: Store, { start, open, rest }: FoundExecution): Promise<Loaded | null> {
  const resting = rest === null ? null : parseRest(rest.value);
  const first = (open === null ? null : parseOpen(open.value).first) ?? resting?.first ?? [];
  const rests = open === null && resting !== null;
  let rows = rests && resting.rows === 0 ? [] : await readJournal(store, start.number);
  if (rests) {
    if (rows.length < resting.rows) return null;
    // What comes behind these is of a run that began after the record was read.
    rows = rows.slice(0, resting.rows);
  }
  const tail = rests ? resting.tail : [];
  const entries = [...first, ...rows.flatMap((row) => parseEntries(row.value)), ...tail];
  return { state: stateFromJournal(start, entries), entries, first, tail, rows: rows.length };
}

/**
 * All of an execution, read again when it has changed between two reads.
 *
 * @param find null: there is none
 * @param enough whether this is as much as is known to be there
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
    if (tries === TRIES) throw incomplete(found.start.id);
  }
}

/** The first entries of an execution, as many as are known to be on disk. */
export async function entriesOnDisk(
  store: Store,
  { number }: ExecutionStart,
  count: number,
): Promise<readonly JournalEntry[]> {
  const record = await loadWhole(
    store,
    () => readExecution(store, number),
    ({ entries }) => entries.length >= count,
  );
  if (record === null) throw unavailable("the journal of the execution is gone");
  return record.loaded.entries.slice(0, count);
}

export const incomplete = (id: string) =>
  new ServiceError("internal", "the journal of the execution is not complete", { headers: { "x-execution-id": id } });

/** Rows of the journal, those behind the one with the key `behind`. */
export async function readJournal(store: Store, number: number, behind?: string): Promise<Row[]> {
  const prefix = journalRows(number);
  const all: Row[] = [];
  for (;;) {
    const after = all.at(-1)?.key ?? behind;
    const rows = await store.scan(after === undefined ? { prefix, limit: ROWS } : { prefix, after, limit: ROWS });
    all.push(...rows);
    if (rows.length < ROWS) return all;
  }
}
