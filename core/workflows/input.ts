/** From what a request says to what the engine takes: status, dates, metadata, cursor. */
import { isDeepStrictEqual } from "node:util";
import { defaults } from "../../generated/defaults.ts";
import type { AttachQuery, ExecutionsQuery } from "../../generated/types.ts";
import { invalid, notFound } from "../lib/errors.ts";
import { parseInstant } from "../lib/instant.ts";
import type { ExecutionStatus } from "./journal/entries.ts";
import type { ExecutionQuery } from "./workflows.ts";

const LONGEST_ID = 128;
const LONGEST_VALUE = 4096;
/** Keys of metadata in one request. */
const MOST_KEYS = 64;
/** Brackets in a value to compare with: it is compared level by level. */
const MOST_BRACKETS = 256;
const BY_KEY = "metadata.";

/** Contract: filter aliases. */
const STATUS: Readonly<Record<NonNullable<ExecutionsQuery["status"]>, ExecutionStatus>> = {
  running: "running",
  suspended: "suspended",
  completed: "completed",
  cancelled: "cancelled",
  error: "error",
  success: "completed",
  pending: "running",
};

export function executionIdParam(params: Record<string, string>): string {
  const id = params.executionId!;
  // Longer ones cannot be chosen.
  if (id.length > LONGEST_ID) throw notFound("no execution has so long an id");
  return id;
}

/** @throws ServiceError `invalid_input` for a date or metadata that does not parse */
export function executionQuery(query: ExecutionsQuery): ExecutionQuery {
  const { workflowId, status, from, to, userId } = query;
  const { limit = defaults.ExecutionsQuery.limit, offset = defaults.ExecutionsQuery.offset } = query;
  const list: ExecutionQuery = { limit, offset };
  if (workflowId !== undefined) list.workflowId = workflowId;
  if (status !== undefined) list.status = STATUS[status];
  if (from !== undefined) list.from = parseInstant("from", from);
  if (to !== undefined) list.to = parseInstant("to", to);
  if (userId !== undefined) list.userId = userId;
  const metadata = metadataOf(query);
  if (metadata.size > 0) list.metadata = metadata;
  return list;
}

function metadataOf(query: ExecutionsQuery): Map<string, readonly unknown[]> {
  const wanted = new Map<string, readonly unknown[]>();
  if (query.metadata !== undefined) {
    for (const [key, value] of Object.entries(parseObject(query.metadata))) wanted.set(key, [value]);
  }
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    if (!name.startsWith(BY_KEY)) continue;
    const key = name.slice(BY_KEY.length);
    if (key === "") throw invalid("metadata. needs the name of a key: metadata.team=sales");
    const text = value as string;
    if (text.length > LONGEST_VALUE)
      throw invalid(`${name.slice(0, 100)} must not be longer than ${LONGEST_VALUE} characters`);
    const values = readings(text);
    const others = wanted.get(key);
    wanted.set(
      key,
      others === undefined ? values : values.filter((each) => others.some((other) => isDeepStrictEqual(each, other))),
    );
  }
  if (wanted.size > MOST_KEYS) throw invalid(`metadata must not name more than ${MOST_KEYS} keys`);
  return wanted;
}

function parseObject(text: string): object {
  const hint = 'metadata must be a JSON object such as {"team":"sales"}, URL-encoded';
  if (bracketsIn(text) > MOST_BRACKETS) throw invalid("metadata is nested too deeply");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid(hint);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalid(hint);
  return value;
}

/** `7` means the text and the number. */
function readings(text: string): unknown[] {
  if (bracketsIn(text) > MOST_BRACKETS) return [text];
  try {
    return [text, JSON.parse(text)];
  } catch {
    return [text];
  }
}

const bracketsIn = (text: string): number => text.match(/[[{]/g)?.length ?? 0;

/**
 * The number of the last event that a reader knows. The header goes before the query: a reader that lost its connection asks for
 * the same address again.
 *
 * @throws ServiceError `invalid_input` when the header is not a number
 */
export function parseEventCursor(query: AttachQuery, headers: Readonly<Record<string, string>>): number {
  const last = headers["last-event-id"];
  if (last === undefined || last === "") return query.fromSequence ?? defaults.AttachQuery.fromSequence;
  if (!/^\d{1,15}$/.test(last)) throw invalid("Last-Event-ID must be the number of an event");
  return Number(last);
}
