/**
 * Pages of executions, newest first. Settled executions are found by index rows (by workflow, status, user and time), and their records
 * are cut out of their rows without parsing: a page costs the same however many executions there are. Metadata is in no index: records
 * are compared one by one, newest first, until the page is full. Large records are only measured, and read while the reply is sent.
 */

import { isDeepStrictEqual } from "node:util";
import { invalid } from "../../lib/errors.ts";
import { between, Serialized, SerializedStream } from "../../lib/serialized.ts";
import { groupsOf } from "../../storage/bounded-reader.ts";
import {
  encodeNumber,
  executionEntry,
  executionIndex,
  executionKey,
  indexedExecution,
  MAX_SKIPPED_ROWS,
  NUMBER_LIMIT,
  OPEN_EXECUTIONS,
  openExecutionKey,
} from "../../storage/keys.ts";
import { allRows, BYTES_PER_READ, inTurn, rowsOf } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import { type CompactText, expand, expandedLength } from "../journal/compact-text.ts";
import {
  compactRecordOfRow,
  type ExecutionStart,
  type ExecutionStatus,
  parseOpenRow,
  parseRecordRow,
  recordOfRow,
  shownLength,
} from "../journal/entries.ts";
import { RESTING } from "../journal/index-rows.ts";
import { foundExecution, loadExecution } from "../journal/load.ts";
import { executionRecord, isRun, RUN_STATUS } from "../journal/record.ts";
import type { ExecutionQuery } from "../workflows.ts";
import { IndexWalk, type Item } from "./walk.ts";

// Executions that other processes of a shared store run, read from their open rows and journals.

/** Open rows read at once; each may hold the whole input of its execution. */
const ROWS_PER_READ = 100;

/** The part of the start that decides whether an execution is in a list, and where. */
type ListedStart = Pick<ExecutionStart, "number" | "at" | "workflowId" | "userId" | "metadata">;

/** Reads the executions that other processes run. That takes a full scan, so simultaneous lists share one. */
export class RemoteExecutions {
  readonly #store: Store;
  readonly #liveNumbers: () => { has(number: number): boolean };
  #reading: Promise<unknown> = Promise.resolve();
  #next: Promise<readonly ListedStart[]> | null = null;

  /** @param liveNumbers numbers of the executions that run in this process */
  constructor(store: Store, liveNumbers: () => { has(number: number): boolean }) {
    this.#store = store;
    this.#liveNumbers = liveNumbers;
  }

  /** Waits for a scan that starts after the call: one that is in progress may have missed executions that have started since. */
  starts(): Promise<readonly ListedStart[]> {
    if (this.#next === null) {
      this.#next = this.#reading.then(() => {
        this.#next = null;
        return readStarts(this.#store, this.#liveNumbers());
      });
      this.#reading = this.#next.catch(() => {});
    }
    return this.#next;
  }
}

async function readStarts(store: Store, known: { has(number: number): boolean }): Promise<ListedStart[]> {
  const starts: ListedStart[] = [];
  const newestFirst = { prefix: OPEN_EXECUTIONS, reverse: true };
  for await (const rows of allRows(store, newestFirst, ROWS_PER_READ)) {
    const others = rows.filter(({ key }) => !known.has(indexedExecution(key)));
    const opened = others.map(({ value }) => parseOpenRow(value).start);
    const resumed = others.filter((_row, index) => opened[index] === null).map(({ key }) => indexedExecution(key));
    for (const start of opened) if (start !== null) starts.push(withoutInput(start));
    for await (const records of rowsOf(store, resumed.map(executionKey)))
      for (const record of records) starts.push(withoutInput(parseRecordRow(record.value).start));
  }
  return starts;
}

/** Drops the input, which may be large. */
const withoutInput = ({ number, at, workflowId, userId, metadata }: ExecutionStart): ListedStart => ({
  number,
  at,
  workflowId,
  userId,
  metadata,
});

/**
 * The record of an execution that another process runs, computed from its journal.
 *
 * @param record its record row from before it was resumed
 * @returns null when neither row has the start, because the execution has been removed meanwhile
 */
async function remoteRecord(
  store: Store,
  open: Row,
  record: Row | undefined,
  outlineOf: (hash: string) => Promise<Outline>,
): Promise<CompactText | null> {
  const found = foundExecution(open, record);
  const loaded = found && (await loadExecution(store, found));
  return loaded && executionRecord(loaded.state, await outlineOf(loaded.state.start.definition));
}

export type ExecutionListQuery = ExecutionQuery & {
  /** The user whose executions the caller may see; null for those without a user; undefined when the caller may see all. */
  owner?: string | null;
};

