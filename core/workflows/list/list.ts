/**
 * Pages of executions, newest first. Those that rest are found by index rows, and their records are cut out of their rows
 * without a look inside: a page costs the same however many executions there are, of a workflow, a status, a user, a time. What
 * no index tells (metadata) is compared record by record, from the newest on until the page is full.
 */
import { invalid } from "../../lib/errors.ts";
import { Serialized } from "../../lib/serialized.ts";
import { MAX_SKIPPED_ROWS } from "../../storage/check.ts";
import { executionEntry, executionIndex, executionKey, openExecutionKey } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { ExecutionStart, ExecutionStatus } from "../journal/entries.ts";
import { RESTING } from "../journal/index-rows.ts";
import { recordInRow } from "../journal/rows.ts";
import {
  type ExecutionListQuery,
  executionFilter,
  type Filter,
  matchesRecord,
  matchesStart,
  timeBounds,
} from "./filter.ts";
import { type Begun, openRecord, type RemoteExecution } from "./running.ts";
import { type Item, Walk } from "./walk.ts";

/** Records read at once: a page of large ones must not come as one text that nothing can hold. */
const PIECE = 100;
/** Characters of a page. */
const LARGEST = 64 * 1024 * 1024;

/** An execution that runs in this process. */
export interface RunningHere {
  readonly start: ExecutionStart;
  /** As lists give it, at present: JSON text. Null once it has come to rest and that is not on disk yet: the store tells then. */
  record(): string | null;
}

export interface ListSources {
  readonly store: Store;
  running(): Iterable<RunningHere>;
  /** Null for a store of this process alone: what runs, runs here. */
  readonly elsewhere: RemoteExecution | null;
  /** Of a pinned definition, by its hash. */
  outlineOf(hash: string): Promise<Outline>;
}

/**
 * @returns `data` of the reply: an array of execution records
 * @throws ServiceError `invalid_input` for an offset that is too large, and for a page that is
 */
export async function listExecutions(query: ExecutionListQuery, sources: ListSources): Promise<Serialized> {
  const { limit, offset, status } = query;
  if (offset > MAX_SKIPPED_ROWS)
    throw invalid(`offset: more than ${MAX_SKIPPED_ROWS} executions cannot be passed over`);
  const filter = executionFilter(query);
  if (filter === null) return new Serialized("[]");
  const walk = await openWalk(query, filter, sources);
  // Where records decide, those that match are counted.
  let pass = filter.record === null ? 0 : offset;
  if (filter.record === null) await walk.pass(offset);
  const texts: string[] = [];
  let size = 0;
  let piece = limit;
  while (texts.length < limit) {
    const items = await walk.next(Math.min(PIECE, piece));
    if (items.length === 0) break;
    for (const text of await load(items, status, filter, sources)) {
      if (text === null || pass-- > 0) continue;
      if (texts.length === limit) break;
      texts.push(text);
      size += text.length;
    }
    // As many as are missing, or more and more where few match.
    piece = filter.record === null ? limit - texts.length : piece * 2;
    if (size > LARGEST) throw invalid("these executions are larger than 64 MiB together: ask for fewer with limit");
  }
  return new Serialized(`[${texts.join()}]`);
}

async function openWalk(
  { status, limit, offset }: ExecutionListQuery,
  filter: Filter,
  sources: ListSources,
): Promise<Walk> {
  const { store } = sources;
  const statuses = status === undefined ? RESTING : status === "running" ? [] : [status];
  const ranges = statuses.map((resting) => {
    const prefix = executionIndex(resting, filter.workflowId, filter.userId);
    return { prefix, ...timeBounds(prefix, filter) };
  });
  const walk = new Walk(store, ranges);
  if (status !== undefined && status !== "running") return walk;
  const running = new Map<number, Begun>();
  const look = () => {
    for (const { start } of sources.running()) running.set(start.number, start);
  };
  look();
  const [elsewhere] = await Promise.all([
    sources.elsewhere?.starts() ?? [],
    offset === 0 ? walk.fill(Math.min(PIECE, limit)) : undefined,
  ]);
  // Once more: one that was resumed before its index row could be read is in neither else.
  look();
  for (const start of elsewhere) running.set(start.number, start);
  walk.add([...running.values()].filter((start) => matchesStart(filter, start)).map(itemOf));
  return walk;
}

const itemOf = ({ at, number }: Begun): Item => ({ entry: executionEntry(at, number), number, revision: null });

/** The records of items: null for those that are none of the list any more. */
async function load(
  items: readonly Item[],
  status: ExecutionStatus | undefined,
  filter: Filter,
  sources: ListSources,
): Promise<(string | null)[]> {
  const { store } = sources;
  const here = recordsHere(items, sources);
  const rows = await rowsOf(store, items, here);
  const one = async ({ number, revision }: Item): Promise<string | null> => {
    const record = rows.get(executionKey(number));
    if (revision !== null) return resting(record, revision, status, filter);
    const text = here.get(number);
    if (text !== undefined) return text;
    const open = rows.get(openExecutionKey(number));
    if (open !== undefined) return openRecord(store, open, record, sources.outlineOf);
    // It has come to rest meanwhile.
    return record === undefined || status === "running" ? null : recordInRow(record.value);
  };
  return Promise.all(items.map(one));
}

/** Of those that still run here. What does not has its row in the store. */
function recordsHere(items: readonly Item[], { running }: ListSources): Map<number, string> {
  const texts = new Map<number, string>();
  const wanted = new Set<number>();
  for (const { number, revision } of items) if (revision === null) wanted.add(number);
  if (wanted.size === 0) return texts;
  for (const { start, record } of running()) {
    const text = wanted.has(start.number) ? record() : null;
    if (text !== null) texts.set(start.number, text);
  }
  return texts;
}

async function rowsOf(
  store: Store,
  items: readonly Item[],
  here: ReadonlyMap<number, string>,
): Promise<Map<string, Row>> {
  const keys: string[] = [];
  for (const { number, revision } of items) {
    if (revision === null && here.has(number)) continue;
    keys.push(executionKey(number));
    if (revision === null) keys.push(openExecutionKey(number));
  }
  const rows = new Map<string, Row>();
  for (const row of await store.getMany(keys)) if (row !== undefined) rows.set(row.key, row);
  return rows;
}

/** Index row and record are written together: when their revisions differ, it has gone on between the two reads. */
function resting(
  row: Row | undefined,
  revision: number,
  status: ExecutionStatus | undefined,
  filter: Filter,
): string | null {
  if (row === undefined) return null;
  const text = recordInRow(row.value);
  if (row.revision !== revision && status !== undefined) {
    if ((JSON.parse(text) as { status: ExecutionStatus }).status !== status) return null;
  }
  return matchesRecord(filter, text) ? text : null;
}
