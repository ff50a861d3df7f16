/**
 * Spans that wait to be sent: a sink that takes what it is given at once and never waits. One batch is on its way at a time. A
 * collector that is away costs nothing but the spans that find the queue full.
 */
import type { Logger } from "pino";
import type { SpanData, SpanSink, TraceData } from "../sink.ts";
import type { Collector, Sent } from "./collector.ts";

/** Spans that wait at most, and spans of one batch. */
const MAX_WAITING_SPANS = 2048;
const BATCH_SPANS = 256;
/** Milliseconds that a span waits for others; the first pause after a failure, which doubles, and the longest one. */
const BATCH_DELAY_MS = 1_000;
const MIN_RETRY_DELAY_MS = 1_000;
const MAX_RETRY_DELAY_MS = 30_000;
/** How much longer than a batch took to be written the next one waits: requests come first, however many spans there are. */
const REST_FACTOR = 4;
/** Milliseconds between two lines that say that spans are lost. */
const WARNING_INTERVAL_MS = 60_000;
/** Milliseconds that the end of the service waits for what is left. */
const CLOSE_TIMEOUT_MS = 2_000;

/** What a span says, without the span, on which its whole trace may hang. */
export interface QueuedSpan extends SpanData {
  /** Whether its parent is a span of the service that made the request. */
  readonly remote: boolean;
}

export interface QueueSettings {
  readonly collector: Pick<Collector, "send" | "close">;
  readonly logger: Pick<Logger, "warn" | "info">;
  /** What logs call the collector. */
  readonly where: string;
  /** Milliseconds instead of those above, for tests of what takes long. */
  readonly times?: { readonly delay?: number; readonly pause?: number; readonly patience?: number };
}

export class SpanQueue implements SpanSink {
  readonly live = false;
  readonly #settings: QueueSettings;
  #waiting: QueuedSpan[] = [];
  #sending: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** Failures in a row. */
  #failures = 0;
  /** Milliseconds that the last batch took of the event loop before it was on its way. */
  #work = 0;
  /** Spans that nobody has been told of. */
  #lost = 0;
  /** `performance.now()` from which on loss is worth a line. */
  #tellFrom = 0;
  #closed = false;
  /** Since the start. */
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

  /** All of them or none: half a trace tells less than none. */
  take(trace: TraceData, spans: readonly SpanData[]): void {
    if (this.#closed || this.#waiting.length + spans.length > MAX_WAITING_SPANS) {
      this.#drop(spans.length);
      return;
    }
    const before = this.#waiting.length;
    for (const span of spans) this.#waiting.push(queuedSpan(span, trace));
    if (this.#sending !== null) return;
    if (this.#timer === null) this.#arm(this.#rest());
    // What fills a batch is sent now, but not by the work that ended.
    else if (this.#failures === 0 && before < BATCH_SPANS && this.#waiting.length >= BATCH_SPANS) this.#arm(0);
  }

  /** Sends what is left, for at most two seconds; nothing to a collector that is away. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#disarm();
    const { collector, logger, where, times } = this.#settings;
    await within(times?.patience ?? CLOSE_TIMEOUT_MS, () => this.#flush());
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

  #arm(delay: number): void {
    this.#disarm();
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#send();
    }, delay);
    this.#timer.unref();
  }

  #disarm(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #send(): Promise<void> {
    this.#sending ??= this.#trip();
    return this.#sending;
  }

  async #trip(): Promise<void> {
    const batch = this.#waiting.slice(0, BATCH_SPANS);
    const began = performance.now();
    const sending = this.#settings.collector.send(batch);
    this.#work = performance.now() - began;
    const result = await sending;
    if (result.kind !== "failed") this.#waiting.splice(0, batch.length);
    this.#settle(batch.length, result);
    this.#sending = null;
    if (!this.#closed && this.#waiting.length > 0) this.#arm(this.#rest());
  }

  /** Milliseconds until the next batch. */
  #rest(): number {
    const { delay = BATCH_DELAY_MS, pause = MIN_RETRY_DELAY_MS } = this.#settings.times ?? {};
    if (this.#failures > 0) return Math.min(pause * 2 ** (this.#failures - 1), MAX_RETRY_DELAY_MS);
    return this.#waiting.length >= BATCH_SPANS ? this.#work * REST_FACTOR : delay;
  }

  /** One line when it stops working and one when it works again. */
  #settle(count: number, result: Sent): void {
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
    if (result.kind === "refused") this.#drop(count);
  }

  /** Told when the collector is back; while it works, once a minute. */
  #drop(count: number): void {
    this.dropped += count;
    this.#lost += count;
    if (this.#failures > 0 || this.#closed || performance.now() < this.#tellFrom) return;
    const { logger, where } = this.#settings;
    logger.warn({ lost: this.#lost }, `spans come faster than ${where} takes them`);
    this.#lost = 0;
    this.#tellFrom = performance.now() + WARNING_INTERVAL_MS;
  }
}

function queuedSpan(span: SpanData, trace: Pick<TraceData, "root">): QueuedSpan {
  const { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links } = span;
  const remote = span === trace.root && parentSpanId !== null;
  return { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links, remote };
}

async function within(milliseconds: number, work: () => Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await Promise.race([work(), over]);
  clearTimeout(timer);
}