/** Which executions a list contains. */
interface Filter {
  readonly workflowId: string | undefined;
  readonly userId: string | undefined;
  /** Milliseconds since 1970 as an integer, inclusive; as `to`. */
  readonly from: number;
  readonly to: number;
  /** Filters that index rows cannot decide; null when there are none. */
  readonly record: RecordFilter | null;
}

interface RecordFilter {
  readonly withoutUser: boolean;
  readonly metadata: ReadonlyMap<string, readonly unknown[]>;
  /** A matching record contains at least one text of each list. */
  readonly needles: readonly (readonly string[])[];
}

/** The fields that a record filter compares. */
type FilteredFields = Pick<ExecutionStart, "userId" | "metadata">;

/** @returns null when nothing can match */
function executionFilter({
  workflowId,
  userId,
  owner,
  from = 0,
  to = NUMBER_LIMIT - 1,
  metadata,
}: ExecutionListQuery): Filter | null {
  if (owner !== undefined && userId !== undefined && owner !== userId) return null;
  const bounds = { from: Math.max(0, Math.ceil(from)), to: Math.min(NUMBER_LIMIT - 1, Math.floor(to)) };
  if (bounds.from > bounds.to) return null;
  const withoutUser = owner === null;
  const wanted = metadata ?? new Map<string, readonly unknown[]>();
  const needles = [...wanted].map(([key, values]) => values.map((value) => searchText(key, value)));
  const record = withoutUser || wanted.size > 0 ? { withoutUser, metadata: wanted, needles } : null;
  return { workflowId, userId: userId ?? owner ?? undefined, ...bounds, record };
}

/** The text to search for. For an object only the key, because the order of its keys is unknown. */
const searchText = (key: string, value: unknown): string =>
  `${JSON.stringify(key)}:${typeof value === "object" && value !== null ? "" : JSON.stringify(value)}`;

/** The bounds of an index range. Both are exclusive, but the key of a row is longer than its time alone. */
function timeBounds(prefix: string, { from, to }: Filter): { after: string; before?: string } {
  const after = prefix + encodeNumber(from);
  return to + 1 < NUMBER_LIMIT ? { after, before: prefix + encodeNumber(to + 1) } : { after };
}

function matchesStart(filter: Filter, start: FilteredFields & Pick<ExecutionStart, "workflowId" | "at">): boolean {
  // The list of all workflows has no runs of agents.
  if (filter.workflowId === undefined ? isRun(start.workflowId) : filter.workflowId !== start.workflowId) return false;
  if (filter.userId !== undefined && filter.userId !== start.userId) return false;
  return start.at >= filter.from && start.at <= filter.to && matchesRecordFilter(filter.record, start);
}

/** Whether an execution that was found by its index row matches the filters that the index cannot decide. */
function matchesRecord({ record }: Filter, text: string): boolean {
  if (record === null) return true;
  // Parsing costs more than all else: a text search avoids it for most records that do not match.
  return (
    record.needles.every((some) => some.some((needle) => text.includes(needle))) &&
    matchesRecordFilter(record, JSON.parse(text) as FilteredFields)
  );
}

function matchesRecordFilter(record: RecordFilter | null, { userId, metadata = {} }: FilteredFields): boolean {
  if (record === null) return true;
  if (record.withoutUser && userId !== undefined) return false;
  for (const [key, values] of record.metadata) {
    if (!Object.hasOwn(metadata, key)) return false;
    if (!values.some((value) => isDeepStrictEqual(value, metadata[key]))) return false;
  }
  return true;
}

const RECORDS_PER_READ = 100;
/** Larger records are read when it is their turn to be sent. */
const LARGE_RECORD_BYTES = 32 * 1024;
/** Estimated size of a running execution until its record is made. */
const ASSUMED_BYTES = 128 * 1024;
const MAX_PAGE_CHARACTERS = 64 * 1024 * 1024;

/** An execution that runs in this process. */
export interface RunningHere {
  readonly start: ExecutionStart;
  /** Its current record. Null once it has settled: then the record is in the store. */
  record(): CompactText | null;
}

interface ListSources {
  readonly store: Store;
  running(): Iterable<RunningHere>;
  /** Null when no other process uses the store. */
  readonly remote: RemoteExecutions | null;
  /** The outline of a pinned definition, by its hash. */
  outlineOf(hash: string): Promise<Outline>;
}

/** An item of the page. `text` is null when the record is large. */
interface Listed {
  readonly item: Item;
  readonly text: string | null;
  /** Length of the record in characters. */
  readonly length: number;
  /** Size of its row in bytes. */
  readonly bytes: number;
}

