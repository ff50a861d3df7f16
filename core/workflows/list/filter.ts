/** Decides which executions a list contains. */
import { isDeepStrictEqual } from "node:util";
import { encodeNumber, NUMBER_LIMIT } from "../../storage/encoding.ts";
import type { ExecutionStart } from "../journal/entries.ts";
import { isRun } from "../journal/run-record.ts";
import type { ExecutionQuery } from "../workflows.ts";

export type ExecutionListQuery = ExecutionQuery & {
  /** The user whose executions the caller may see; null for those without a user; undefined when the caller may see all. */
  owner?: string | null;
};

export interface Filter {
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
export function executionFilter({
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
export function timeBounds(prefix: string, { from, to }: Filter): { after: string; before?: string } {
  const after = prefix + encodeNumber(from);
  return to + 1 < NUMBER_LIMIT ? { after, before: prefix + encodeNumber(to + 1) } : { after };
}

export function matchesStart(
  filter: Filter,
  start: FilteredFields & Pick<ExecutionStart, "workflowId" | "at">,
): boolean {
  // The list of all workflows has no runs of agents.
  if (filter.workflowId === undefined ? isRun(start.workflowId) : filter.workflowId !== start.workflowId) return false;
  if (filter.userId !== undefined && filter.userId !== start.userId) return false;
  return start.at >= filter.from && start.at <= filter.to && matchesRecordFilter(filter.record, start);
}

/** Whether an execution that was found by its index row matches the filters that the index cannot decide. */
export function matchesRecord({ record }: Filter, text: string): boolean {
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
