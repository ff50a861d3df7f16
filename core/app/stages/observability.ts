/** Stages: what is counted, the page that shows it, and what is traced. */
import { createMeters } from "../../agents/meters.ts";
import { accessKeysOf } from "../../auth/credentials.ts";
import { MetricsPage } from "../../observability/metrics/page.ts";
import { openOtlp } from "../../observability/otlp/open.ts";
import { createTracer } from "../../observability/tracer.ts";
import { openTraces } from "../../traces/open.ts";
import type { Stage } from "./stage.ts";

export const meters: Stage<"manifest", "meters"> = ({ manifest }) => ({ parts: { meters: createMeters(manifest) } });

export const metrics: Stage<"meters", "metrics"> = ({ meters }) => {
  const metrics = new MetricsPage(meters);
  return { parts: { metrics }, end: () => metrics.close() };
};

type TraceNeeds = "manifest" | "loaded" | "store" | "meters" | "options";

export const traces: Stage<TraceNeeds, "traces" | "tracer"> = async (
  { manifest, loaded, store, meters, options },
  failed,
) => {
  const traces = openTraces(manifest, store, options.logger, meters);
  const otlp = options.store && !failed ? await openOtlp(manifest, options, meters) : null;
  const sinks = otlp === null ? [traces.sink] : [traces.sink, otlp.sink];
  const secrets = [...loaded.secrets, ...accessKeysOf(options.env)];
  const tracer = createTracer({ ...manifest.observability, secrets }, sinks);
  return {
    parts: { traces, tracer },
    begin: () => traces.start(),
    async end() {
      await Promise.all([traces.close(), otlp?.close()]);
    },
  };
};
