/** Puts together the traces of a service: recorder, lists, lookups and retention over one store. */
import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { VERSION } from "../lib/version.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import { unlessConflict } from "../storage/conflict.ts";
import { SEGMENTS, segmentsFrom, TRACE_COUNTERS } from "../storage/keys.ts";
import { excessBytes } from "../storage/memory-shares.ts";
import { pagesInBackground } from "../storage/ranges.ts";
import { isVolatile } from "../storage/sharing.ts";
import type { Store } from "../storage/store.ts";
import { createRecorder } from "./recorder.ts";
import { ScopedTraces } from "./scoped.ts";
import type { Origin } from "./segment.ts";
import { commitOfRemovals, parseHead } from "./segment-rows.ts";
import { sealedAt } from "./segments.ts";
import { createSpanFeed } from "./span-feed.ts";
import type { Traces } from "./traces.ts";

const FIRST_ROUND_DELAY_MS = 5_000;
const ROUND_INTERVAL_MS = 10_000;
const SEGMENTS_PER_COMMIT = 32;

interface TraceRetentionOptions {
  /** How many milliseconds traces are kept. */
  readonly retention: number;
  /** How many characters of traces are kept. */
  readonly size: number;
  /** By how many bytes they take more of the heap than they may, in a store that is there. */
  readonly excess?: () => number;
  readonly logger: Logger;
  /** Milliseconds between two rounds; default ten seconds. */
  readonly round?: number;
}

/** Removes traces that are too old or too many: the oldest segments first, a few at a time. */
export function createTraceRetention(store: Store, options: TraceRetentionOptions) {
  const rounds = new Interval(
    options.round ?? ROUND_INTERVAL_MS,
    () => removeOld(Date.now()),
    (error) => options.logger.warn({ err: error }, `old traces cannot be removed: ${messageOf(error)}`),
  );

  /** Removes what is older than the retention at `now` (milliseconds since 1970), and the oldest traces beyond the size limit. */
  async function removeOld(now: number): Promise<void> {
    const { retention, size } = options;
    const oldest = Math.max(0, Math.floor(now - retention));
    const range = { prefix: SEGMENTS, ...((await excessOf(size)) <= 0 && { before: segmentsFrom(oldest) }) };
    for await (const rows of pagesInBackground(store, range, SEGMENTS_PER_COMMIT, rounds.signal)) {
      // Read again for every page, because other processes remove traces too.
      const excess = await excessOf(size);
      let freed = 0;
      const group = rows.map(parseHead).filter(({ name, head }) => {
        const isRemoved = freed < excess || sealedAt(name) < now - retention;
        if (isRemoved) freed += head.size;
        return isRemoved;
      });
      if (group.length === 0) return;
      // A conflict means that another process is removing traces.
      if (!(await unlessConflict(store.commit(commitOfRemovals(group))))) return;
    }
  }

  async function excessOf(size: number): Promise<number> {
    const row = await store.get(TRACE_COUNTERS.size);
    return Math.max(Number(row?.value ?? 0) - size, options.excess?.() ?? 0);
  }

  return {
    start: () => rounds.start(Math.min(FIRST_ROUND_DELAY_MS, options.round ?? FIRST_ROUND_DELAY_MS)),
    close: () => rounds.stop(),
    removeOld,
  };
}

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
  const recorder = createRecorder(store, { origin, process: randomBytes(5).toString("hex"), logger });
  meters?.add({
    name: "traces_dropped_total",
    help: "Traces that were not kept: the store did not take them as fast.",
    type: "counter",
    read: () => recorder.lost,
  });
  const inMemory = isVolatile(store);
  const retention = createTraceRetention(store, {
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
  const feed = createSpanFeed(recorder, origin);
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
