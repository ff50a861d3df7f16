/** Traces and spans. */

import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { parseInstant } from "../../lib/instant.ts";
import type { TraceAccess } from "../../traces/traces.ts";
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
];
