/** Metrics of the process, under the names that Prometheus clients commonly use. */
import { type IntervalHistogram, monitorEventLoopDelay, performance } from "node:perf_hooks";
import { VERSION } from "../../lib/version.ts";
import type { Family } from "./family.ts";

/** Interval of samples of the event loop delay, each of which costs some microseconds. */
const SAMPLE_INTERVAL_MS = 20;
const QUANTILES = [0.5, 0.9, 0.99];
const NANOSECONDS = 1e9;

const family = (name: string, type: "counter" | "gauge", help: string, read: () => number): Family => ({
  name,
  help,
  type,
  samples: () => [{ labels: {}, value: read() }],
});

/** @param delay the event loop monitor, which is reset with every scrape */
export function processFamilies(delay: IntervalHistogram): Family[] {
  const labels = { version: VERSION, node: process.version };
  return [
    {
      name: "penstock_build_info",
      help: "Versions of Penstock and Node.js; always 1.",
      type: "gauge",
      samples: () => [{ labels, value: 1 }],
    },
    family("process_resident_memory_bytes", "gauge", "Resident memory.", () => process.memoryUsage.rss()),
    family("process_cpu_user_seconds_total", "counter", "Processor time in user mode.", () => cpu("user")),
    family("process_cpu_system_seconds_total", "counter", "Processor time in kernel mode.", () => cpu("system")),
    family("process_start_time_seconds", "gauge", "Start of the process, since 1970.", () => startTime()),
    family("process_uptime_seconds", "gauge", "Since the start of the process.", () => process.uptime()),
    family("nodejs_heap_size_total_bytes", "gauge", "Heap of JavaScript, used or not.", () => memory("heapTotal")),
    family("nodejs_heap_size_used_bytes", "gauge", "Heap of JavaScript in use.", () => memory("heapUsed")),
    family("nodejs_external_memory_bytes", "gauge", "Memory of objects outside the heap.", () => memory("external")),
    family("nodejs_eventloop_active_seconds_total", "counter", "The event loop was at work.", () => loop("active")),
    family("nodejs_eventloop_idle_seconds_total", "counter", "The event loop waited for events.", () => loop("idle")),
    delayFamily(delay),
  ];
}

const cpu = (kind: "user" | "system") => process.cpuUsage()[kind] / 1e6;
const memory = (kind: "heapTotal" | "heapUsed" | "external") => process.memoryUsage()[kind];
const loop = (kind: "active" | "idle") => performance.eventLoopUtilization()[kind] / 1000;
const startTime = () => Math.round(performance.timeOrigin) / 1000;

/** Starts with the first scrape: a service that is never scraped has no timer. */
export function watchEventLoop(): IntervalHistogram {
  const delay = monitorEventLoopDelay({ resolution: SAMPLE_INTERVAL_MS });
  delay.enable();
  return delay;
}

/** The histogram contains the times between two samples, each of which exceeds the delay by the resolution. */
function delayFamily(delay: IntervalHistogram): Family {
  const seconds = (nanoseconds: number) => Math.max(0, nanoseconds / NANOSECONDS - SAMPLE_INTERVAL_MS / 1000);
  return {
    name: "nodejs_eventloop_delay_seconds",
    help: "How late the event loop was between the last scrape and this one, by quantile.",
    type: "gauge",
    samples() {
      const samples = QUANTILES.map((quantile) => ({
        labels: { quantile: String(quantile) },
        value: seconds(delay.percentile(quantile * 100)),
      }));
      const longest = { labels: { quantile: "1" }, value: delay.count === 0 ? 0 : seconds(delay.max) };
      delay.reset();
      return [...samples, longest];
    },
  };
}
