/** Writes the families as text in the format of Prometheus, with prom-client, which has those of the process. */
import { performance } from "node:perf_hooks";
import { collectDefaultMetrics, type Metric, Registry } from "prom-client";
import { VERSION } from "../../lib/version.ts";
import { collectFamilies } from "./families.ts";
import type { Family } from "./family.ts";
import type { Meters } from "./meters.ts";

/** Interval of samples of the event loop's lag, each of which costs some microseconds. */
const SAMPLE_INTERVAL_MS = 20;

/** Gauges of prom-client that are named like counters: promtool objects, and each has a family by type (`nodejs_active_handles`). */
const MISNAMED = ["nodejs_active_handles_total", "nodejs_active_requests_total", "nodejs_active_resources_total"];

/** The metrics of the process, whose names dashboards for Node.js expect. They begin with the first scrape, once for all services. */
const ofProcess: { registry?: Registry } = {};

/** Returns a function that makes the text. */
export function createExposition(meters: Meters): () => Promise<string> {
  ofProcess.registry ??= processRegistry();
  const registry = new Registry();
  for (const family of collectFamilies(meters)) registry.registerMetric(lazyMetric(family));
  const merged = Registry.merge([registry, ofProcess.registry]);
  // prom-client spells the number of a lag that has no sample yet in a way that not every reader of the format knows.
  return async () => (await merged.metrics()).replaceAll(" Nan\n", " NaN\n");
}

function processRegistry(): Registry {
  const register = new Registry();
  collectDefaultMetrics({ register, eventLoopMonitoringPrecision: SAMPLE_INTERVAL_MS });
  for (const name of MISNAMED) register.removeSingleMetric(name);
  for (const family of PROCESS_FAMILIES) register.registerMetric(lazyMetric(family));
  return register;
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

const family = (name: string, type: "counter" | "gauge", help: string, read: () => number): Family => ({
  name,
  help,
  type,
  samples: () => [{ labels: {}, value: read() }],
});

const loop = (kind: "active" | "idle") => performance.eventLoopUtilization()[kind] / 1000;

const PROCESS_FAMILIES: readonly Family[] = [
  {
    name: "penstock_build_info",
    help: "Versions of Penstock and Node.js; always 1.",
    type: "gauge",
    samples: () => [{ labels: { version: VERSION, node: process.version }, value: 1 }],
  },
  family("process_uptime_seconds", "gauge", "Since the start of the process.", () => process.uptime()),
  family("nodejs_eventloop_active_seconds_total", "counter", "The event loop was at work.", () => loop("active")),
  family("nodejs_eventloop_idle_seconds_total", "counter", "The event loop waited for events.", () => loop("idle")),
];
