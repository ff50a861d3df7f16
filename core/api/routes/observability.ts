/** Traces and spans, log lines as they are and as log records of OpenTelemetry, and the inventory of the service for its operators. */

import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { parseInstant } from "../../lib/instant.ts";
import { LEVELS, type Level, type LogEntry, logRecord } from "../../observability/log-line.ts";
import { findLines, type LogFilter } from "../../observability/log-ring.ts";
import type { TraceAccess } from "../../traces/traces.ts";
import { BINDINGS, parseLogFilter, parseLogTime } from "./log-filter.ts";
import { get } from "./row.ts";

/** The traces as the caller sees them. */
const open = (call: Context<Service>): TraceAccess => call.service.traces.for(principalOf(call, call.service.isolated));

export const OBSERVABILITY_ROUTES = [
  get(
    "/observability/status",
    "observability.status",
    "What is recorded, how much of it there is, and what this process did in the last hour",
    {
      group: "observability",
      output: "ObservabilityStatus",
      async handle(_input, { service }) {
        const enabled = service.manifest.observability.sample > 0;
        const kept = { ...(await service.traces.status()), logCount: service.logs.count };
        return { enabled, ...kept, websocket: true, activity: service.metrics.activity.minutes };
      },
    },
  ),
  get("/observability/traces", "observability.listTraces", "List traces, newest first", {
    group: "observability",
    query: "TracesQuery",
    output: "TraceList",
    async handle({ query }, call) {
      const at = (name: "from" | "to") => (query[name] === undefined ? undefined : parseInstant(name, query[name]));
      const traces = await open(call).list({ ...defaults.TracesQuery, ...query, from: at("from"), to: at("to") });
      return { traces, count: traces.length };
    },
  }),
  get("/observability/traces/:traceId", "observability.getTrace", "A trace with its spans", {
    group: "observability",
    output: "TraceDetail",
    handle: ({ params }, call) => open(call).get(params.traceId!),
  }),
  get("/observability/spans/:spanId", "observability.getSpan", "A span", {
    group: "observability",
    output: "SpanRecord",
    handle: ({ params }, call) => open(call).span(params.spanId!),
  }),
  get("/api/logs", "logs.list", "Query the log, newest first", {
    group: "observability",
    description: "Of the lines that are kept in memory: `logs.buffer` says how many.",
    query: "LogsQuery",
    output: { envelope: "LogsReply" },
    handle({ query }, call) {
      const { limit = defaults.LogsQuery.limit } = query;
      const { entries, total } = find(call, parseLogFilter(query), limit);
      return { success: true, data: entries, total, query: { ...asked(query), limit } };
    },
  }),
  get("/observability/logs", "observability.logs", "Query log records, newest first", {
    group: "observability",
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
  get("/observability/traces/:traceId/logs", "observability.traceLogs", "Log records of a trace, newest first", {
    group: "observability",
    query: "SpanLogsQuery",
    output: "LogRecords",
    handle: ({ params, query }, call) => listRecords("trace", params.traceId!, query.limit, call),
  }),
  get("/observability/spans/:spanId/logs", "observability.spanLogs", "Log records of a span, newest first", {
    group: "observability",
    query: "SpanLogsQuery",
    output: "LogRecords",
    handle: ({ params, query }, call) => listRecords("span", params.spanId!, query.limit, call),
  }),
  get(
    "/observability/routes",
    "inventory.routes",
    "Routes and WebSockets with their access class, and how often each was used",
    {
      group: "observability",
      pages: "named",
      output: "RouteStates",
      handle: (_input, { service }) => service.inventory.routes(),
    },
  ),
  get("/observability/manifest", "inventory.manifest", "The values of the manifest, and what each comes from", {
    group: "observability",
    description:
      "Secrets, instructions of agents, and what comes from the environment are not among them. With `auth` only the console's key gives access.",
    pages: "named",
    output: "ManifestValues",
    handle: (_input, { service }) => service.inventory.manifest(),
  }),
  get(
    "/observability/limits",
    "inventory.limits",
    "The limits that the manifest sets, what is in use, and how often each has refused something",
    {
      group: "observability",
      pages: "named",
      output: "LimitStates",
      handle: (_input, { service }) => service.inventory.limits(),
    },
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
    const access = open(call);
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
