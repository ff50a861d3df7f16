/** Turns the query of `/api/logs` and `/ws/logs` into a filter. */
import type { LogsQuery } from "../../../generated/types.ts";
import { parseInstant } from "../../lib/instant.ts";
import { LEVELS, type LogFilter } from "../../observability/log-line.ts";

/** Fields of log lines by which a query may filter. */
export const BINDINGS = ["agentId", "conversationId", "workflowId", "executionId", "tool"] as const;

/** @throws ServiceError `invalid_input` for an invalid time */
export function parseLogFilter(query: LogsQuery): LogFilter {
  const { level, since, until, search } = query;
  return {
    least: level === undefined ? 0 : LEVELS.indexOf(level),
    since: parseLogTime("since", since),
    until: parseLogTime("until", until),
    search,
    bound: BINDINGS.flatMap((name) => (query[name] === undefined ? [] : [[name, query[name]] as const])),
  };
}

/** Later years have six digits and a sign, which breaks the comparison as text. */
const LAST = Date.parse("9999-12-31T23:59:59.999Z");

/** Formats a time like those of log lines, so that both compare as text. */
export const parseLogTime = (field: string, text: string | undefined): string | undefined =>
  text === undefined ? undefined : new Date(Math.min(parseInstant(field, text), LAST)).toISOString();
