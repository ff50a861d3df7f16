/**
 * The queue of spans that wait to be sent. It accepts spans immediately and never blocks. One batch is sent at a time. While the collector
 * is unavailable, the queue fills up, and further spans are dropped.
 */
import type { Logger } from "pino";
import { within } from "../../lib/abortable.ts";
import { backOff } from "../../lib/retry.ts";
import type { SpanData, TraceData } from "../span.ts";
import type { Collector, QueuedSpan, Sent } from "./collector.ts";

const MAX_WAITING_SPANS = 2048;
const BATCH_SPANS = 256;
/** How long a span waits so that others are sent with it. */
const BATCH_DELAY_MS = 1_000;
/** The delay after a failure doubles from this value to the next one. */
const MIN_RETRY_DELAY_MS = 1_000;
const MAX_RETRY_DELAY_MS = 30_000;
/** When spans pile up, the pause before the next batch is this multiple of the time for the last one, so that requests come first. */
const REST_FACTOR = 4;
/** Shortest time between two log lines about dropped spans. */
const WARNING_INTERVAL_MS = 60_000;
/** How long to send the last spans when the service ends. */
const CLOSE_TIMEOUT_MS = 2_000;

export interface QueueSettings {
  readonly collector: Pick<Collector, "send" | "close">;
  readonly logger: Pick<Logger, "warn" | "info">;
  /** The name of the collector in logs. */
  readonly where: string;
  /** Milliseconds in place of the constants above, for tests. */
  readonly times?: { readonly delay?: number; readonly pause?: number; readonly closeTimeout?: number };
}

export type SpanQueue = ReturnType<typeof createSpanQueue>;

export function createSpanQueue(settings: QueueSettings) {
  let waiting: QueuedSpan[] = [];
  let underway: Promise<void> | null = null;
  let timer: NodeJS.Timeout | null = null;
  /** Consecutive failures. */
  let failures = 0;
  /** Milliseconds that the collector asked for when it failed last. */
  let wait = 0;
  /** Milliseconds for which the last batch blocked the event loop. */
  let work = 0;
  /** Dropped spans that have not been logged. */
  let lost = 0;
  /** No dropped spans are logged before this time on the clock of `performance.now()`. */
  let nextWarning = 0;
  let closed = false;
  /** Number of spans sent since the start. */
  let sent = 0;
  let dropped = 0;

  /** Accepts all spans or none: half a trace would be misleading. */
  function take(trace: TraceData, spans: readonly SpanData[]): void {
    if (closed || waiting.length + spans.length > MAX_WAITING_SPANS) {
      drop(spans.length);
      return;
    }
    const before = waiting.length;
    for (const span of spans) waiting.push(queuedSpan(span, trace));
    if (underway !== null) return;
    if (timer === null) schedule(delay());
    // A full batch is sent soon, but not within the work that has just ended.
    else if (failures === 0 && before < BATCH_SPANS && waiting.length >= BATCH_SPANS) schedule(0);
  }

  /** Sends the remaining spans, for at most two seconds; none if the collector is unavailable. */
  async function close(): Promise<void> {
    if (closed) return;
    closed = true;
    cancelTimer();
    const { collector, logger, where, times } = settings;
    await within(times?.closeTimeout ?? CLOSE_TIMEOUT_MS, flush());
    collector.close();
    const left = waiting.length;
    if (left === 0) return;
    waiting = [];
    dropped += left;
    logger.warn({ lost: left }, `${where} did not take the last spans in time`);
  }

  async function flush(): Promise<void> {
    while (underway !== null || (waiting.length > 0 && failures === 0)) await send();
  }

  function schedule(delay: number): void {
    cancelTimer();
    timer = setTimeout(() => {
      timer = null;
      void send();
    }, delay);
    timer.unref();
  }

  function cancelTimer(): void {
    if (timer !== null) clearTimeout(timer);
    timer = null;
  }

  function send(): Promise<void> {
    underway ??= sendBatch();
    return underway;
  }

  async function sendBatch(): Promise<void> {
    const batch = waiting.slice(0, BATCH_SPANS);
    const began = performance.now();
    const sending = settings.collector.send(batch);
    work = performance.now() - began;
    const result = await sending;
    if (result.kind !== "failed") waiting.splice(0, batch.length);
    record(batch.length, result);
    underway = null;
    if (!closed && waiting.length > 0) schedule(delay());
  }

  /** Milliseconds until the next batch. */
  function delay(): number {
    const { delay = BATCH_DELAY_MS, pause = MIN_RETRY_DELAY_MS } = settings.times ?? {};
    if (failures > 0) {
      const least = Math.min(wait, MAX_RETRY_DELAY_MS);
      return Math.max(least, backOff(failures - 1, pause, MAX_RETRY_DELAY_MS));
    }
    return waiting.length >= BATCH_SPANS ? work * REST_FACTOR : delay;
  }

  /** Logs one line when sending stops working, and one when it works again. */
  function record(count: number, result: Sent): void {
    const { logger, where } = settings;
    if (result.kind === "sent") {
      if (failures > 0) logger.info({ lost }, `spans are sent to ${where} again`);
      if (failures > 0) lost = 0;
      failures = 0;
      sent += count;
      return;
    }
    if (failures === 0) logger.warn(`spans cannot be sent to ${where}: ${result.reason}`);
    failures++;
    wait = result.kind === "failed" ? result.wait : 0;
    if (result.kind === "refused") drop(count);
  }

  /** Logs dropped spans: once a minute while the collector works, and otherwise when it is back. */
  function drop(count: number): void {
    dropped += count;
    lost += count;
    if (failures > 0 || closed || performance.now() < nextWarning) return;
    const { logger, where } = settings;
    logger.warn({ lost }, `spans come faster than ${where} takes them`);
    lost = 0;
    nextWarning = performance.now() + WARNING_INTERVAL_MS;
  }

  return {
    live: false,
    get sent() {
      return sent;
    },
    get dropped() {
      return dropped;
    },
    get size(): number {
      return waiting.length;
    },
    began() {},
    started() {},
    ended() {},
    take,
    close,
  };
}

function queuedSpan(span: SpanData, trace: Pick<TraceData, "root">): QueuedSpan {
  const { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links } = span;
  const remote = span === trace.root && parentSpanId !== null;
  return { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links, remote };
}
