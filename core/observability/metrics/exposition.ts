/** Writes the families as text in the format of Prometheus, with prom-client. */
import { type Metric, Registry } from "prom-client";
import { collectFamilies } from "./families.ts";
import type { Family } from "./family.ts";
import type { Meters } from "./meters.ts";
import { processFamilies, watchEventLoop } from "./process-families.ts";

export interface Exposition {
  text(): Promise<string>;
  /** Stops watching the event loop. */
  close(): void;
}

export function createExposition(meters: Meters): Exposition {
  const delay = watchEventLoop();
  const registry = new Registry();
  for (const family of [...collectFamilies(meters), ...processFamilies(delay)])
    registry.registerMetric(lazyMetric(family));
  return {
    text: () => registry.metrics(),
    close: () => delay.disable(),
  };
}

/** A metric as the registry expects it, whose values are computed on request. The registry has no type for this. */
function lazyMetric({ name, help, type, samples }: Family): Metric {
  const get = async () => ({
    name,
    help,
    type,
    aggregator: "sum",
    values: samples().map(({ labels, value, suffix = "" }) => ({ labels, value, metricName: name + suffix })),
  });
  return { name, help, type, get } as unknown as Metric;
}