/**
 * @returns `data` of the reply: an array of execution records
 * @throws ServiceError `invalid_input` when the offset or the page is too large
 */
export async function listExecutions(query: ExecutionListQuery, sources: ListSources): Promise<Serialized> {
  const { limit, offset, status } = query;
  if (offset > MAX_SKIPPED_ROWS) throw invalid(`offset: more than ${MAX_SKIPPED_ROWS} executions cannot be skipped`);
  const filter = executionFilter(query);
  if (filter === null) return new Serialized("[]");
  const walk = await openWalk(query, filter, sources);
  // When records decide, only matching ones count towards the offset.
  let toSkip = filter.record === null ? 0 : offset;
  if (filter.record === null) await walk.skip(offset);
  const page: Listed[] = [];
  let length = 0;
  let count = limit;
  while (page.length < limit) {
    const items = await walk.next(Math.min(RECORDS_PER_READ, count));
    if (items.length === 0) break;
    for (const listed of await measured(items, status, filter, sources)) {
      if (listed === null) continue;
      if (toSkip-- > 0) continue;
      if (page.length === limit) break;
      page.push(listed);
      length += listed.length;
    }
    // As many as are missing; when records decide, more each time, because few may match.
    count = filter.record === null ? limit - page.length : count * 2;
    // A single large record is allowed: it is sent in pieces that share their memory.
    if (length > MAX_PAGE_CHARACTERS && page.length > 1)
      throw invalid("these executions are larger than 64 MiB together: ask for fewer with limit");
  }
  if (page.some(({ text }) => text === null))
    return new SerializedStream(between("[", pieces(page, status, filter, sources), "]"));
  return new Serialized(`[${page.map(({ text }) => text).join()}]`);
}

/** The records of items, or only the length of large ones; null for items that no longer belong to the list. */
async function measured(
  items: readonly Item[],
  status: ExecutionStatus | undefined,
  filter: Filter,
  sources: ListSources,
): Promise<(Listed | null)[]> {
  const resting = items.filter(({ revision }) => revision !== null);
  const rows = await readRows(sources.store, resting, LARGE_RECORD_BYTES);
  const found = new Map<Item, Listed | null>();
  const toLoad: { item: Item; bytes: number }[] = [];
  for (const item of items) {
    const row = rows.get(executionKey(item.number));
    const bytes = row?.size ?? row?.value.length ?? ASSUMED_BYTES;
    if (item.revision === null) toLoad.push({ item, bytes });
    else if (row?.size === undefined)
      found.set(item, listedText(item, recordAtRest(row, item.revision, status, filter), bytes));
    else if (filter.record === null && (status === undefined || row.revision === item.revision))
      found.set(item, { item, text: null, length: shownLength(row.value), bytes });
    else toLoad.push({ item, bytes });
  }
  for (const group of groupsOf(toLoad, ({ bytes }) => bytes, BYTES_PER_READ)) {
    const wanted = group.map(({ item }) => item);
    const texts = await inTurn(() => loadRecords(wanted, status, filter, sources));
    for (const [index, { item, bytes }] of group.entries())
      found.set(item, listedText(item, texts[index] ?? null, bytes));
  }
  return items.map((item) => found.get(item) ?? null);
}

function listedText(item: Item, record: CompactText | null, bytes: number): Listed | null {
  if (record === null) return null;
  const length = expandedLength(record);
  const text = length > LARGE_RECORD_BYTES ? null : expand(record).join("");
  return { item, text, length, bytes: Math.max(bytes, record.text.length) };
}

/** The records with commas between them. Executions that have been removed since are skipped. */
async function* pieces(
  page: readonly Listed[],
  status: ExecutionStatus | undefined,
  filter: Filter,
  sources: ListSources,
): AsyncGenerator<string, void> {
  let short = "";
  let separator = "";
  for (const group of groupsOf(page, ({ bytes }) => bytes, BYTES_PER_READ)) {
    const large = group.filter(({ text }) => text === null);
    const items = large.map(({ item }) => item);
    const loaded = (await inTurn(() => loadRecords(items, status, filter, sources))).values();
    for (const { text } of group) {
      const record = text === null ? loaded.next().value : { text, repeats: [] };
      if (record === null || record === undefined) continue;
      short += separator;
      separator = ",";
      // Long pieces are sent on their own, so that they are not copied.
      for (const piece of expand(record)) {
        if (piece.length < LARGE_RECORD_BYTES) {
          short += piece;
          continue;
        }
        if (short !== "") yield short;
        yield piece;
        short = "";
      }
    }
  }
  if (short !== "") yield short;
}

