/** Log lines, as they are and as log records of OpenTelemetry. */
import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { LEVELS, type Level, type LogEntry, logRecord } from "../../observability/log-line.ts";
import { findLines, type LogFilter } from "../../observability/log-ring.ts";
import { BINDINGS, parseLogFilter, parseLogTime } from "./log-filter.ts";
import { observe } from "./row.ts";

export const OBSERVABILITY_LOG_ROUTES = [
  observe("/api/logs", "logs.list", "Query the log, newest first", {
    description: "Of the lines that are kept in memory: `logs.buffer` says how many.",
    query: "LogsQuery",
    output: { envelope: "LogsReply" },
    handle({ query }, call) {
      const { limit = defaults.LogsQuery.limit } = query;
      const { entries, total } = find(call, parseLogFilter(query), limit);
      return { success: true, data: entries, total, query: { ...asked(query), limit } };
    },
  }),
  observe("/observability/logs", "observability.logs", "Query log records, newest first", {
    query: "LogRecordsQuery",
    output: "LogRecords",
    handle({ query }, call) {
      const { traceId, spanId, entityId, search, limit = defaults.LogRecordsQuery.limit } = query;
      const filter = {
        least: minimumLevel(query),
        since: parseLogTime("startTime", query.startTime),
        until: parseLogTime("endTime", query.endTime),
        bound: [...boundTo("traceId", traceId), ...boundTo("spanId", spanId)],
        entityId,
        search,
      };
      return records(find(call, filter, limit).entries);
    },
  }),
  ...(["trace", "span"] as const).map((kind) =>
    observe(
      `/observability/${kind}s/:${kind}Id/logs`,
      `observability.${kind}Logs`,
      `Log records of a ${kind}, newest first`,
      {
        query: "SpanLogsQuery",
        output: "LogRecords",
        handle: ({ params, query }, call) => listRecords(kind, params[`${kind}Id`]!, query.limit, call),
      },
    ),
  ),
];

/**
 * The lines that the caller may see. The console sees everything. With isolation, a user sees the lines of their own requests and runs,
 * and none that the service writes about itself.
 */
function find(call: Context<Service>, filter: LogFilter, limit: number) {
  const { logs, isolated } = call.service;
  const { userId, isolated: own } = principalOf(call, isolated);
  return findLines(logs, own ? { ...filter, owner: userId } : filter, limit);
}

/**
 * The log records of a trace or span. A run that is not traced may still have log lines.
 *
 * @throws ServiceError `not_found` when there are neither spans nor lines
 */
async function listRecords(kind: "trace" | "span", id: string, limit: number | undefined, call: Context<Service>) {
  const { entries } = find(call, { bound: boundTo(`${kind}Id`, id) }, limit ?? defaults.SpanLogsQuery.limit);
  if (entries.length === 0) {
    const { traces, isolated } = call.service;
    const access = traces.for(principalOf(call, isolated));
    await (kind === "trace" ? access.get(id) : access.span(id));
  }
  return records(entries);
}

const records = (entries: readonly LogEntry[]) => ({ logs: entries.map(logRecord), count: entries.length });

const boundTo = (name: string, value: string | undefined) => (value === undefined ? [] : [[name, value] as const]);

/** The more severe of two levels. */
function minimumLevel({
  severityText,
  severityNumber = 1,
}: {
  severityText?: string;
  severityNumber?: number;
}): number {
  const named = severityText === undefined ? 0 : LEVELS.indexOf(severityText.toLowerCase() as Level);
  return Math.max(named, Math.ceil((severityNumber - 1) / 4));
}

/** The keys of a query that this version knows. */
function asked(query: object): Record<string, unknown> {
  const names = new Set<string>(["level", ...BINDINGS, "search", "since", "until"]);
  return Object.fromEntries(Object.entries(query).filter(([name]) => names.has(name)));
}
