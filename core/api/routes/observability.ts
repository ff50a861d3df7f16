/** Traces and spans, log lines, what agents remember, and the inventory of the service, for its operators. */
import { defaults } from "../../../generated/defaults.ts";
import type { Schemas } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { parseInstant } from "../../lib/instant.ts";
import { conversationIdOf } from "../../memory/input.ts";
import { agentMemories } from "../../memory/of-agents.ts";
import {
  findLines,
  LEVELS,
  type Level,
  type LogEntry,
  type LogFilter,
  logRecord,
} from "../../observability/log-line.ts";
import { BINDINGS, parseLogFilter, parseLogTime } from "./log-filter.ts";
import { observe } from "./row.ts";

/** The traces as the caller sees them. */
const open = (call: Context<Service>) => call.service.traces.for(principalOf(call, call.service.isolated));

/** What agents remember, as the caller sees it. */
const remembered = (call: Context<Service>, { agentId }: { agentId?: string }) =>
  agentMemories(call.service, principalOf(call, call.service.isolated), agentId);

/** A row of the inventory of the service: its routes, the values of its manifest, its limits. */
const inventory = (part: keyof Service["inventory"], output: keyof Schemas, summary: string, description?: string) =>
  observe(`/observability/${part}`, `inventory.${part}`, summary, {
    ...(description !== undefined && { description }),
    pages: "named",
    output,
    handle: (_input, { service }) => service.inventory[part](),
  });

export const OBSERVABILITY_ROUTES = [
  observe(
    "/observability/status",
    "observability.status",
    "What is recorded, how much of it there is, and what this process did in the last hour",
    {
      output: "ObservabilityStatus",
      async handle(_input, { service }) {
        const enabled = service.manifest.observability.sample > 0;
        const kept = { ...(await service.traces.status()), logCount: service.logs.count };
        return { enabled, ...kept, websocket: true, activity: service.metrics.activity.minutes };
      },
    },
  ),
  observe("/observability/traces", "observability.listTraces", "List traces, newest first", {
    query: "TracesQuery",
    output: "TraceList",
    async handle({ query }, call) {
      const at = (name: "from" | "to") => (query[name] === undefined ? undefined : parseInstant(name, query[name]));
      const traces = await open(call).list({ ...defaults.TracesQuery, ...query, from: at("from"), to: at("to") });
      return { traces, count: traces.length };
    },
  }),
  observe("/observability/traces/:traceId", "observability.getTrace", "A trace with its spans", {
    output: "TraceDetail",
    handle: ({ params }, call) => open(call).get(params.traceId!),
  }),
  observe("/observability/spans/:spanId", "observability.getSpan", "A span", {
    output: "SpanRecord",
    handle: ({ params }, call) => open(call).span(params.spanId!),
  }),
  observe("/observability/memory/users", "observability.memoryUsers", "List the users whom agents remember", {
    query: "MemoryUsersQuery",
    output: "MemoryUserList",
    handle: ({ query }, call) => remembered(call, query).users(query),
  }),
  observe("/observability/memory/conversations", "observability.memoryConversations", "List conversations of agents", {
    query: "AgentConversationsQuery",
    output: "AgentConversationList",
    handle: ({ query }, call) => remembered(call, query).conversations(query),
  }),
  observe(
    "/observability/memory/conversations/:conversationId/messages",
    "observability.memoryMessages",
    "Get the newest messages of an agent's conversation, in order",
    {
      query: "AgentMessagesQuery",
      output: "AgentMessageList",
      handle: ({ params, query }, call) => remembered(call, query).messages(conversationIdOf(params), query),
    },
  ),
  observe("/observability/memory/working-memory", "observability.workingMemory", "Read the working memory of agents", {
    query: "AgentWorkingMemoryQuery",
    failures: ["not_found"],
    output: "AgentWorkingMemory",
    handle: ({ query }, call) => remembered(call, query).workingMemory(query),
  }),
  inventory("routes", "RouteStates", "Routes and WebSockets with their access class, and how often each was used"),
  inventory(
    "manifest",
    "ManifestValues",
    "The values of the manifest, and what each comes from",
    "Secrets, instructions of agents, and what comes from the environment are not among them. With `auth` only the console's key gives access.",
  ),
  inventory(
    "limits",
    "LimitStates",
    "The limits that the manifest sets, what is in use, and how often each has refused something",
  ),
];

// Log lines, as they are and as log records of OpenTelemetry.

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
