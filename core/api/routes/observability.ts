/** Traces and spans. */

import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import { type Context, typedRoute } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { parseInstant } from "../../lib/instant.ts";
import type { TraceAccess } from "../../traces/traces.ts";

/** The traces as the caller sees them. */
const open = (call: Context<Service>): TraceAccess => call.service.traces.for(principalOf(call, call.service.isolated));

export const OBSERVABILITY_ROUTES = [
  typedRoute<Service>({
    operation: "observability.status",
    method: "GET",
    path: "/observability/status",
    group: "observability",
    summary: "What is recorded, how much of it there is, and what this process did in the last hour",
    output: { json: "ObservabilityStatus" },
    async handle(_input, { service }) {
      const enabled = service.manifest.observability.sample > 0;
      const kept = { ...(await service.traces.status()), logCount: service.logs.count };
      return { enabled, ...kept, websocket: true, activity: service.metrics.activity.minutes };
    },
  }),
  typedRoute<Service, "TracesQuery">({
    operation: "observability.listTraces",
    method: "GET",
    path: "/observability/traces",
    group: "observability",
    summary: "List traces, newest first",
    query: "TracesQuery",
    output: { json: "TraceList" },
    async handle({ query }, call) {
      const { from, to, entityId, entityType, status } = query;
      const { limit = defaults.TracesQuery.limit, offset = defaults.TracesQuery.offset } = query;
      const filters = {
        ...(entityId !== undefined && { entityId }),
        ...(entityType !== undefined && { entityType }),
        ...(status !== undefined && { status }),
      };
      const times = {
        ...(from !== undefined && { from: parseInstant("from", from) }),
        ...(to !== undefined && { to: parseInstant("to", to) }),
      };
      const traces = await open(call).list({ ...filters, ...times, limit, offset });
      return { traces, count: traces.length };
    },
  }),
  typedRoute<Service>({
    operation: "observability.getTrace",
    method: "GET",
    path: "/observability/traces/:traceId",
    group: "observability",
    summary: "A trace with its spans",
    output: { json: "TraceDetail" },
    handle: ({ params }, call) => open(call).get(params.traceId!),
  }),
  typedRoute<Service>({
    operation: "observability.getSpan",
    method: "GET",
    path: "/observability/spans/:spanId",
    group: "observability",
    summary: "A span",
    output: { json: "SpanRecord" },
    handle: ({ params }, call) => open(call).span(params.spanId!),
  }),
];
