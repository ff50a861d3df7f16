/** Parses parameters of requests about executions: status, dates, metadata, event cursor. */
import { isDeepStrictEqual } from "node:util";
import { defaults } from "../../generated/defaults.ts";
import type { AttachQuery, ExecutionsQuery } from "../../generated/types.ts";
import { requireExact } from "../http/decode.ts";
import { invalid, notFound } from "../lib/errors.ts";
import { parseInstant } from "../lib/instant.ts";
import { isObject } from "../lib/is-object.ts";
import { changedInteger } from "../lib/large-integers.ts";
import type { ExecutionStatus } from "./journal/entries.ts";
import type { ExecutionQuery } from "./workflows.ts";

const MAX_ID_LENGTH = 128;
const MAX_VALUE_LENGTH = 4096;
const MAX_METADATA_KEYS = 64;
/** Brackets allowed in a value: the comparison recurses once per level. */
const MAX_BRACKETS = 256;
const METADATA_PREFIX = "metadata.";

/** The statuses that a filter may name: those of executions, and two aliases. */
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
  // No client can choose a longer id.
  if (id.length > MAX_ID_LENGTH) throw notFound("no execution has such a long id");
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
  const metadata = parseMetadata(query);
  if (metadata.size > 0) list.metadata = metadata;
  return list;
}

function parseMetadata(query: ExecutionsQuery): Map<string, readonly unknown[]> {
  const wanted = new Map<string, readonly unknown[]>();
  if (query.metadata !== undefined) {
    for (const [key, value] of Object.entries(parseObject(query.metadata))) wanted.set(key, [value]);
  }
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    if (!name.startsWith(METADATA_PREFIX)) continue;
    const key = name.slice(METADATA_PREFIX.length);
    if (key === "") throw invalid("metadata. needs the name of a key: metadata.team=sales");
    const text = value as string;
    if (text.length > MAX_VALUE_LENGTH)
      throw invalid(`${name.slice(0, 100)} must not be longer than ${MAX_VALUE_LENGTH} characters`);
    const values = possibleValues(text);
    const others = wanted.get(key);
    wanted.set(
      key,
      others === undefined ? values : values.filter((each) => others.some((other) => isDeepStrictEqual(each, other))),
    );
  }
  if (wanted.size > MAX_METADATA_KEYS) throw invalid(`metadata must not name more than ${MAX_METADATA_KEYS} keys`);
  return wanted;
}

function parseObject(text: string): object {
  const hint = 'metadata must be a JSON object such as {"team":"sales"}, URL-encoded';
  if (bracketsIn(text) > MAX_BRACKETS) throw invalid("metadata is nested too deeply");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid(hint);
  }
  if (!isObject(value)) throw invalid(hint);
  requireExact(text, "metadata");
  return value;
}

/** The values that a text may stand for: `7` may be the text and the number. */
function possibleValues(text: string): unknown[] {
  if (bracketsIn(text) > MAX_BRACKETS) return [text];
  try {
    const value: unknown = JSON.parse(text);
    return changedInteger(text) === null ? [text, value] : [text];
  } catch {
    return [text];
  }
}

const bracketsIn = (text: string): number => text.match(/[[{]/g)?.length ?? 0;

/**
 * The number of the last event that a client has. The header takes precedence over the query, because a client that lost its connection
 * requests the same URL again.
 *
 * @throws ServiceError `invalid_input` when the header is not a number
 */
export function parseEventCursor(query: AttachQuery, headers: Readonly<Record<string, string>>): number {
  const last = headers["last-event-id"];
  if (last === undefined || last === "") return query.fromSequence ?? defaults.AttachQuery.fromSequence;
  if (!/^\d{1,15}$/.test(last)) throw invalid("Last-Event-ID must be the number of an event");
  return Number(last);
}
