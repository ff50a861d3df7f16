/** Which executions a list is of. */
import { isDeepStrictEqual } from "node:util";
import { encodeNumber, NUMBER_LIMIT } from "../../storage/encoding.ts";
import type { ExecutionStart } from "../journal/entries.ts";
import type { ExecutionQuery } from "../workflows.ts";

export type ExecutionListQuery = ExecutionQuery & {
  /** The user whose executions alone the caller may see; null: those that are nobody's. */
  owner?: string | null;
};

export interface Filter {
  readonly workflowId: string | undefined;
  readonly userId: string | undefined;
  /** Whole milliseconds, inclusive. */
  readonly from: number;
  readonly to: number;
  /** Beside what the index rows tell. Null: they tell everything. */
  readonly record: RecordFilter | null;
}

interface RecordFilter {
  readonly nobodys: boolean;
  readonly metadata: ReadonlyMap<string, readonly unknown[]>;
  /** Texts without which a record cannot match: one of each list. */
  readonly needles: readonly (readonly string[])[];
}

/** What is compared of an execution that no index tells. */
type Told = Pick<ExecutionStart, "userId" | "metadata">;

/** Null: nothing can match. */
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
  const nobodys = owner === null;
  const wanted = metadata ?? new Map<string, readonly unknown[]>();
  const needles = [...wanted].map(([key, values]) => values.map((value) => needleOf(key, value)));
  const record = nobodys || wanted.size > 0 ? { nobodys, metadata: wanted, needles } : null;
  return { workflowId, userId: userId ?? owner ?? undefined, ...bounds, record };
}

/** Keys of an object may come in any order. */
const needleOf = (key: string, value: unknown): string =>
  `${JSON.stringify(key)}:${typeof value === "object" && value !== null ? "" : JSON.stringify(value)}`;

/** The bounds of an index range: both are exclusive, and rows of a time come after the time alone. */
export function timeBounds(prefix: string, { from, to }: Filter): { after: string; before?: string } {
  const after = prefix + encodeNumber(from);
  return to + 1 < NUMBER_LIMIT ? { after, before: prefix + encodeNumber(to + 1) } : { after };
}

export function matchesStart(filter: Filter, start: Told & Pick<ExecutionStart, "workflowId" | "at">): boolean {
  if (filter.workflowId !== undefined && filter.workflowId !== start.workflowId) return false;
  if (filter.userId !== undefined && filter.userId !== start.userId) return false;
  return start.at >= filter.from && start.at <= filter.to && tells(filter.record, start);
}

/** Whether the record of an execution that was found by its index row matches in the rest too. */
export function matchesRecord({ record }: Filter, text: string): boolean {
  if (record === null) return true;
  // Parsing costs more than all else: most that cannot match go before.
  return (
    record.needles.every((some) => some.some((needle) => text.includes(needle))) &&
    tells(record, JSON.parse(text) as Told)
  );
}

function tells(record: RecordFilter | null, { userId, metadata = {} }: Told): boolean {
  if (record === null) return true;
  if (record.nobodys && userId !== undefined) return false;
  for (const [key, values] of record.metadata) {
    if (!Object.hasOwn(metadata, key)) return false;
    if (!values.some((value) => isDeepStrictEqual(value, metadata[key]))) return false;
  }
  return true;
}
