/**
 * The queue of spans that wait to be sent. It accepts spans immediately and never blocks. One batch is sent at a time. While the collector
 * is unavailable, the queue fills up, and further spans are dropped.
 */

import type { Logger } from "pino";
import { within } from "../../lib/abortable.ts";
import { backOff } from "../../lib/retry.ts";
import type { SpanData, SpanSink, TraceData } from "../sink.ts";
import type { Collector, Sent } from "./collector.ts";

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

/** A copy of the data of a span: the span itself would keep its whole trace in memory. */
export interface QueuedSpan extends SpanData {
  /** Whether its parent is a span of the calling service. */
  readonly remote: boolean;
}

export interface QueueSettings {
  readonly collector: Pick<Collector, "send" | "close">;
  readonly logger: Pick<Logger, "warn" | "info">;
  /** The name of the collector in logs. */
  readonly where: string;
  /** Milliseconds in place of the constants above, for tests. */
  readonly times?: { readonly delay?: number; readonly pause?: number; readonly closeTimeout?: number };
}

export class SpanQueue implements SpanSink {
  readonly live = false;
  readonly #settings: QueueSettings;
  #waiting: QueuedSpan[] = [];
  #sending: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** Consecutive failures. */
  #failures = 0;
  /** Milliseconds that the collector asked for when it failed last. */
  #wait = 0;
  /** Milliseconds for which the last batch blocked the event loop. */
  #work = 0;
  /** Dropped spans that have not been logged. */
  #lost = 0;
  /** No dropped spans are logged before this time on the clock of `performance.now()`. */
  #nextWarning = 0;
  #closed = false;
  /** Number of spans sent since the start. */
  sent = 0;
  dropped = 0;

  constructor(settings: QueueSettings) {
    this.#settings = settings;
  }

  get size(): number {
    return this.#waiting.length;
  }

  began(): void {}
  started(): void {}
  ended(): void {}

  /** Accepts all spans or none: half a trace would be misleading. */
  take(trace: TraceData, spans: readonly SpanData[]): void {
    if (this.#closed || this.#waiting.length + spans.length > MAX_WAITING_SPANS) {
      this.#drop(spans.length);
      return;
    }
    const before = this.#waiting.length;
    for (const span of spans) this.#waiting.push(queuedSpan(span, trace));
    if (this.#sending !== null) return;
    if (this.#timer === null) this.#schedule(this.#delay());
    // A full batch is sent soon, but not within the work that has just ended.
    else if (this.#failures === 0 && before < BATCH_SPANS && this.#waiting.length >= BATCH_SPANS) this.#schedule(0);
  }

  /** Sends the remaining spans, for at most two seconds; none if the collector is unavailable. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelTimer();
    const { collector, logger, where, times } = this.#settings;
    await within(times?.closeTimeout ?? CLOSE_TIMEOUT_MS, this.#flush());
    collector.close();
    const left = this.#waiting.length;
    if (left === 0) return;
    this.#waiting = [];
    this.dropped += left;
    logger.warn({ lost: left }, `${where} did not take the last spans in time`);
  }

  async #flush(): Promise<void> {
    while (this.#sending !== null || (this.#waiting.length > 0 && this.#failures === 0)) await this.#send();
  }

  #schedule(delay: number): void {
    this.#cancelTimer();
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#send();
    }, delay);
    this.#timer.unref();
  }

  #cancelTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #send(): Promise<void> {
    this.#sending ??= this.#sendBatch();
    return this.#sending;
  }

  async #sendBatch(): Promise<void> {
    const batch = this.#waiting.slice(0, BATCH_SPANS);
    const began = performance.now();
    const sending = this.#settings.collector.send(batch);
    this.#work = performance.now() - began;
    const result = await sending;
    if (result.kind !== "failed") this.#waiting.splice(0, batch.length);
    this.#record(batch.length, result);
    this.#sending = null;
    if (!this.#closed && this.#waiting.length > 0) this.#schedule(this.#delay());
  }

  /** Milliseconds until the next batch. */
  #delay(): number {
    const { delay = BATCH_DELAY_MS, pause = MIN_RETRY_DELAY_MS } = this.#settings.times ?? {};
    if (this.#failures > 0) {
      const least = Math.min(this.#wait, MAX_RETRY_DELAY_MS);
      return Math.max(least, backOff(this.#failures - 1, pause, MAX_RETRY_DELAY_MS));
    }
    return this.#waiting.length >= BATCH_SPANS ? this.#work * REST_FACTOR : delay;
  }

  /** Logs one line when sending stops working, and one when it works again. */
  #record(count: number, result: Sent): void {
    const { logger, where } = this.#settings;
    if (result.kind === "sent") {
      if (this.#failures > 0) logger.info({ lost: this.#lost }, `spans are sent to ${where} again`);
      if (this.#failures > 0) this.#lost = 0;
      this.#failures = 0;
      this.sent += count;
      return;
    }
    if (this.#failures === 0) logger.warn(`spans cannot be sent to ${where}: ${result.reason}`);
    this.#failures++;
    this.#wait = result.kind === "failed" ? result.wait : 0;
    if (result.kind === "refused") this.#drop(count);
  }

  /** Logs dropped spans: once a minute while the collector works, and otherwise when it is back. */
  #drop(count: number): void {
    this.dropped += count;
    this.#lost += count;
    if (this.#failures > 0 || this.#closed || performance.now() < this.#nextWarning) return;
    const { logger, where } = this.#settings;
    logger.warn({ lost: this.#lost }, `spans come faster than ${where} takes them`);
    this.#lost = 0;
    this.#nextWarning = performance.now() + WARNING_INTERVAL_MS;
  }
}

function queuedSpan(span: SpanData, trace: Pick<TraceData, "root">): QueuedSpan {
  const { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links } = span;
  const remote = span === trace.root && parentSpanId !== null;
  return { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links, remote };
}
