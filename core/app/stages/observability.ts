/** Stages: the meters, the metrics page, and tracing. */
import { createMeters, meteredNames } from "../../agents/meters.ts";
import { MetricsPage } from "../../observability/metrics/page.ts";
import { openOtlp } from "../../observability/otlp/open.ts";
import { createTracer } from "../../observability/tracer.ts";
import { openTraces } from "../../traces/open.ts";
import type { Stage } from "./stage.ts";

export const meters: Stage<"manifest", "meters"> = ({ manifest }) => {
  const meters = createMeters(manifest);
  return {
    parts: { meters },
    adopt({ manifest }) {
      // Declared before later stages use them. A name that is never counted does no harm.
      meters.declare(meteredNames(manifest));
      return {};
    },
  };
};

export const metrics: Stage<"meters", "metrics"> = ({ meters }) => {
  const metrics = new MetricsPage(meters);
  return {
    parts: { metrics },
    adopt: () => ({ apply: () => metrics.renew() }),
    begin: () => metrics.activity.start(),
    end: () => metrics.close(),
  };
};

type TraceNeeds = "manifest" | "store" | "meters" | "options";

export const traces: Stage<TraceNeeds, "traces"> = ({ manifest, store, meters, options }) => {
  const traces = openTraces(manifest, store, options.logger, meters);
  return { parts: { traces }, begin: () => traces.start(), end: () => traces.close() };
};

type TracerNeeds = "manifest" | "loaded" | "traces" | "meters" | "options";

export const tracer: Stage<TracerNeeds, "tracer"> = async ({ manifest, loaded, traces, meters, options }, failed) => {
  const otlp = options.store && !failed ? await openOtlp(manifest, options, meters) : null;
  const sinks = otlp === null ? [traces.sink] : [traces.sink, otlp.sink];
  const tracer = createTracer({ ...manifest.observability, secrets: loaded.secrets }, sinks);
  return { parts: { tracer }, end: () => otlp?.close() };
};
