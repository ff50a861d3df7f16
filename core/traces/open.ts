/** Puts together the traces of a service: recorder, lists, lookups and retention over one store. */
import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import { VERSION } from "../lib/version.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import { TRACE_COUNTERS } from "../storage/keys.ts";
import { excessBytes } from "../storage/memory-shares.ts";
import { isVolatile } from "../storage/sharing.ts";
import type { Store } from "../storage/store.ts";
import { Recorder } from "./recorder.ts";
import { TraceRetention } from "./retention.ts";
import { ScopedTraces } from "./scoped.ts";
import type { Origin } from "./segment.ts";
import { SpanFeed } from "./span-feed.ts";
import type { Traces } from "./traces.ts";

/** In memory the limit is checked more often than on disk. */
const RETENTION_INTERVAL_IN_MEMORY_MS = 1_000;

/** @param meters gets a counter of the traces that were dropped */
export function openTraces(
  manifest: Manifest,
  store: Store,
  logger: Logger,
  meters: Pick<Meters, "add"> | null = null,
): Traces {
  // Getters, because a reload may change the values.
  const origin: Origin = {
    get service() {
      return manifest.name;
    },
    get version() {
      return manifest.version;
    },
    scope: VERSION,
  };
  const recorder = new Recorder(store, { origin, process: randomBytes(5).toString("hex"), logger });
  meters?.add({
    name: "traces_dropped_total",
    help: "Traces that were not kept: the store did not take them as fast.",
    type: "counter",
    read: () => recorder.lost,
  });
  const inMemory = isVolatile(store);
  const retention = new TraceRetention(store, {
    get retention() {
      return manifest.observability.retention;
    },
    get size() {
      return manifest.observability.size;
    },
    logger,
    ...(inMemory && { round: RETENTION_INTERVAL_IN_MEMORY_MS, excess: () => excessBytes(store, "traces") }),
  });
  const places = { store, recorder, origin };
  const feed = new SpanFeed(recorder, origin);
  return {
    sink: feed,
    news: feed.news,
    for: (principal) => new ScopedTraces(places, principal),
    async status() {
      await recorder.flush();
      const [traces, spans] = await store.getMany([TRACE_COUNTERS.traces, TRACE_COUNTERS.spans]);
      const { unwritten, lost, failing } = recorder;
      return {
        storage: store.kind,
        traceCount: Number(traces?.value ?? 0) + unwritten.traces,
        spanCount: Number(spans?.value ?? 0) + unwritten.spans,
        message: statusMessage(manifest.observability.sample, lost, failing),
      };
    },
    start: () => retention.start(),
    async close() {
      await recorder.close();
      await retention.close();
    },
  };
}

function statusMessage(sample: number, lost: number, failing: boolean): string {
  const kept =
    sample === 0 ? "no traces are recorded: observability.sample is 0" : `${sampledShare(sample)} are recorded`;
  const dropped = lost === 0 ? "" : `; ${lost} were not kept, for the store did not take them as fast`;
  return `${kept}${dropped}${failing ? "; the store does not take traces at the moment" : ""}`;
}

const sampledShare = (sample: number): string =>
  sample === 1 ? "all runs" : `${Number((sample * 100).toFixed(4))} % of runs`;