async function openWalk(
  { status, limit, offset }: ExecutionListQuery,
  filter: Filter,
  sources: ListSources,
): Promise<IndexWalk> {
  const { store } = sources;
  const statuses = status === undefined ? RESTING : status === "running" ? [] : [status];
  const ranges = statuses.map((resting) => {
    const prefix = executionIndex(resting, filter.workflowId, filter.userId);
    return { prefix, ...timeBounds(prefix, filter) };
  });
  const walk = new IndexWalk(store, ranges);
  if (status !== undefined && status !== "running") return walk;
  const running = new Map<number, ListedStart>();
  const addRunningHere = () => {
    for (const { start } of sources.running()) running.set(start.number, start);
  };
  addRunningHere();
  const [elsewhere] = await Promise.all([
    sources.remote?.starts() ?? [],
    offset === 0 ? walk.fill(Math.min(RECORDS_PER_READ, limit)) : undefined,
  ]);
  // Again, for an execution that was resumed after the first call and before its index row was read.
  addRunningHere();
  for (const start of elsewhere) running.set(start.number, start);
  walk.add(
    [...running.values()]
      .filter((start) => matchesStart(filter, start))
      .map(({ at, number }) => ({ entry: executionEntry(at, number), number, revision: null })),
  );
  return walk;
}

/** The records of items; null for those that no longer belong to the list. */
async function loadRecords(
  items: readonly Item[],
  status: ExecutionStatus | undefined,
  filter: Filter,
  sources: ListSources,
): Promise<(CompactText | null)[]> {
  const { store } = sources;
  const here = recordsHere(items, sources);
  const rows = await readRows(
    store,
    items.filter(({ number, revision }) => revision !== null || !here.has(number)),
  );
  const one = async ({ number, revision }: Item): Promise<CompactText | null> => {
    const record = rows.get(executionKey(number));
    if (revision !== null) return recordAtRest(record, revision, status, filter);
    const text = here.get(number);
    if (text !== undefined) return text;
    const open = rows.get(openExecutionKey(number));
    if (open !== undefined) return remoteRecord(store, open, record, sources.outlineOf);
    // The execution has settled meanwhile.
    return record === undefined || status === "running" ? null : recordOfRow(record.value);
  };
  return Promise.all(items.map(one));
}

/** The records of items that still run here; the store has the others. */
function recordsHere(items: readonly Item[], { running }: ListSources): Map<number, CompactText> {
  const texts = new Map<number, CompactText>();
  const wanted = new Set<number>();
  for (const { number, revision } of items) if (revision === null) wanted.add(number);
  if (wanted.size === 0) return texts;
  for (const { start, record } of running()) {
    const text = wanted.has(start.number) ? record() : null;
    if (text !== null) texts.set(start.number, text);
  }
  return texts;
}

/** The rows of items by key: record rows, and open rows of those that were running. */
async function readRows(store: Store, items: readonly Item[], longest?: number): Promise<Map<string, Row>> {
  const keys: string[] = [];
  for (const { number, revision } of items) {
    keys.push(executionKey(number));
    if (revision === null) keys.push(openExecutionKey(number));
  }
  const rows = new Map<string, Row>();
  for (const row of await store.getMany(keys, longest)) if (row !== undefined) rows.set(row.key, row);
  return rows;
}

const LISTED_FIELDS = ["status", "workflowId", "userId"] as const;
type ListedFields = Record<(typeof LISTED_FIELDS)[number], string | undefined>;

/** The record of a settled execution. Its rows are written together: different revisions mean that it was resumed between the reads. */
function recordAtRest(
  row: Row | undefined,
  revision: number,
  status: ExecutionStatus | undefined,
  filter: Filter,
): CompactText | null {
  if (row === undefined) return null;
  // The compared fields are never among the values that may be repeated.
  const text = compactRecordOfRow(row.value);
  if (row.revision !== revision) {
    const record = JSON.parse(text) as ListedFields;
    const ofRuns = filter.workflowId !== undefined && isRun(filter.workflowId);
    // The owner is compared as well: another execution may have the number by now.
    const wanted: Partial<ListedFields> = ofRuns
      ? { status: status && RUN_STATUS[status], userId: filter.userId }
      : { status, workflowId: filter.workflowId, userId: filter.userId };
    for (const name of LISTED_FIELDS) if ((wanted[name] ?? record[name]) !== record[name]) return null;
  }
  return matchesRecord(filter, text) ? recordOfRow(row.value) : null;
}
